"""H29: a copy node whose host source is gone when its builder returns.

Source: NVIDIA/cuda-python#166.
Mechanism: a copy node keeps the host address only. The bytes that were copied from belong to the function
that built the graph, and are freed with its frame.
What fools a naive gate: it launches inside the builder function, where they live.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import numpy as np
import torch
from cuda.bindings import driver

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


def checked(answer):
    """What a driver call returned besides its status."""
    status, *values = answer
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the driver returned {status.name}")
    return values[0] if values else None


def captured(x, table):
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    torch.cuda.synchronize()
    with torch.no_grad(), torch.cuda.graph(graph):
        out = x
        for _ in range(12):
            out = torch.tanh(out + 0.1)
        out = out * table
    return graph, out


def make(compute, table):
    """A copy of the table, then the captured graph."""
    source = table_of(table.numel())  # pageable, and only of this frame
    copy = driver.CUDA_MEMCPY3D()
    copy.srcMemoryType, copy.srcHost = driver.CUmemorytype.CU_MEMORYTYPE_HOST, source.ctypes.data
    copy.dstMemoryType, copy.dstDevice = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE, table.data_ptr()
    copy.WidthInBytes, copy.Height, copy.Depth = source.nbytes, 1, 1
    graph = checked(driver.cuGraphCreate(0))
    node = checked(driver.cuGraphAddMemcpyNode(graph, None, 0, copy, checked(driver.cuCtxGetCurrent())))
    captured_graph = driver.CUgraph(compute.raw_cuda_graph())
    checked(driver.cuGraphAddChildGraphNode(graph, [node], 1, captured_graph))
    return checked(driver.cuGraphInstantiate(graph, 0))


def build_graphed(shape):
    static, table = (torch.zeros(shape, device="cuda") for _ in range(2))
    compute, out = captured(static, table)
    executable = make(compute, table)
    others = [np.full(shape, 7, np.float32) for _ in range(64)]  # what the application reads in meanwhile

    def graphed(x):
        others.append(others.pop(0).copy())
        static.copy_(x)
        checked(driver.cuGraphLaunch(executable, torch.cuda.current_stream().cuda_stream))
        return out

    return graphed


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, device="cuda", generator=generator),)
