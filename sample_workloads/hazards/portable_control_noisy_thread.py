"""Control: the same loader's thread while the step is captured in thread-local mode, as ``cgate`` does.

Source: the remedy of LibreYOLO/libreyolo#681 and pytorch/pytorch#146924.
A thread-local capture prohibits unsafe calls to its own thread only. The loader goes on, ``between`` says so,
and a gate that refuses this workload is too strict.

Portable: runs on a CUDA GPU and on the simulated device.
"""

from loader_thread import Loader
from short_kernels import chain, empty, random_input

from cudagraph_gate.device import current_device

HAZARD = "control"
KIND = "K7"
EXPECTED = ("GO",)
REASON = None

SHAPES = {"n4096": 4096}
LOADER = {}


def build(shape):
    device, out = current_device(), empty(shape)
    LOADER["thread"] = Loader(4 * shape, ahead=True)

    def step(x):
        device.copy(out, x)
        chain(out)
        return out

    return step


def between(i):
    LOADER["thread"].require_alive()


def inputs(shape, seed):
    return (random_input(shape, seed),)
