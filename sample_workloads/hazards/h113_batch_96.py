"""H113: the same network at batch 96: GPU-bound, a graph gains nothing.

Source: fangwei123456/spikingjelly#740.
Mechanism: launch gaps vanish when kernels are long; what holds at batch 8 says nothing of batch 96.
What fools a naive gate: it averages, or extrapolates from the small batch.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "H113"
KIND = "K13"
EXPECTED = ("NO-GO",)
REASON = ("no-gain",)

SHAPES = {"b96": 96}
CHANNELS, SIZE, STEPS = 128, 56, 8


def build(shape):
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1).cuda().half()

    @torch.no_grad()
    def step(x):
        membrane = torch.zeros_like(x)
        for _ in range(STEPS):
            membrane = membrane * 0.5 + layer(x)
            x = (membrane > 1).half()
        return x

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    values = torch.randn(shape, CHANNELS, SIZE, SIZE, device="cuda", generator=generator)
    return (values.half(),)
