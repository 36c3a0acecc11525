"""H142 on the device port: an exception between begin and end leaves the stream capturing.

Source: pytorch/TensorRT#4662.
Mechanism: the application begins a capture and ends it, with nothing that ends it when something raises in
between. The stream goes on capturing, and later work of the normal path is refused.
What fools a naive gate: the exception itself is harmless; the calls that fail come later and elsewhere.

Portable: runs on a CUDA GPU and on the simulated device.
"""

from short_kernels import chain, empty, random_input

from cudagraph_gate.device import current_device

HAZARD = "H142"
KIND = "K16"
EXPECTED = ("NO-GO",)
REASON = ("capture-illegal",)

SHAPES = {"n4096": 4096}
LIMIT = 1024


def build(shape):
    device, out = current_device(), empty(shape)

    def step(x):
        device.copy(out, x)
        chain(out)
        return out

    return step


def build_graphed(shape):
    device, x, out = current_device(), empty(shape), empty(shape)
    stream = device.create_stream()
    with device.use_stream(stream):
        device.begin_capture(stream)
        device.copy(out, x)
        if shape > LIMIT:
            raise ValueError(f"{shape} elements, the largest is {LIMIT}")  # the line to blame
        chain(out)
        executable = device.end_capture(stream).instantiate()

    def graphed(fresh):
        device.copy(x, fresh)
        executable.launch(device.current_stream())
        return out

    return graphed


def inputs(shape, seed):
    return (random_input(shape, seed),)
