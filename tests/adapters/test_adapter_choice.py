"""Which adapter a value asks for, and what is said where it needs a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cudagraph_gate.adapters import adapter_for
from cudagraph_gate.adapters.foreign import framework_of, wrapped
from cudagraph_gate.adapters.numba import current_stream, driver_error
from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.errors import CaptureError, DeviceError, NoDeviceError


def instance(module: str) -> Any:
    """An object whose type says that it comes from ``module``."""
    return type("Array", (), {"__module__": module})()


@pytest.mark.parametrize(
    ("module", "framework"),
    [
        ("torch", "torch"),
        ("torch.nn.parameter", "torch"),
        ("cupy._core.core", "cupy"),
        ("numba.cuda.cudadrv.devicearray", "numba"),
        ("numba_cuda.numba.cuda.cudadrv.devicearray", "numba"),
        ("numpy", "numpy"),
    ],
)
def test_the_framework_is_that_of_the_type(module: str, framework: str) -> None:
    assert framework_of(instance(module)) == framework


@pytest.mark.parametrize(
    ("modules", "what"),
    [
        (["cupy._core.core"], "a CuPy workload needs a CUDA GPU"),
        (["numba.cuda.cudadrv.devicearray"], "a Numba workload needs a CUDA GPU"),
        (["numba.cuda.cudadrv.devicearray", "cupy._core.core"], "a CuPy workload needs a CUDA GPU"),
    ],
)
def test_the_simulated_device_refuses_what_needs_a_gpu(modules: list[str], what: str) -> None:
    with pytest.raises(NoDeviceError) as caught:
        adapter_for(SimulatedDevice(), [instance(module) for module in modules])
    assert caught.value.what == what
    assert "portable" in (caught.value.hint or "")


def test_numbas_stream_needs_a_gpu() -> None:
    with pytest.raises(NoDeviceError, match="Numba"):
        current_stream(SimulatedDevice())


class Shown:
    """Another library's memory over an array of the device."""

    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = {"shape": (2, 2), "typestr": "<f4", "data": (array.pointer, False)}


def test_memory_is_shown_as_an_array_of_the_port() -> None:
    device = SimulatedDevice()
    array = device.array(np.arange(4, dtype=np.float32))
    view = wrapped(device, array, Shown(array))
    assert (view.pointer, view.shape, view.dtype) == (array.pointer, (2, 2), np.float32)
    assert wrapped(device, array, array) is array


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[900] Call to cuMemAlloc results in CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "allocate in build"),
        ("[900] Call to cuStreamSynchronize results in CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", ""),
    ],
)
def test_what_the_driver_refuses_numba_has_its_call_and_code(text: str, words: str) -> None:
    error = driver_error(RuntimeError(text))
    assert isinstance(error, CaptureError)
    assert error.code == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
    assert error.call == text.split()[3]
    assert words in error.detail
    assert bool(words) == bool(error.detail)


def test_other_errors_of_a_numba_step_stay_as_they_are() -> None:
    assert driver_error(KeyError("weights")) is None
    assert (
        driver_error(DeviceError("CUDA_ERROR_UNKNOWN", "Call to cuX results in CUDA_ERROR_UNKNOWN")) is None
    )
