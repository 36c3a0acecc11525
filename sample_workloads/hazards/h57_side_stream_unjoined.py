"""H57: work on a side stream for which the step's own stream never waits.

Source: pytorch/pytorch#185546, deepseek-ai/DeepEP#62.
Mechanism: the side stream has joined the capture by waiting for it; at its end it must have been joined
in turn.
What fools a naive gate: nothing; but a bare error code names neither the stream nor the missing wait.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "H57"
KIND = "K6"
EXPECTED = ("NO-GO",)
REASON = ("unjoined-stream",)

SHAPES = {"n4096": 4096}


def build(shape):
    side = torch.cuda.Stream()
    statistics = torch.zeros(shape, device="cuda")

    @torch.no_grad()
    def step(x):
        for _ in range(8):
            x = torch.tanh(x + 0.1)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            statistics.copy_(x)  # for the log, which nobody waits for
        return x

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, device="cuda", generator=generator),)
