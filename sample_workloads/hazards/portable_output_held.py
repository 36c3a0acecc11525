"""H72 on the device port: an output that is held while later requests are served.

Source: pytorch/pytorch#148439, pytorch/pytorch#170604, pytorch/pytorch#144386.
Mechanism: the normal path returns a new array for each request. A graph writes its output to the same memory
at each replay, so an output that is still held then holds another request's values.
What fools a naive gate: it compares each output right after its request.

Portable: runs on a CUDA GPU and on the simulated device.
"""

from short_kernels import chain, empty, random_input

from cudagraph_gate.device import current_device

HAZARD = "H72"
KIND = "K8"
EXPECTED = ("CONDITIONAL",)
REASON = None
CONDITION = "copy (clone) an output"

SHAPES = {"n4096": 4096}
ARENA = {}


def build(shape):
    device = current_device()
    outputs = [empty(shape) for _ in range(8)]  # the normal path keeps the last eight apart
    turn = ARENA["turn"] = [0]

    def step(x):
        turn[0] = (turn[0] + 1) % len(outputs)
        out = outputs[turn[0]]
        device.copy(out, x)
        chain(out)
        return out

    return step


def inputs(shape, seed):
    return (random_input(shape, seed),)
