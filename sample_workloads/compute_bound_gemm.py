"""Compute-bound: two large matrix products. The GPU is busy all the time, so a graph gives nothing back.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np

from cudagraph_gate.device import Kernel, LaunchShape, current_device

SHAPES = {"n768": 768}
TILE = 16
SIMULATED_FLOPS_PER_NS = 1_000  # 1 TFLOP/s: what a kernel as plain as this one reaches


def _matmul(shape, a, b, c, n):
    np.matmul(a, b, out=c)


def _cost_ns(shape, a, b, c, n):
    return int(2 * int(n) ** 3 // SIMULATED_FLOPS_PER_NS)


MATMUL = Kernel(
    name="matmul",
    source="""
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float left[16][16], right[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int tile = 0; tile < n; tile += 16) {
        left[threadIdx.y][threadIdx.x] = a[row * n + tile + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}""",
    reference=_matmul,
    cost_ns=_cost_ns,
)


def build(shape):
    device = current_device()
    n = shape
    weights = device.array(np.random.default_rng(0).random((n, n), dtype=np.float32) / n)
    between, result = (device.empty((n, n), np.float32) for _ in range(2))
    launch_shape = LaunchShape((n // TILE, n // TILE, 1), (TILE, TILE, 1))

    def step(x):
        device.launch(MATMUL, launch_shape, (x, weights, between, np.int32(n)))
        device.launch(MATMUL, launch_shape, (between, weights, result, np.int32(n)))
        return result

    return step


def inputs(shape, seed):
    values = np.random.default_rng(seed).random((shape, shape), dtype=np.float32)
    return (current_device().array(values),)
