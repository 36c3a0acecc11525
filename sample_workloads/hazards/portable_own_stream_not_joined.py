"""A graph path that launches on a stream of its own, which the caller's stream never waits for.

Source: the kind of pytorch/pytorch#185546: a side stream that nobody joins.
Mechanism: the caller waits for its current stream and reads outputs that are still being written.
What fools a naive gate: it synchronises the whole device, and the time of a request is that of the launch.

Portable: runs on a CUDA GPU and on the simulated device.
"""

from short_kernels import chain, empty, random_input

from cudagraph_gate.device import current_device

HAZARD = "H57"
KIND = "K8"
EXPECTED = ("NO-GO",)
REASON = ("replay-race", "wrong-output")  # on a GPU outputs are read too early

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
    stream = device.create_stream()
    with device.use_stream(stream):
        device.begin_capture(stream)
        try:
            device.copy(out, static)
            chain(out)
        finally:
            executable = device.end_capture(stream).instantiate()

    def graphed(x):
        stream.wait(device.current_stream().record())
        device.copy(static, x, stream)
        executable.launch(stream)
        return out  # the caller's stream was to wait for ``stream`` here

    return graphed


def inputs(shape, seed):
    return (random_input(shape, seed),)
