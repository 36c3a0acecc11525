"""H18 on the device port: an array that a graph reads is local to the function that captured it.

Source: pytorch/pytorch#174649, pytorch/pytorch#170646, pytorch/pytorch#139355.
Mechanism: a graph holds bare addresses and keeps nothing alive. When ``capture`` returns, its table is freed;
the next allocation of that size gets the memory, and replays read what is written there.
What fools a naive gate: freed memory keeps its contents until somebody else allocates, and nobody does in its
test.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np
from short_kernels import MULTIPLY, chain, empty, launch, on_device, random_input

from cudagraph_gate.device import current_device

HAZARD = "H18"
KIND = "K3"
EXPECTED = ("NO-GO",)
REASON = ("lifetime",)

SHAPES = {"n4096": 4096}


def table_of(n):
    return on_device(np.linspace(0.5, 1.5, n))


def build(shape):
    device, out, table = current_device(), empty(shape), table_of(shape)

    def step(x):
        device.copy(out, x)
        chain(out)
        launch(MULTIPLY, out, table)
        return out

    return step


def capture(x, out):
    device, table = current_device(), table_of(x.shape[0])
    stream = device.create_stream()
    with device.use_stream(stream):
        device.begin_capture(stream)
        try:
            device.copy(out, x)
            chain(out)
            launch(MULTIPLY, out, table)
        finally:
            graph = device.end_capture(stream)
    return graph.instantiate()  # the table goes with this function's frame


def build_graphed(shape):
    device, x, out = current_device(), empty(shape), empty(shape)
    executable = capture(x, out)

    def graphed(fresh):
        device.copy(x, fresh)
        executable.launch(device.current_stream())
        return out

    return graphed


def inputs(shape, seed):
    return (random_input(shape, seed),)
