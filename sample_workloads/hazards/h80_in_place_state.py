"""H80: a recurrent state that every run moves on, warm-up and capture too.

Source: microsoft/onnxruntime#32243.
Mechanism: whoever warms a step up and captures it runs it, and each run changes the state. The right
answer is GO, or CONDITIONAL on one request at a time, from a tool that puts the state back.
What fools a naive gate: it compares after the warm-up, when both paths have moved on alike.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "H80"
KIND = "K9"
EXPECTED = ("GO", "CONDITIONAL", "INCONCLUSIVE")
REASON = None

SHAPES = {"b16": 16}
STATE = {}


def build(shape):
    hidden = STATE["hidden"] = torch.ones(shape, 256, device="cuda")

    @torch.no_grad()
    def step(x):
        for _ in range(12):
            x = torch.tanh(x + 0.1)
        hidden.mul_(0.9).add_(x)
        return hidden.clone()

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, 256, device="cuda", generator=generator),)


def state():
    return STATE
