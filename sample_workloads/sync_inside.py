"""A step that looks at a result on the host in its middle: it can't be captured.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np

from cudagraph_gate.device import Kernel, LaunchShape, current_device

SHAPES = {"n1024": 1024}


def _halve(shape, x, n):
    x[:n] *= np.float32(0.5)


HALVE = Kernel(
    name="halve",
    source="""
extern "C" __global__ void halve(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 0.5f;
}""",
    reference=_halve,
    cost_ns=1_500,
)


def build(shape):
    device = current_device()
    n = shape
    work = device.empty((n,), np.float32)
    launch_shape = LaunchShape(((n + 255) // 256, 1, 1), (256, 1, 1))

    def step(x):
        device.copy(work, x)
        for _ in range(16):
            device.launch(HALVE, launch_shape, (work, np.int32(n)))
        if work.to_host().max() < 1.0:  # waits for the GPU: the host decides what runs next
            device.launch(HALVE, launch_shape, (work, np.int32(n)))
        return work

    return step


def inputs(shape, seed):
    values = np.random.default_rng(seed).random(shape, dtype=np.float32)
    return (current_device().array(values),)
