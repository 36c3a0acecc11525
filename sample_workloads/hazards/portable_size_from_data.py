"""H40 on the device port: how much is computed depends on a value that the host reads in the middle.

Source: pytorch/pytorch#92684.
Mechanism: the host must wait for the GPU to learn a size (``masked_select``, ``nonzero``, ``.item()``). A
capture runs nothing, so there is nothing to wait for, and the driver refuses the call.
What fools a naive gate: instead of an answer it ends with the driver's error, without the call and its line.

Portable: runs on a CUDA GPU and on the simulated device.
"""

from short_kernels import chain, empty, random_input

from cudagraph_gate.device import current_device

HAZARD = "H40"
KIND = "K5"
EXPECTED = ("NO-GO",)
REASON = ("capture-illegal",)

SHAPES = {"n4096": 4096}


def build(shape):
    device, out = current_device(), empty(shape)

    def step(x):
        device.copy(out, x)
        chain(out)
        if (out.to_host() > 0.5).sum() > shape // 2:  # the line to blame
            chain(out, 4)
        return out

    return step


def inputs(shape, seed):
    return (random_input(shape, seed),)
