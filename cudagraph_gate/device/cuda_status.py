"""The one place where a CUDA driver status becomes an exception."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from cudagraph_gate.errors import NoDeviceError, device_error


@lru_cache(maxsize=1)
def driver() -> Any:
    """The driver bindings with the driver initialised. Raises NoDeviceError where there is no driver."""
    try:
        from cuda.bindings import driver as bindings

        status, *_ = bindings.cuInit(0)
    except (ImportError, RuntimeError, OSError) as error:
        raise NoDeviceError(
            f"the CUDA driver can't be loaded ({str(error).splitlines()[0]})",
            hint="install the NVIDIA driver, or use --device simulated",
        ) from error
    if status != bindings.CUresult.CUDA_SUCCESS:
        raise NoDeviceError(
            f"the CUDA driver does not start ({status.name})",
            hint="check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device simulated",
        )
    return bindings


def call(function: Callable[..., tuple[Any, ...]], *args: Any) -> Any:
    """Call a driver function: its value(s), or the exception for its status, named after the call."""
    status, *values = function(*args)
    if status != 0 and status.name in _NO_CONTEXT and _enter_primary_context():
        status, *values = function(*args)
    if status != 0:
        raise device_error(status.name, function.__name__)
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


_NO_CONTEXT: Final = frozenset({"CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_NOT_INITIALIZED"})


def _enter_primary_context() -> bool:
    """Make the first GPU's primary context current in this thread, where a new thread has none."""
    bindings = driver()
    status, context = bindings.cuDevicePrimaryCtxRetain(0)
    if status != 0:
        return False
    (status,) = bindings.cuCtxSetCurrent(context)
    return bool(status == 0)
