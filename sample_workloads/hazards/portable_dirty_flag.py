"""A table that the next call loads anew once a flag says that it is old.

Source: the mechanism of sgl-project/sglang#27140 and pytorch/rl#3003 without any array that moves.
Mechanism: between requests the host marks the table as old; the step's Python sees the flag and loads it.
Replays run no Python: the flag stays set, and the table old.
What fools a naive gate: it calls the normal path before each comparison, which loads the table for both.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np
from short_kernels import MULTIPLY, chain, empty, launch, on_device, random_input

from cudagraph_gate.device import current_device

HAZARD = "H10"
KIND = "K1"
EXPECTED = ("NO-GO",)
REASON = ("frozen-host-state", "unstable-address")

SHAPES = {"n4096": 4096}
EVERY = 40
CONFIG = {"temperature": 1.0, "old": True}


def build(shape):
    device, out, table = current_device(), empty(shape), on_device(np.ones(shape))
    host = np.empty(shape, np.float32)

    def step(x):
        if CONFIG["old"]:
            host[:] = CONFIG["temperature"]
            device.copy(table, host)
            CONFIG["old"] = False
        device.copy(out, x)
        chain(out)
        launch(MULTIPLY, out, table)
        return out

    return step


def between(i):
    if i % EVERY == EVERY - 1:
        CONFIG.update(temperature=1.0 + 0.25 * (i // EVERY + 1), old=True)


def inputs(shape, seed):
    return (random_input(shape, seed),)
