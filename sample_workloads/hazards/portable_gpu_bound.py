"""H113 on the device port: a net at batch 96, whose kernels are longer than their launches.

Source: fangwei123456/spikingjelly#740.
Mechanism: at batch 8 the GPU waits for the host, and a graph gains a factor. At batch 96 the kernels hide
their launches, and there is nothing left to gain: ``portable_control_batch_8`` is the same net.
What fools a naive gate: it measures at one size and takes the gain for all of them.

Portable: runs on a CUDA GPU and on the simulated device.
"""

from long_kernel import net, random_batch

HAZARD = "H113"
KIND = "K13"
EXPECTED = ("NO-GO",)
REASON = ("no-gain",)

SHAPES = {"b96": (96, 32)}


def build(shape):
    return net(*shape)


def inputs(shape, seed):
    return random_batch(*shape, seed)
