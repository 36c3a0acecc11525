"""Control: torch's own dropout, whose generator the graph knows. Must not be refused.

A graph registers the generator, and each replay moves its offset on: from the same seed both paths draw the
same masks.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "control"
KIND = "K9"
EXPECTED = ("GO", "CONDITIONAL", "INCONCLUSIVE")
REASON = None

SHAPES = {"b16": 16}


def build(shape):
    torch.manual_seed(0)
    layers = [part for _ in range(8) for part in (torch.nn.Linear(128, 128), torch.nn.Dropout(0.5))]
    model = torch.nn.Sequential(*layers).cuda().train()

    @torch.no_grad()
    def step(x):
        return model(x)

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, 128, device="cuda", generator=generator),)
