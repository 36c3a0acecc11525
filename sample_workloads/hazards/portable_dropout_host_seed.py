"""H79 on the device port: dropout whose seed and offset are numbers of the host.

Source: pytorch/pytorch#84614.
Mechanism: a home-made dropout draws its mask in the kernel, from a seed and a counter that Python counts up.
Both are arguments by value: every replay draws the mask of the capture again.
What fools a naive gate: it compares with dropout off, or once, with the same numbers.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np
from short_kernels import chain, empty, launch, random_input

from cudagraph_gate.device import Kernel, current_device

HAZARD = "H79"
KIND = "K9"
EXPECTED = ("NO-GO",)
REASON = ("rng",)

SHAPES = {"n4096": 4096}
SEED = 1234


def _mixed(h):
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x7FEB352D)
    h = (h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B)
    return h ^ (h >> np.uint32(16))


def _dropout(shape, x, seed, offset, n):
    with np.errstate(over="ignore"):
        h = _mixed(
            np.arange(n, dtype=np.uint32) + np.uint32(offset) * np.uint32(0x9E3779B9) + np.uint32(seed)
        )
    x[:n] = np.where(h & np.uint32(1), x[:n] * 2, 0)


DROPOUT = Kernel(
    name="dropout",
    source="""
extern "C" __global__ void dropout(float* x, unsigned seed, unsigned offset, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned h = i + offset * 0x9E3779B9u + seed;
    h = (h ^ (h >> 16)) * 0x7FEB352Du;
    h = (h ^ (h >> 15)) * 0x846CA68Bu;
    h = h ^ (h >> 16);
    x[i] = (h & 1) ? x[i] * 2 : 0;
}""",
    reference=_dropout,
    cost_ns=1_500,
)


def build(shape):
    device, out, drawn = current_device(), empty(shape), [0]

    def step(x):
        drawn[0] += 1
        device.copy(out, x)
        chain(out)
        launch(DROPOUT, out, np.uint32(SEED), np.uint32(drawn[0]))
        return out

    return step


def inputs(shape, seed):
    return (random_input(shape, seed),)
