"""H80 on the device port: a recurrent state that every run moves on, warm-up and capture too.

Source: microsoft/onnxruntime#32243.
Mechanism: whoever warms a step up and captures it runs it, and each run changes the state. Taken into use
then, the first real request starts from a state of which the application knows nothing.
The right answer is GO, or CONDITIONAL on one request at a time, from a tool that puts the state back
before it compares and when it hands over.
What fools a naive gate: it compares after the warm-up, when both paths have moved on alike.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np
from short_kernels import ADD_SCALED, SCALE_ADD, chain, empty, launch, on_device, random_input

from cudagraph_gate.device import current_device

HAZARD = "H80"
KIND = "K9"
EXPECTED = ("GO", "CONDITIONAL")
REASON = None

SHAPES = {"n4096": 4096}
STATE = {}


def build(shape):
    device, out = current_device(), empty(shape)
    hidden = STATE["hidden"] = on_device(np.ones(shape))

    def step(x):
        device.copy(out, x)
        chain(out)
        launch(SCALE_ADD, hidden, np.float32(0.9), np.float32(0))
        launch(ADD_SCALED, hidden, out, np.float32(0.1))
        return hidden

    return step


def inputs(shape, seed):
    return (random_input(shape, seed),)


def state():
    return STATE
