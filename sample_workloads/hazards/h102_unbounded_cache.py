"""H102: a graph for every input tensor, kept for ever.

Source: ggml-org/llama.cpp#20315, ggml-org/llama.cpp#26558, ikawrakow/ik_llama.cpp#2288.
Mechanism: the cache's key holds the address of the input, which is new for every request: each one
captures, and nothing is ever dropped.
What fools a naive gate: ten requests on the same tensors show nothing.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "H102"
KIND = "K12"
EXPECTED = ("NO-GO",)
REASON = ("memory-growth", "churn")

SHAPES = {"b16": 16}
GRAPHS = {}


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
    @torch.no_grad()
    def step(x):
        for _ in range(24):
            x = torch.tanh(x + 0.1)
        return x

    return step


def build_graphed(shape):
    step = build(shape)

    def graphed(x):
        if x.data_ptr() not in GRAPHS:
            GRAPHS[x.data_ptr()] = (*captured(step, x), x)
        graph, out, _kept = GRAPHS[x.data_ptr()]
        graph.replay()
        return out

    return graphed


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, 256, device="cuda", generator=generator),)
