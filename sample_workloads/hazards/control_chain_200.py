"""Control: 200 elementwise kernels in place. A graph is worth it, and must not be refused.

The step changes its input and returns it, as the normal path does.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "control"
KIND = "K13"
EXPECTED = ("GO", "CONDITIONAL", "INCONCLUSIVE")
REASON = None

SHAPES = {"n4096": 4096}


def build(shape):
    @torch.no_grad()
    def step(x):
        for _ in range(100):
            x.mul_(0.99).add_(0.01)
        return x

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, device="cuda", generator=generator),)
