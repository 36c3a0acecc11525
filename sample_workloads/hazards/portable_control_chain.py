"""Control: a launch-bound chain that changes its input in place and returns it. A graph is worth it.

The same values are returned as by the normal path, so a gate that calls every change of an input a fault is
too strict. CONDITIONAL is right as well: the normal path returns the caller's own array, of which there is
one for each request, and the graph path returns its only one.

Portable: runs on a CUDA GPU and on the simulated device.
"""

from short_kernels import chain, random_input

HAZARD = "control"
KIND = "K13"
EXPECTED = ("GO", "CONDITIONAL")
REASON = None

SHAPES = {"n4096": 4096}


def build(shape):
    def step(x):
        chain(x, 64)
        return x

    return step


def inputs(shape, seed):
    return (random_input(shape, seed),)
