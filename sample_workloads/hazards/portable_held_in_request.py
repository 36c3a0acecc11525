"""H72's kind on the device port: a request that calls the step twice and uses both outputs at its end.

Source: pytorch/pytorch#148439, pytorch/pytorch#144386.
Mechanism: as in ``portable_output_held``, but here the application itself is known to hold the first output
while the second is computed: by a graph both are the same memory, and their difference is nought.
What fools a naive gate: each call of the step is right when it is looked at alone.

Portable: runs on a CUDA GPU and on the simulated device.
"""

from short_kernels import chain, empty, random_input

from cudagraph_gate.device import current_device

HAZARD = "H72"
KIND = "K8"
EXPECTED = ("NO-GO",)
REASON = ("lifetime", "replay-race")

SHAPES = {"n4096": 4096}


def build(shape):
    device = current_device()
    outputs = [empty(shape) for _ in range(8)]
    turn = [0]

    def step(x):
        turn[0] = (turn[0] + 1) % len(outputs)
        out = outputs[turn[0]]
        device.copy(out, x)
        chain(out)
        return out

    return step


def request(step, shape, seed):
    query, document = step(*inputs(shape, seed)), step(*inputs(shape, seed + 1))
    return float(abs(query.to_host() - document.to_host()).max())


def inputs(shape, seed):
    return (random_input(shape, seed),)
