"""H18: a table that only the function which captured the graph held.

Source: pytorch/pytorch#174649, pytorch/pytorch#170646, pytorch/pytorch#139355.
Mechanism: a graph holds bare addresses. When ``make`` returns, the table goes back to the allocator,
which gives its block to the next one who asks for that size; no access is illegal.
What fools a naive gate: nothing else allocates in its test.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "H18"
KIND = "K3"
EXPECTED = ("NO-GO",)
REASON = ("lifetime",)

SHAPES = {"b16": 16}


def captured(run, x):
    """A graph of ``run``, warmed up on a side stream, and its output."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run(x)
    return graph, out


def build(shape):
    table = torch.linspace(0.5, 1.5, 256, device="cuda")

    @torch.no_grad()
    def step(x):
        for _ in range(12):
            x = torch.tanh(x * table)
        return x

    return step


def make(x):
    table = torch.linspace(0.5, 1.5, 256, device="cuda")

    @torch.no_grad()
    def run(x):
        for _ in range(12):
            x = torch.tanh(x * table)
        return x

    return captured(run, x)  # the table goes with this function's frame


def build_graphed(shape):
    static = torch.zeros(shape, 256, device="cuda")
    graph, out = make(static)

    def graphed(x):
        static.copy_(x)
        graph.replay()
        return out

    return graphed


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, 256, device="cuda", generator=generator),)
