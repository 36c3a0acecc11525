"""H10 on the device port: the buffer of a recurrent state is given up and made again between requests.

Source: sgl-project/sglang#27140, pytorch/rl#3003, vllm-project/vllm-ascend#7473.
Mechanism: weights are loaded in place and keep their address, but the state buffer is put away on the host
while the memory is lent to others, and comes back elsewhere. The graph still updates the old memory.
What fools a naive gate: nothing is put away in its test, and the first replays are right.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np
from short_kernels import ADD_SCALED, SCALE_ADD, chain, empty, launch, on_device, random_input

from cudagraph_gate.device import current_device

HAZARD = "H10"
KIND = "K2"
EXPECTED = ("NO-GO",)
REASON = ("unstable-address", "lifetime")  # the latter where it comes back to the same address by luck

SHAPES = {"n4096": 4096}
EVERY = 3
MODEL = {}


def build(shape):
    device, out = current_device(), empty(shape)
    MODEL["hidden"] = on_device(np.zeros(shape))

    def step(x):
        hidden = MODEL["hidden"]
        device.copy(out, x)
        chain(out)
        launch(SCALE_ADD, hidden, np.float32(0.5), np.float32(0))
        launch(ADD_SCALED, hidden, out, np.float32(0.1))
        device.copy(out, hidden)
        return out

    return step


def between(i):
    if i % EVERY == EVERY - 1:
        put_away = MODEL.pop("hidden").to_host()
        borrowed = empty(len(put_away))  # what the memory was lent for, and lives on
        MODEL["hidden"], MODEL["borrowed"] = on_device(put_away), borrowed


def inputs(shape, seed):
    return (random_input(shape, seed),)


def state():
    return {"hidden": MODEL["hidden"]}
