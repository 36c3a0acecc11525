"""H01 on the device port: a step size that is a number of the host, and a schedule that changes it.

Source: pytorch/pytorch#106802, tracel-ai/burn#5779.
Mechanism: a kernel takes its scalar arguments by value. A graph keeps the step size of its capture, and the
schedule, which only writes a Python number, no longer has any effect.
What fools a naive gate: the first replay uses the same step size as the normal path and is right.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np
from short_kernels import ADD_SCALED, chain, empty, launch, on_device, random_input

from cudagraph_gate.device import current_device

HAZARD = "H01"
KIND = "K1"
EXPECTED = ("NO-GO",)
REASON = ("frozen-host-state",)

SHAPES = {"n4096": 4096}
FIRST_RATE, DECAY = 0.5, 0.9
SCHEDULE = {"rate": FIRST_RATE}
STATE = {}


def build(shape):
    device, gradient = current_device(), empty(shape)
    weights = STATE["weights"] = on_device(np.ones(shape))

    def step(x):
        device.copy(gradient, x)
        chain(gradient)
        launch(ADD_SCALED, weights, gradient, np.float32(-SCHEDULE["rate"]))
        return gradient

    return step


def between(i):
    SCHEDULE["rate"] = FIRST_RATE * DECAY ** (i % 10 + 1)


def inputs(shape, seed):
    return (random_input(shape, seed),)


def state():
    return STATE
