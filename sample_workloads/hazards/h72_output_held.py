"""H72: an output that is held while the next request is served.

Source: pytorch/pytorch#148439, pytorch/pytorch#170604, pytorch/pytorch#144386.
Mechanism: each replay writes its output to the same memory; who keeps one without a copy then reads the
next one.
What fools a naive gate: it looks at the latest output only.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "H72"
KIND = "K8"
EXPECTED = ("CONDITIONAL", "INCONCLUSIVE")
REASON = None

SHAPES = {"b16": 16}


def build(shape):
    torch.manual_seed(0)
    layers = [part for _ in range(10) for part in (torch.nn.Linear(128, 128), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).cuda().eval()

    @torch.no_grad()
    def step(x):
        return model(x)

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, 128, device="cuda", generator=generator),)
