"""H63 on the device port: a loader's thread pins memory while the application captures in global mode.

Source: LibreYOLO/libreyolo#681, pytorch/pytorch#146924.
Mechanism: a capture in global mode prohibits unsafe calls to every thread of the process. The loader's
allocation of page-locked memory is one: it fails, which ends the loader, and it invalidates the capture.
What fools a naive gate: no loader runs in its test; in production it fails at random.

Portable: runs on a CUDA GPU and on the simulated device.
"""

from loader_thread import Loader
from short_kernels import chain, empty, random_input

from cudagraph_gate.device import current_device

HAZARD = "H63"
KIND = "K7"
EXPECTED = ("NO-GO",)
REASON = ("capture-interference",)

SHAPES = {"n4096": 4096}
LOADER = {}


def build(shape):
    device, out = current_device(), empty(shape)
    LOADER["thread"] = Loader(4 * shape)

    def step(x):
        device.copy(out, x)
        chain(out)
        return out

    return step


def build_graphed(shape):
    device, x, out, loader = current_device(), empty(shape), empty(shape), LOADER["thread"]
    stream = device.create_stream()
    with device.use_stream(stream):
        device.begin_capture(stream, "global")
        try:
            device.copy(out, x)
            loader.next_batch()  # for the first request, while the graph is made
            chain(out)
        finally:
            graph = device.end_capture(stream)
    executable = graph.instantiate()

    def graphed(fresh):
        device.copy(x, fresh)
        executable.launch(device.current_stream())
        return out

    return graphed


def inputs(shape, seed):
    return (random_input(shape, seed),)
