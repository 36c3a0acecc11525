"""A tiny product on a corner of a 512 MB input: copying the input costs far more than the step.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

SHAPES = {"n16384": 16384}
CORNER = 64


def build(shape):
    torch.manual_seed(0)
    weights = torch.randn(CORNER, CORNER, device="cuda", dtype=torch.half)

    @torch.no_grad()
    def step(table):
        return torch.relu(table[:CORNER, :CORNER] @ weights)

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, shape, device="cuda", dtype=torch.half, generator=generator),)
