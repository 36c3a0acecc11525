"""H32: a custom kernel that is launched on the default stream.

Source: pytorch/pytorch#114048, mirage-project/mirage#207.
Mechanism: the capture records its own stream only. A kernel that names stream 0 runs while the graph is
captured and is never replayed; torch's streams do not wait for the default one, so nothing complains.
What fools a naive gate: the output still holds what the kernel left there at the capture.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import cupy
import torch

HAZARD = "H32"
KIND = "K4"
EXPECTED = ("NO-GO",)
REASON = ("escaped-work",)

SHAPES = {"n4096": 4096}
ADD = cupy.RawKernel(
    """extern "C" __global__ void add_hundred(float* x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] += 100.0f;
    }""",
    "add_hundred",
)


def build(shape):
    out = torch.zeros(shape, device="cuda")

    @torch.no_grad()
    def step(x):
        for _ in range(12):
            x = torch.tanh(x + 1)
        out.copy_(x)
        with cupy.cuda.Stream.null:
            ADD((shape // 256,), (256,), (out.data_ptr(), cupy.int32(shape)))
        return out * 2

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, device="cuda", generator=generator),)
