"""H79: a dropout of one's own, whose seed is a number that the host counts up.

Source: pytorch/pytorch#84614.
Mechanism: the kernel takes seed and offset by value: every replay drops the same elements.
What fools a naive gate: it compares with dropout off, or only the moments of one output.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch
import triton
import triton.language as tl

HAZARD = "H79"
KIND = "K9"
EXPECTED = ("NO-GO",)
REASON = ("rng",)

SHAPES = {"n4096": 4096}


@triton.jit
def dropout_kernel(x, out, n, seed, BLOCK: tl.constexpr):  # noqa: N803
    """Drops half of the elements."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    kept = tl.rand(seed, offsets) > 0.5
    values = tl.load(x + offsets, mask=inside)
    tl.store(out + offsets, tl.where(kept, values * 2, 0.0), mask=inside)


def build(shape):
    out = torch.zeros(shape, device="cuda")
    calls = [0]

    @torch.no_grad()
    def step(x):
        calls[0] += 1
        for _ in range(8):
            x = torch.tanh(x + 0.1)
        dropout_kernel[(triton.cdiv(shape, 256),)](x, out, shape, 1234 + calls[0], BLOCK=256)
        return out

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, device="cuda", generator=generator),)
