"""Arrays of one library over the memory of another, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudagraph_gate.device import Device


def framework_of(value: Any) -> str:
    """The top-level module of a value's type: ``torch``, ``cupy``, ``numba``, ``cudagraph_gate``, …"""
    name = type(value).__module__.partition(".")[0]
    return "numba" if name == "numba_cuda" else name


def wrapped(device: Device, like: Any, memory: Any) -> Any:
    """``memory``, which shows ``__cuda_array_interface__``, as an array of the kind that ``like`` is."""
    framework = framework_of(like)
    if framework == "cupy":
        import cupy

        return cupy.asarray(memory)
    if framework == "numba":
        from numba import cuda

        return cuda.as_cuda_array(memory, sync=False)
    if framework_of(memory) == "cudagraph_gate":
        return memory
    shown = memory.__cuda_array_interface__
    return device.view(int(shown["data"][0]), tuple(shown["shape"]), np.dtype(shown["typestr"]), memory)
