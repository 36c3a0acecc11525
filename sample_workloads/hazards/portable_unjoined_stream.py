"""H57 on the device port: a side stream that is forked and never joined.

Source: pytorch/pytorch#185546, deepseek-ai/DeepEP#62.
Mechanism: the side stream waits for the main one, which takes it into the capture, and works on; nothing
waits for its end. Outside a capture whoever synchronises the device hides that; a capture can't be ended.
What fools a naive gate: it shows a bare error code, without the stream or the wait that is missing.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np
from short_kernels import ADD, chain, empty, launch, on_device, random_input

from cudagraph_gate.device import current_device

HAZARD = "H57"
KIND = "K6"
EXPECTED = ("NO-GO",)
REASON = ("unjoined-stream",)

SHAPES = {"n4096": 4096}


def build(shape):
    device, out = current_device(), empty(shape)
    seen, side = on_device(np.zeros(shape)), current_device().create_stream()

    def step(x):
        side.wait(device.current_stream().record())
        launch(ADD, seen, x, stream=side)
        device.copy(out, x)
        chain(out)
        return out

    return step


def inputs(shape, seed):
    return (random_input(shape, seed),)
