"""Adapter for numba-cuda, which has no current stream: a kernel launched without one is on the legacy stream.

So a step launches on the device port's current stream, which the trial captures and replays on:

    from cudagraph_gate.adapters.numba import current_stream
    kernel[grid, block, current_stream()](x, out)

An application of its own does the same with ``numba.cuda.external_stream`` and the stream that it captures.
Numba allocates with cuMemAlloc, which no capture permits: ``device_array`` and ``to_device`` belong into
``build``, as do copies to the host after the step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from cudagraph_gate.adapters.cuda_core import ArrayAdapter, ArrayCapture
from cudagraph_gate.adapters.foreign import wrapped
from cudagraph_gate.device import Device, current_device
from cudagraph_gate.errors import DeviceError, NoDeviceError, device_error

_DRIVER_ERROR: Final = re.compile(r"Call to (\w+) results in (CUDA_ERROR_\w+)")
_ALLOCATIONS: Final = ("cuMemAlloc", "cuMemHostAlloc", "cuMemAllocManaged", "cuMemFree")


def current_stream(device: Device | None = None) -> Any:
    """A device's current stream as Numba's: the third element of a launch configuration.

    The process's current device unless another is given. Raises NoDeviceError for a simulated one.
    """
    device = current_device() if device is None else device
    if device.simulated:
        raise _no_gpu()
    stream: Any = device.current_stream()
    return _external_stream(int(stream.handle))


@lru_cache(maxsize=16)
def _external_stream(pointer: int) -> Any:
    """Kept, so that a step that asks before each launch does not look slower than it need be."""
    from numba import cuda

    return cuda.external_stream(pointer)


class NumbaAdapter(ArrayAdapter):
    """Contiguous device arrays of numba-cuda."""

    name = "numba"

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        if device.simulated:
            raise _no_gpu()

    def static_like(self, value: Any) -> Any:
        """An array of the same kind with a copy of the values."""
        return wrapped(self._device, value, super().static_like(value))

    def capture(self, step: Callable[..., Any], inputs: Sequence[Any]) -> ArrayCapture:
        """Capture on a stream of its own, thread-local; what the driver refuses Numba is a DeviceError."""
        try:
            return super().capture(step, inputs)
        except Exception as error:
            refused = driver_error(error)
            if refused is None:
                raise
            raise refused.with_traceback(error.__traceback__) from error


def driver_error(error: Exception) -> DeviceError | None:
    """The driver's error that Numba raised as text (``Call to cuMemAlloc results in CUDA_ERROR_…``)."""
    found = _DRIVER_ERROR.search(str(error))
    if found is None or isinstance(error, DeviceError):
        return None
    call, code = found.groups()
    detail = "numba allocates in the step: allocate in build" if call.startswith(_ALLOCATIONS) else ""
    return device_error(code, call, detail=detail)


def _no_gpu() -> NoDeviceError:
    return NoDeviceError(
        "a Numba workload needs a CUDA GPU",
        hint="run it on a machine with an NVIDIA GPU; the simulated device runs portable workloads",
    )
