"""One kernel for both devices: ``out = factor * source``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cudagraph_gate.device import Device, DeviceArray, Kernel, LaunchShape

COUNT: Final = 64
ONE_BLOCK: Final = LaunchShape((1, 1, 1), (COUNT, 1, 1))


def _scale(_shape: LaunchShape, out: Any, source: Any, factor: Any) -> None:
    out[:] = source * factor


SCALE: Final = Kernel(
    "scale",
    'extern "C" __global__ void scale(float* out, const float* source, float factor) '
    "{ int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = source[i] * factor; }",
    _scale,
    2_000,
)


def numbers(start: float = 0.0) -> Any:
    return np.arange(COUNT, dtype=np.float32) + np.float32(start)


def scale(device: Device, out: DeviceArray, source: DeviceArray, factor: float = 2.0) -> None:
    """Enqueue the kernel on the current stream."""
    device.launch(SCALE, ONE_BLOCK, (out, source, np.float32(factor)))
