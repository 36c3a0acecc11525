"""A torch step with a CuPy kernel in its middle, on torch's stream. Expected: a gain, nothing escapes.

CuPy has a current stream of its own. Launched there, its kernel would run once while the step is captured and
in no replay; here it is told torch's stream, and writes into a tensor, so CuPy allocates nothing.

Needs torch and CuPy (``pip install 'cudagraph-gate[torch,cupy]'``) and a CUDA GPU.
"""

import cupy
import torch

SHAPES = {"n4096": 4096}
ROUNDS, THREADS = 16, 256

SOFTSIGN = cupy.RawKernel(
    """
extern "C" __global__ void softsign(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] / (1.0f + fabsf(x[i]));
}""",
    "softsign",
)


def softsign(x):
    """The kernel on torch's current stream and on torch's memory."""
    y = torch.empty_like(x)
    n = x.numel()
    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        blocks = ((n + THREADS - 1) // THREADS,)
        SOFTSIGN(blocks, (THREADS,), (cupy.asarray(x), cupy.asarray(y), cupy.int32(n)))
    return y


def build(shape):
    torch.manual_seed(0)
    scale, shift = torch.rand(2, ROUNDS, device="cuda")

    @torch.no_grad()
    def step(x):
        for number in range(ROUNDS):
            x = softsign(x * scale[number] + shift[number])
        return x

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, device="cuda", generator=generator),)
