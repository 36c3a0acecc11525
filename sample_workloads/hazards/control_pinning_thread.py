"""Control: a thread pins memory all the time, as a data loader does. Thread-local capture must stand it.

Source of the hazard behind it (H63): LibreYOLO/libreyolo#681, pytorch/pytorch#146924.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import threading
import time

import torch

HAZARD = "control"
KIND = "K7"
EXPECTED = ("GO", "CONDITIONAL", "INCONCLUSIVE")
REASON = None

SHAPES = {"b16": 16}


def pin():
    while True:
        torch.empty(1 << 16).pin_memory()
        time.sleep(0.002)


def build(shape):
    torch.manual_seed(0)
    layers = [part for _ in range(10) for part in (torch.nn.Linear(128, 128), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).cuda().eval()
    threading.Thread(target=pin, daemon=True).start()

    @torch.no_grad()
    def step(x):
        return model(x)

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, 128, device="cuda", generator=generator),)
