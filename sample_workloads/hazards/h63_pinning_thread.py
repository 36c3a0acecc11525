"""H63: a loader thread pins memory while a graph is captured in global mode.

Source: LibreYOLO/libreyolo#681, pytorch/pytorch#146924.
Mechanism: torch's default capture mode prohibits such calls to every thread. The capture is invalidated,
and the loader thread dies of the error as well.
What fools a naive gate: alone, or in an idle moment, the capture succeeds.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import threading

import torch

HAZARD = "H63"
KIND = "K7"
EXPECTED = ("NO-GO",)
REASON = ("capture-interference", "capture-illegal")

SHAPES = {"b16": 16}
LOADER = {"running": False}


def pin():
    batches = []  # read ahead: blocks that are held are not handed out again, so that each is a new one
    while True:
        batches.append(torch.empty(1 << 10).pin_memory())


def build(shape):
    torch.manual_seed(0)
    layers = [part for _ in range(10) for part in (torch.nn.Linear(128, 128), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).cuda().eval()

    @torch.no_grad()
    def step(x):
        return model(x)

    return step


def build_graphed(shape):
    step, static = build(shape), torch.zeros(shape, 128, device="cuda")
    step(static)
    if not LOADER["running"]:
        LOADER["running"] = True
        threading.Thread(target=pin, daemon=True).start()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="global"):
        for _ in range(20):
            out = step(static)

    def graphed(x):
        static.copy_(x)
        graph.replay()
        return out

    return graphed


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, 128, device="cuda", generator=generator),)
