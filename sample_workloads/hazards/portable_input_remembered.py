"""A graph path that leaves the copy of its input out where it has seen the array before.

Source: the kind of ggml-org/llama.cpp#20315: an input is known by its address, not by its values.
Mechanism: an application that refills one buffer for every request passes the same array with other values.
What fools a naive gate: each of its requests comes in an array of its own.

Portable: runs on a CUDA GPU and on the simulated device.
"""

from short_kernels import chain, empty, random_input

from cudagraph_gate.device import current_device

HAZARD = "H102"
KIND = "K2"
EXPECTED = ("NO-GO",)
REASON = ("unstable-address",)

SHAPES = {"n4096": 4096}


def build(shape):
    device, out = current_device(), empty(shape)

    def step(x):
        device.copy(out, x)
        chain(out)
        return out

    return step


def build_graphed(shape):
    device, static, out = current_device(), empty(shape), empty(shape)
    stream, bound = device.create_stream(), []
    with device.use_stream(stream):
        device.begin_capture(stream)
        try:
            device.copy(out, static)
            chain(out)
        finally:
            executable = device.end_capture(stream).instantiate()

    def graphed(x):
        if not any(x is known for known in bound):
            device.copy(static, x)
            bound[:] = [x]
        executable.launch(device.current_stream())
        return out

    return graphed


def inputs(shape, seed):
    return (random_input(shape, seed),)
