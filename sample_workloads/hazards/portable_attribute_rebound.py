"""H07 on the device port: a side output that lies in an attribute, which each call binds anew.

Source: pytorch/pytorch#114844.
Mechanism: binding an attribute is Python, and a replay runs none: it refreshes the memory of the captured
call, while the attribute still names whatever was bound last. The application takes the side output away
after it has read it, as is usual, and then reads old values for ever.
What fools a naive gate: it compares what the step returns, and that is right.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np
from short_kernels import SCALE_ADD, chain, empty, launch, on_device, random_input

from cudagraph_gate.device import current_device

HAZARD = "H07"
KIND = "K1"
EXPECTED = ("NO-GO",)
REASON = ("frozen-host-state",)

SHAPES = {"n4096": 4096}


class Model:
    """Keeps the features of the last request for whoever asks."""

    def __init__(self, n):
        self.out = empty(n)
        self.features = self.work = empty(n)
        self.nothing = on_device(np.zeros(n))

    def forward(self, x):
        """Features, and what follows from them."""
        device, features = current_device(), self.work
        device.copy(features, x)
        launch(SCALE_ADD, features, np.float32(2), np.float32(1))
        self.features = features
        device.copy(self.out, features)
        chain(self.out)
        return self.out


MODELS = {}


def build(shape):
    MODELS["last"] = Model(shape)
    return MODELS["last"].forward


def between(i):
    model = MODELS["last"]
    model.features = model.nothing  # read and taken away


def inputs(shape, seed):
    return (random_input(shape, seed),)


def state():
    return {"features": MODELS["last"].features}
