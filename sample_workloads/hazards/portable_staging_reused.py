"""H29 on the device port: a copy from host memory that belongs to somebody else by the time of the replay.

Source: NVIDIA/cuda-python#166.
Mechanism: a captured copy keeps the address of its host source and reads it at each replay. The step fills a
staging buffer and copies from it; afterwards the application uses the buffer for other things, as it may
once the copy is over. (The source object of the public report was collected; on this port the memory is
reused instead, so that both devices can show it.)
What fools a naive gate: right after the capture the staging buffer still holds what was copied.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np
from short_kernels import MULTIPLY, chain, empty, launch, random_input

from cudagraph_gate.device import current_device

HAZARD = "H29"
KIND = "K3"
EXPECTED = ("NO-GO",)
REASON = ("lifetime",)

SHAPES = {"n4096": 4096}
STAGING = {}


def build(shape):
    device, out, table = current_device(), empty(shape), empty(shape)
    staging = STAGING["buffer"] = np.zeros(shape, np.float32)

    def step(x):
        staging[:] = np.linspace(0.5, 1.5, shape)
        device.copy(table, staging)
        device.copy(out, x)
        chain(out)
        launch(MULTIPLY, out, table)
        return out

    return step


def between(i):
    STAGING["buffer"][:] = i  # the next request is decoded here


def inputs(shape, seed):
    return (random_input(shape, seed),)
