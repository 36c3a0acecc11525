"""Launch-bound: a chain of 64 kernels, each far shorter than its launch. A graph is worth it.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np

from cudagraph_gate.device import Kernel, LaunchShape, current_device

SHAPES = {"n4096": 4096, "n16384": 16384}
KERNELS = 64
THREADS = 256


def _scale_add(shape, x, factor, offset, n):
    x[:n] = x[:n] * factor + offset


SCALE_ADD = Kernel(
    name="scale_add",
    source="""
extern "C" __global__ void scale_add(float* x, float factor, float offset, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = __fmaf_rn(x[i], factor, offset);
}""",
    reference=_scale_add,
    cost_ns=1_500,
)


def build(shape):
    device = current_device()
    n = shape
    work = device.empty((n,), np.float32)
    launch_shape = LaunchShape(((n + THREADS - 1) // THREADS, 1, 1), (THREADS, 1, 1))

    def step(x):
        device.copy(work, x)
        for k in range(KERNELS):
            factor, offset = np.float32(1 - 1 / KERNELS), np.float32(k / KERNELS)
            device.launch(SCALE_ADD, launch_shape, (work, factor, offset, np.int32(n)))
        return work

    return step


def inputs(shape, seed):
    values = np.random.default_rng(seed).random(shape, dtype=np.float32)
    return (current_device().array(values),)
