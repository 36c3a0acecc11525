"""Which library a GPU operation comes from, by the name of its kernel."""

from __future__ import annotations

import re
from typing import Final

LIBRARIES: Final = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        # Frameworks carry copies of libraries, with both names in one: the more telling mark first.
        ("RCCL", r"(?i)rccl"),
        ("NCCL", r"(?i)nccl"),
        ("FlashAttention", r"(?i)flash_(fwd|bwd|attn|attention)|flash::|fmha"),
        ("cuDNN", r"(?i)cudnn|xmma_(fprop|dgrad|wgrad)|implicit_convolve|convolve_s?gemm|winograd"),
        ("MIOpen", r"(?i)miopen|naive_conv_|batched_transpose_|igemm_(fwd|bwd|wrw)_"),
        ("rocBLAS", r"^Cijk_|(?i:rocblas|tensile)"),
        ("Triton", r"^triton_|(?i:_triton|triton::)"),
        ("CuPy", r"(?i)cupy"),
        ("Numba", r"cudapy|numba"),
        ("Thrust/CUB", r"\bcub::|\bthrust::|Device(Reduce|Scan|RadixSort)[A-Z]\w*Kernel"),
        ("cuFFT", r"(?i)cufft|(vector|regular)_fft|\bfft_|_fft_"),
        ("cuBLASLt", r"(?i)cublasLt|nvjet"),
        ("PyTorch", r"\bat::|at_cuda_detail|\bc10::|void \(anonymous namespace\)::"),
        ("cuBLAS", r"(?i)cublas|gemm|gemv|cutlass|splitK"),
    )
)
"""Library and the pattern that its kernels' names match; the first that fits counts."""


def library_of(name: str) -> str:
    """The library that a kernel of this name belongs to; empty if none is recognised."""
    return next((library for library, pattern in LIBRARIES if pattern.search(name)), "")
