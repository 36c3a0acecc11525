"""H86: make_graphed_callables, and two micro-batches for each optimiser step.

Source: pytorch/pytorch#181723, NVIDIA/TransformerEngine#2937.
Mechanism: the graphed backward returns static buffers, to which .grad is bound where it was None. The
second micro-batch overwrites them before they are added up.
What fools a naive gate: with one batch for each step the gradients are right.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "H86"
KIND = "K10"
EXPECTED = ("NO-GO",)
REASON = ("gradient",)

SHAPES = {"b16": 16}
WIDTH = 128
MODELS = {}


def model_of():
    torch.manual_seed(0)
    layers = [part for _ in range(8) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers).cuda()


def accumulated(model, forward, x):
    """Loss and first gradient of two micro-batches."""
    for parameter in model.parameters():
        parameter.grad = None
    loss = 0.0
    for half in x.split(x.shape[0] // 2):
        part = forward(half).square().mean()
        part.backward()
        loss = loss + part.detach()
    gradients = [parameter.grad for parameter in model.parameters()]
    return {"loss": loss, "weight.grad": gradients[0].clone()}


def build(shape):
    model = model_of()
    return lambda x: accumulated(model, model, x)


def build_graphed(shape):
    model = model_of()
    sample = torch.randn(shape // 2, WIDTH, device="cuda")
    graphed = torch.cuda.make_graphed_callables(model, (sample,))
    return lambda x: accumulated(model, graphed, x)


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, WIDTH, device="cuda", generator=generator),)


def state():
    return {}
