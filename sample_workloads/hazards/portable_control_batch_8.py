"""Control: the net of ``portable_gpu_bound`` at batch 8, where a graph is worth it.

Source: fangwei123456/spikingjelly#740.

Portable: runs on a CUDA GPU and on the simulated device.
"""

from long_kernel import net, random_batch

HAZARD = "control"
KIND = "K13"
EXPECTED = ("GO",)
REASON = None

SHAPES = {"b8": (8, 32)}


def build(shape):
    return net(*shape)


def inputs(shape, seed):
    return random_batch(*shape, seed)
