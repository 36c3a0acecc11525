"""H01's kind on the device port: a counter of calls that the step keeps in Python, and uses on the device.

Source: pytorch/pytorch#106802 (a schedule that counts steps), tracel-ai/burn#5779.
Mechanism: the step counts its own calls and gives a bias correction of the count to a kernel by value. A
replay runs no Python, so the count stands still and every replay corrects as the captured call did.
What fools a naive gate: it compares one replay with one call that has the same count. The count also goes on
from run to run of the normal path, which looks like noise.

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
BETA = 0.999


class Average:
    """An average with the bias correction of its start, as optimisers keep it."""

    def __init__(self, n):
        self.out, self.calls = empty(n), 0

    def __call__(self, x):
        """One request."""
        self.calls += 1
        current_device().copy(self.out, x)
        chain(self.out)
        launch(SCALE_ADD, self.out, np.float32(1 / (1 - BETA**self.calls)), np.float32(0))
        return self.out


def build(shape):
    return Average(shape)


def inputs(shape, seed):
    return (random_input(shape, seed),)
