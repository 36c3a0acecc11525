"""The same few operations in each framework that runs on a GPU, as workload files with one shape."""

from __future__ import annotations

from typing import Final

TORCH = """
import torch

def build(shape):
    torch.manual_seed(7)
    layers = [torch.nn.Linear(64, 64) for _ in range(4)]
    model = torch.nn.Sequential(*layers, torch.nn.Dropout(0.5)).cuda()

    def step(x):
        with torch.no_grad():
            return model(x).relu()

    return step

def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(8, 64, device="cuda", generator=generator),)
"""
CUPY = """
import cupy

def build(shape):
    weights = cupy.random.RandomState(7).rand(64, 64, dtype=cupy.float32)

    def step(x):
        for _ in range(4):
            x = cupy.tanh(x * weights + 0.5)
        return x

    return step

def inputs(shape, seed):
    return (cupy.random.RandomState(seed).rand(64, 64, dtype=cupy.float32),)
"""
NUMBA = """
import numpy as np

if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack
from numba import cuda
from cudagraph_gate.adapters.numba import current_stream

@cuda.jit
def scale(x, out, offset):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * 0.5 + offset

def build(shape):
    work, out = cuda.device_array(256, np.float32), cuda.device_array(256, np.float32)

    def step(x):
        stream = current_stream()
        scale[4, 64, stream](x, work, 1.0)
        scale[4, 64, stream](work, out, 2.0)
        return out

    return step

def inputs(shape, seed):
    return (cuda.to_device(np.random.default_rng(seed).random(256, dtype=np.float32)),)
"""
PORT = """
import numpy as np
from cudagraph_gate.device import Kernel, LaunchShape, current_device

def _add(shape, x, y, n):
    x[:n] += y

SOURCE = '''
extern "C" __global__ void add(float* x, float y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += y;
}'''
ADD = Kernel("add", SOURCE, _add, 2_000)

def build(shape):
    device, work = current_device(), current_device().empty((256,), np.float32)

    def step(x):
        device.copy(work, x)
        for k in range(4):
            device.launch(ADD, LaunchShape((4, 1, 1), (64, 1, 1)), (work, np.float32(k), np.int32(256)))
        return work

    return step

def inputs(shape, seed):
    return (current_device().array(np.random.default_rng(seed).random(256, dtype=np.float32)),)
"""
FRAMEWORKS: Final = {"torch": TORCH, "cupy": CUPY, "numba": NUMBA, "port": PORT}
"""Workload text by what it needs installed; the port needs nothing, and no GPU either."""
