"""A graph that pays for the step and not for the request: 64 short kernels after a look-up of 20 ms.

``request`` is what a user waits for: features are fetched from another service, the step scores them, the
best score is returned. Expected: the step gains, the whole request does not, so the verdict is bound to that.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np

from cudagraph_gate.device import Kernel, LaunchShape, current_device

SHAPES = {"n4096": 4096}
KERNELS = 64
THREADS = 256
LOOK_UP_NS = 20_000_000


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


def request(step, shape, seed):
    device = current_device()
    device.wait_until(device.clock_ns() + LOOK_UP_NS)  # stands for another service's answer
    scores = step(*inputs(shape, seed))
    return float(scores.to_host().max())


def version():
    return "weights of 2024-05"
