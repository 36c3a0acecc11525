"""H36 on the device port: the model stayed on the CPU, so that there is nothing to graph.

Source: pytorch/pytorch#88754, state-spaces/mamba#232.
Mechanism: a misspelt setting leaves the model in host memory. Nothing of it reaches the stream; the captured
graph is empty, and the result beside the request is the one of the capture for ever.
What fools a naive gate: replaying nothing takes no time, which looks like a speed-up without end.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np
from short_kernels import random_input

from cudagraph_gate.device import current_device

HAZARD = "H36"
KIND = "K4"
EXPECTED = ("NO-GO",)
REASON = ("escaped-work",)

SHAPES = {"n4096": 4096}
SETTINGS = {"devise": "gpu"}


def build(shape):
    candidates = np.linspace(0, 1, shape, dtype=np.float32)
    if SETTINGS.get("device") == "gpu":
        candidates = current_device().array(candidates)

    def step(x):
        scores = candidates
        for _ in range(24):
            scores = scores * np.float32(0.9) + np.float32(0.1)
        return {"request": x, "scores": scores}

    return step


def inputs(shape, seed):
    return (random_input(shape, seed),)
