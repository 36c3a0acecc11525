"""H142: an exception between begin and end of a raw capture.

Source: pytorch/TensorRT#4662.
Mechanism: nothing ends the capture, so the stream goes on capturing: later calls on it fail, far from the
cause.
What fools a naive gate: it reports the later failure, or leaves the process unusable.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "H142"
KIND = "K16"
EXPECTED = ("NO-GO",)
REASON = ("capture-illegal", "workload", "wrong-output")

SHAPES = {"b16": 16}


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
    torch.cuda.synchronize()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.set_stream(stream)
    graph.capture_begin()
    out = step(static)
    if shape == SHAPES["b16"]:
        raise ValueError("this shape has no graph")
    graph.capture_end()

    def graphed(x):
        static.copy_(x)
        graph.replay()
        return out

    return graphed


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, 128, device="cuda", generator=generator),)
