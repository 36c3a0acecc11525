"""Your own graph path: ``torch.compile(mode="reduce-overhead")`` against the eager model. Expected: a gain.

``build`` is the normal path, ``build_graphed`` what would replace it: a callable that takes the same inputs
and returns the same outputs. It makes its graphs itself, at its first calls; the trial judges it by the same
gates, and says so where it launched none.

The compiled path also fuses kernels, so its gain is not the graph's alone.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

SHAPES = {"b1": 1, "b16": 16}
LAYERS, WIDTH = 32, 512


def model():
    torch.manual_seed(0)
    parts = [
        part
        for _ in range(LAYERS)
        for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH), torch.nn.GELU())
    ]
    return torch.nn.Sequential(*parts).cuda().eval()


def build(shape):
    eager = model()

    @torch.no_grad()
    def step(x):
        return eager(x)

    return step


def build_graphed(shape):
    compiled = torch.compile(model(), mode="reduce-overhead", fullgraph=True)

    @torch.no_grad()
    def step(x):
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(x)

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, WIDTH, device="cuda", generator=generator),)


def check(expected, actual):
    """Fused kernels round otherwise."""
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3)
