"""A mixture of four experts that asks the host which rows go where. Expected: NO-GO, it can't be captured.

``nonzero`` waits for the GPU, because the host must know how many rows an expert gets before it can launch
anything for them. The trial names that call and line, and proves that the normal path still works after the
failed capture.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

SHAPES = {"r64": 64}
WIDTH = 256


def build(shape):
    torch.manual_seed(0)
    gate = torch.randn(WIDTH, 4, device="cuda")
    experts = torch.randn(4, WIDTH, WIDTH, device="cuda") / 16

    @torch.no_grad()
    def step(rows):
        choice = (rows @ gate).argmax(dim=1)
        result = torch.zeros_like(rows)
        for number, expert in enumerate(experts):
            chosen = (choice == number).nonzero().squeeze(1)
            result[chosen] = rows[chosen] @ expert
        return result

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, WIDTH, device="cuda", generator=generator),)
