"""H29: a copy node whose host source is gone when its builder returns.

Source: NVIDIA/cuda-python#166.
Mechanism: a copy node keeps the host address only. The bytes that were copied from belong to the function
that built the graph, and are freed with its frame.
What fools a naive gate: it launches inside the builder function, where they live.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import numpy as np
import torch

HAZARD = "H29"
KIND = "K3"
EXPECTED = ("NO-GO",)
REASON = ("lifetime", "wrong-output")

SHAPES = {"n4096": 4096}


def table_of(n):
    return np.linspace(0.5, 1.5, n, dtype=np.float32)


def build(shape):
    table = torch.from_numpy(table_of(shape)).cuda()

    @torch.no_grad()
    def step(x):
        for _ in range(12):
            x = torch.tanh(x + 0.1)
        return x * table

    return step


def make(x, table):
    source = torch.from_numpy(table_of(x.shape[0]))  # pageable, and only of this frame
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.no_grad(), torch.cuda.graph(graph):
        table.copy_(source, non_blocking=True)
        out = x
        for _ in range(12):
            out = torch.tanh(out + 0.1)
        out = out * table
    return graph, out


def build_graphed(shape):
    static, table = (torch.zeros(shape, device="cuda") for _ in range(2))
    graph, out = make(static, table)
    others = [np.full(shape, 7, np.float32) for _ in range(64)]  # what the application reads in meanwhile

    def graphed(x):
        others.append(others.pop(0).copy())
        static.copy_(x)
        graph.replay()
        return out

    return graphed


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, device="cuda", generator=generator),)
