"""The length of a request, which the host keeps beside its tensors and the step gives to a kernel by value.

Source: the kind of pytorch/pytorch#106802: scalars of the host become arguments by value.
Mechanism: the scheduler writes the length of the request that it has just made; a graph keeps its first one.
What fools a naive gate: it makes all inputs first, so that both paths find the last one's length.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np
from short_kernels import SCALE_ADD, chain, empty, launch, random_input

from cudagraph_gate.device import current_device

HAZARD = "H01"
KIND = "K1"
EXPECTED = ("NO-GO",)
REASON = ("frozen-host-state",)

SHAPES = {"n4096": 4096}
LENGTHS = 77
REQUEST = {"length": 1}


def build(shape):
    device, out = current_device(), empty(shape)

    def step(x):
        device.copy(out, x)
        chain(out)
        launch(SCALE_ADD, out, np.float32(1 / REQUEST["length"]), np.float32(0))
        return out

    return step


def inputs(shape, seed):
    REQUEST["length"] = 1 + seed % LENGTHS
    return (random_input(shape, seed),)
