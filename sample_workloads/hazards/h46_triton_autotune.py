"""H46: an autotuned kernel that meets a new key while it is captured.

Source: triton-lang/triton#10596, triton-lang/triton#10604, vllm-project/vllm#46523.
Mechanism: the key counts calls in blocks, so that one that was never tuned comes up again and again;
tuning times kernels and synchronises, which no capture permits.
What fools a naive gate: it warms the key up that it then captures.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch
import triton
import triton.language as tl

HAZARD = "H46"
KIND = "K5"
EXPECTED = ("NO-GO",)
REASON = ("capture-illegal", "frozen-host-state")

SHAPES = {"n4096": 4096}


@triton.autotune(
    configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})],
    key=["bucket"],
)
@triton.jit
def scaled_kernel(x, out, n, bucket, BLOCK: tl.constexpr):  # noqa: N803
    """Twice the input."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=inside) * 2, mask=inside)


def build(shape):
    out = torch.zeros(shape, device="cuda")
    calls = [0]

    @torch.no_grad()
    def step(x):
        calls[0] += 1
        for _ in range(8):
            x = torch.tanh(x + 0.1)
        scaled_kernel[lambda meta: (triton.cdiv(shape, meta["BLOCK"]),)](x, out, shape, calls[0])
        return out

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, device="cuda", generator=generator),)
