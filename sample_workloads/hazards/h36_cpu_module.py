"""H36: a module that was left on the CPU: its graph would be empty.

Source: pytorch/pytorch#88754, state-spaces/mamba#232.
Mechanism: the work is done by the host, and only its result is copied to the GPU. The graph repeats the
copy, of whatever lies in the host's memory.
What fools a naive gate: a replay takes microseconds, which looks like an enormous gain.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "H36"
KIND = "K4"
EXPECTED = ("NO-GO",)
REASON = ("escaped-work", "capture-illegal", "lifetime", "wrong-output")

SHAPES = {"b16": 16}


def build(shape):
    torch.manual_seed(0)
    layers = [part for _ in range(10) for part in (torch.nn.Linear(128, 128), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).eval()  # .cuda() was forgotten
    result = torch.zeros(shape, 128, pin_memory=True)
    out = torch.zeros(shape, 128, device="cuda")
    host = torch.zeros(shape, 128, pin_memory=True)

    @torch.no_grad()
    def step(x):
        host.copy_(x, non_blocking=True)
        result.copy_(model(host))
        out.copy_(result, non_blocking=True)
        return out

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, 128, device="cuda", generator=generator),)
