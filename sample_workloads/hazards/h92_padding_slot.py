"""H92: padded rows whose slot of -1 overwrites the last real one.

Source: vllm-project/vllm#43810, vllm-project/vllm#43869.
Mechanism: the graph serves 128 rows; a smaller batch is padded, and the padded rows get the slot -1,
which is a legal index: the last row of the cache is overwritten.
What fools a naive gate: the returned rows are right.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "H92"
KIND = "K11"
EXPECTED = ("NO-GO",)
REASON = ("padding",)

SHAPES = {"b64": 64}
ROWS, PADDED, WIDTH = 256, 128, 64
STATE = {}


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


def encode(x):
    for _ in range(8):
        x = torch.tanh(x + 0.1)
    return x


def build(shape):
    cache = STATE["cache"] = torch.zeros(ROWS, WIDTH, device="cuda")

    @torch.no_grad()
    def step(x, slots):
        encoded = encode(x)
        cache.index_put_((slots,), encoded)
        return encoded

    return step


def build_graphed(shape):
    cache = STATE["cache"]
    rows = torch.zeros(PADDED, WIDTH, device="cuda")
    slots = torch.full((PADDED,), -1, dtype=torch.int64, device="cuda")

    @torch.no_grad()
    def run(rows):
        encoded = encode(rows)
        cache.index_put_((slots,), encoded)
        return encoded

    graph, out = captured(run, rows)

    def graphed(x, wanted):
        rows[:shape].copy_(x)
        slots[:shape].copy_(wanted)
        graph.replay()
        return out[:shape]

    return graphed


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    rows = torch.randn(shape, WIDTH, device="cuda", generator=generator)
    return rows, torch.randperm(ROWS - 1, device="cuda", generator=generator)[:shape]


def state():
    return STATE
