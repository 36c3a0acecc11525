"""Two products of 8192x8192 matrices in bfloat16: bound by the GPU."""

import torch

SHAPES = {"n8192": 8192}


def build(shape):
    torch.manual_seed(0)
    weights = torch.randn(shape, shape, device="cuda", dtype=torch.bfloat16) / 90

    @torch.no_grad()
    def step(matrix):
        return (matrix @ weights) @ weights

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, shape, device="cuda", dtype=torch.bfloat16, generator=generator),)
