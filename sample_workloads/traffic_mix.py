"""A request mix at recorded arrival times: three batch sizes of one launch-bound step, most requests small.

The arrivals come in bursts (``traffic_mix.csv``), so that requests queue: what the graph saves each of them
also shortens the queue. Rung 6 replays them at their own rate and at several loads up to saturation.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np

from cudagraph_gate.device import Kernel, LaunchShape, current_device

SHAPES = {"b1": 4_096, "b4": 16_384, "b16": 65_536}
TRAFFIC = "traffic_mix.csv"
KERNELS = 48
THREADS = 256


def _blend(shape, x, weight, n):
    x[:n] = x[:n] * weight + (1 - weight)


BLEND = Kernel(
    name="blend",
    source="""
extern "C" __global__ void blend(float* x, float weight, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = __fmaf_rn(x[i], weight, 1.0f - weight);
}""",
    reference=_blend,
    cost_ns=lambda shape, x, weight, n: 1_200 + n // 64,
)


def build(shape):
    device, n = current_device(), shape
    work = device.empty((n,), np.float32)
    grid = LaunchShape(((n + THREADS - 1) // THREADS, 1, 1), (THREADS, 1, 1))

    def step(x):
        device.copy(work, x)
        for k in range(KERNELS):
            device.launch(BLEND, grid, (work, np.float32(1 - 1 / (k + 2)), np.int32(n)))
        return work

    return step


def inputs(shape, seed):
    values = np.random.default_rng(seed).random(shape, dtype=np.float32)
    return (current_device().array(values),)
