"""The loaded CUPTI library: its calls by ctypes, the record layouts by cupti-python.

ctypes releases the interpreter lock during a call, which matters: CUPTI's own thread hands buffers over
through a Python callback while ``cuptiActivityFlushAll`` waits for it.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudagraph_gate.errors import NoDeviceError

BUFFER_BYTES: Final = 8 * 1024 * 1024
"""CUPTI's recommended range is 1 to 10 MB; 256 MB cost 0.15 s at the first enable on the H200."""
FLUSH_FORCED: Final = 1

_Requested = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
_Completed = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


class Cupti:
    """The calls that recording needs. Raises NoDeviceError with CUPTI's own name for a failure."""

    def __init__(self, library: ctypes.CDLL, path: str) -> None:
        self._library = library
        self.path = path
        self._names: dict[tuple[int, int], str] = {}
        self._buffers: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = {}
        self._requested = _Requested(self._hand_out)
        self._completed = _Completed(self._take_back)
        self._filled: list[tuple[np.ndarray[Any, np.dtype[np.uint8]], int]] = []

    def version(self) -> int:
        """API version, e.g. 130000 or 28."""
        number = ctypes.c_uint32()
        self._call("cuptiGetVersion", ctypes.byref(number))
        return number.value

    def register(self) -> None:
        """Give CUPTI the buffer callbacks."""
        self._call("cuptiActivityRegisterCallbacks", self._requested, self._completed)

    def enable(self, kind: int, on: bool = True) -> None:
        """Switch one activity kind."""
        self._call("cuptiActivityEnable" if on else "cuptiActivityDisable", ctypes.c_int(kind))

    def latency_timestamps(self, on: bool) -> None:
        """Switch the ``queued`` and ``submitted`` stamps of kernels."""
        self._call("cuptiActivityEnableLatencyTimestamps", ctypes.c_uint8(on))

    def flush(self) -> None:
        """Make CUPTI hand over every buffer."""
        self._call("cuptiActivityFlushAll", ctypes.c_uint32(FLUSH_FORCED))

    def dropped(self) -> int:
        """Records lost so far for want of buffers; reading resets the count."""
        number = ctypes.c_size_t()
        self._call("cuptiActivityGetNumDroppedRecords", None, ctypes.c_uint32(0), ctypes.byref(number))
        return number.value

    def callback_name(self, domain: int, number: int) -> str:
        """Name of a driver (1) or runtime (2) API function by callback id, without version suffixes."""
        key = (domain, number)
        if key not in self._names:
            name = ctypes.c_char_p()
            status = self._library.cuptiGetCallbackName(domain, number, ctypes.byref(name))
            known = status == 0 and name.value
            self._names[key] = _plain(name.value.decode()) if known else f"callback {number}"  # type: ignore[union-attr]
        return self._names[key]

    def record_size(self, buffer: np.ndarray[Any, Any], valid_bytes: int, offset: int) -> int | None:
        """Size of the record at ``offset`` by CUPTI's own iterator; None if it is the last one."""
        base = buffer.ctypes.data
        record = ctypes.c_void_p(base + offset)
        status = self._library.cuptiActivityGetNextRecord(
            ctypes.c_void_p(base), ctypes.c_size_t(valid_bytes), ctypes.byref(record)
        )
        return (record.value or 0) - base - offset if status == 0 else None

    def take_filled(self) -> list[tuple[np.ndarray[Any, np.dtype[np.uint8]], int]]:
        """Completed buffers with their valid bytes, oldest first."""
        filled, self._filled = self._filled, []
        return filled

    def _hand_out(self, buffer: Any, size: Any, most: Any) -> None:
        memory = np.empty(BUFFER_BYTES, dtype=np.uint8)
        self._buffers[memory.ctypes.data] = memory
        buffer[0], size[0], most[0] = memory.ctypes.data, BUFFER_BYTES, 0

    def _take_back(self, _context: Any, _stream: int, buffer: int, _size: int, valid: int) -> None:
        memory = self._buffers.pop(buffer)
        if valid:
            self._filled.append((memory, valid))

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        if status != 0:
            raise NoDeviceError(
                f"{name} failed with {self._status_name(status)}",
                hint="another profiler in this process, or missing permission, keeps CUPTI from recording",
            )

    def _status_name(self, status: int) -> str:
        name = ctypes.c_char_p()
        self._library.cuptiGetResultString(status, ctypes.byref(name))
        return name.value.decode() if name.value else f"status {status}"


def _plain(name: str) -> str:
    return re.sub(r"(_v\d+|_ptsz|_ptds)+$", "", name)


@lru_cache(maxsize=1)
def load_cupti() -> Cupti:
    """CUPTI as cupti-python loads it. Raises NoDeviceError where it can't be had."""
    published_layouts()
    path = next((path for path in _mapped_libraries() if "/libcupti.so" in path), None)
    if path is None:
        raise NoDeviceError("cupti-python loaded no libcupti", hint="pip install nvidia-cuda-cupti")
    return Cupti(ctypes.CDLL(path), path)


@lru_cache(maxsize=1)
def published_layouts() -> Mapping[str, np.dtype[Any]]:
    """Record layouts that cupti-python publishes for its CUPTI version, by name."""
    try:
        from cupti import cupti as bindings

        bindings.get_timestamp()  # the first call loads libcupti
    except (ImportError, RuntimeError, OSError) as error:
        raise NoDeviceError(
            f"CUPTI can't be loaded ({str(error).splitlines()[0]})",
            hint="install cupti-python of your CUDA major version",
        ) from error
    found = {name: getattr(bindings, name) for name in dir(bindings) if name.endswith("_dtype")}
    return {name: layout for name, layout in found.items() if isinstance(layout, np.dtype)}


def _mapped_libraries() -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split(maxsplit=5)[5] for line in lines if line.count("/")})


def inject_nvtx() -> None:
    """Let NVTX calls of this process reach CUPTI; must run before the first NVTX call."""
    os.environ.setdefault("NVTX_INJECTION64_PATH", load_cupti().path)
