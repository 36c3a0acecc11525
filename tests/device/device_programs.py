"""Kernels and small programs that run on both devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cudagraph_gate.device.port import Device, DeviceArray, Graph, Kernel, LaunchShape, Stream
from cudagraph_gate.errors import DeviceError

COUNT = 64
ONE_BLOCK = LaunchShape((1, 1, 1), (COUNT, 1, 1))


def _add(_shape: LaunchShape, out: Any, left: Any, right: Any) -> None:
    out[:] = left + right


def _scale(_shape: LaunchShape, out: Any, source: Any, factor: Any) -> None:
    out[:] = source * factor


ADD = Kernel(
    "add",
    'extern "C" __global__ void add(float* out, const float* left, const float* right) '
    "{ int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = left[i] + right[i]; }",
    _add,
    2_000,
)
SCALE = Kernel(
    "scale",
    'extern "C" __global__ void scale(float* out, const float* source, float factor) '
    "{ int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = source[i] * factor; }",
    _scale,
    2_000,
)


def numbers(start: float = 0.0) -> Any:
    return np.arange(COUNT, dtype=np.float32) + np.float32(start)


def blank(device: Device) -> DeviceArray:
    """A float array of zeros."""
    return device.array(np.zeros(COUNT, np.float32))


def scale(device: Device, out: DeviceArray, source: DeviceArray, factor: float, on: Stream) -> None:
    device.launch(SCALE, ONE_BLOCK, (out, source, np.float32(factor)), on)


def captured_scale(device: Device, stream: Stream, out: DeviceArray, source: DeviceArray) -> Graph:
    """A captured graph of one kernel: out = 2 * source."""
    device.begin_capture(stream)
    scale(device, out, source, 2.0, stream)
    return device.end_capture(stream)


def assert_usable(device: Device, stream: Stream) -> None:
    """The stream does not capture and runs work that comes out right."""
    assert not stream.is_capturing
    source, out = device.array(numbers()), blank(device)
    scale(device, out, source, 3.0, stream)
    stream.synchronize()
    np.testing.assert_array_equal(out.to_host(), numbers() * 3)


def code_of(act: Callable[[], object]) -> str:
    """The code of the device error that ``act`` raises."""
    with pytest.raises(DeviceError) as caught:
        act()
    return caught.value.code
