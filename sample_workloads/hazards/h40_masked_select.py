"""H40: a step that selects by a mask: how much is left, only the GPU knows.

Source: pytorch/pytorch#92684.
Mechanism: ``masked_select`` must tell the host the size of its result, so it synchronises, which no
capture permits.
What fools a naive gate: nothing; but it ends with a traceback instead of a verdict, or with a broken
normal path.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "H40"
KIND = "K5"
EXPECTED = ("NO-GO",)
REASON = ("capture-illegal", "churn")

SHAPES = {"n4096": 4096}


def build(shape):
    @torch.no_grad()
    def step(x):
        for _ in range(8):
            x = torch.tanh(x + 0.1)
        return x.masked_select(x > 0).sum()

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, device="cuda", generator=generator),)
