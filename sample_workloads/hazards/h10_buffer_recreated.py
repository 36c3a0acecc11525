"""H10: weights that a reload puts elsewhere instead of copying them in place.

Source: sgl-project/sglang#27140, pytorch/rl#3003.
Mechanism: the graph holds the addresses of the weights of its capture. After the reload the module's
parameters lie elsewhere, and replays go on with the old values.
What fools a naive gate: weights never change in its test.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "H10"
KIND = "K2"
EXPECTED = ("NO-GO", "CONDITIONAL")
REASON = ("unstable-address",)

SHAPES = {"b16": 16}
MODELS = {}


def build(shape):
    torch.manual_seed(0)
    layers = [part for _ in range(10) for part in (torch.nn.Linear(128, 128), torch.nn.ReLU())]
    MODELS["last"] = model = torch.nn.Sequential(*layers).cuda().eval()

    @torch.no_grad()
    def step(x):
        return model(x)

    return step


def between(i):
    if i % 2:
        for parameter in MODELS["last"].parameters():  # new weights from the trainer
            parameter.data = parameter.data * 0.99


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, 128, device="cuda", generator=generator),)
