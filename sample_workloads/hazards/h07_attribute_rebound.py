"""H07: a side output in an attribute, which each call binds anew.

Source: pytorch/pytorch#114844.
Mechanism: binding an attribute is Python, and a replay runs none: it refreshes the memory of the captured
call, while the attribute names whatever was bound last. The application takes the side output away after
it has read it, and then reads old values for ever.
What fools a naive gate: it compares what the module returns, and that is right.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "H07"
KIND = "K1"
EXPECTED = ("NO-GO",)
REASON = ("frozen-host-state",)

SHAPES = {"b16": 16}
MODELS = {}


class Encoder(torch.nn.Module):
    """Keeps the features of the last request for whoever asks."""

    def __init__(self):
        super().__init__()
        layers = [part for _ in range(10) for part in (torch.nn.Linear(128, 128), torch.nn.ReLU())]
        self.layers = torch.nn.Sequential(*layers)
        self.features = None

    def forward(self, x):
        """Features, and what follows from them."""
        self.features = x * 2 + 1
        return self.layers(self.features)


def build(shape):
    torch.manual_seed(0)
    MODELS["last"] = model = Encoder().cuda().eval()
    MODELS["nothing"] = model.features = torch.zeros(shape, 128, device="cuda")

    @torch.no_grad()
    def step(x):
        return model(x)

    return step


def between(i):
    MODELS["last"].features = MODELS["nothing"]  # read and taken away


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, 128, device="cuda", generator=generator),)


def state():
    return {"features": MODELS["last"].features}
