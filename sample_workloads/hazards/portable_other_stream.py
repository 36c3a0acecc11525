"""H32 on the device port: a kernel that goes to a stream of its own, where no capture sees it.

Source: pytorch/pytorch#114048, mirage-project/mirage#207.
Mechanism: statistics run on a stream of their own, so as not to hold up the request. While the step is
captured that kernel runs once, and is in no replay.
What fools a naive gate: the step's output is right; what the other stream computes stays as it was, and
every request gets faster.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np
from short_kernels import ADD, chain, empty, launch, on_device, random_input

from cudagraph_gate.device import current_device

HAZARD = "H32"
KIND = "K4"
EXPECTED = ("NO-GO",)
REASON = ("escaped-work",)

SHAPES = {"n4096": 4096}
STATE = {}


def build(shape):
    device, out = current_device(), empty(shape)
    seen = STATE["seen"] = on_device(np.zeros(shape))
    statistics = device.create_stream()

    def step(x):
        launch(ADD, seen, x, stream=statistics)
        device.copy(out, x)
        chain(out)
        return out

    return step


def inputs(shape, seed):
    return (random_input(shape, seed),)


def state():
    return STATE
