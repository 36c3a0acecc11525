"""The loaded CUPTI library: its calls by ctypes, the record layouts by cupti-python.

ctypes releases the interpreter lock during a call, which matters: CUPTI's own thread hands buffers over
through a Python callback while ``cuptiActivityFlushAll`` waits for it.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from cudagraph_gate.errors import NoDeviceError

FLUSH_COMPLETE: Final = 0
FLUSH_FORCED: Final = 1
ATTRIBUTE_ZEROED: Final = 5
"""CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER: unless it is set, CUPTI zeroes each buffer in the thread
that submits work."""
SYSTEM_THREADS: Final = 1
"""CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM: threads by the kernel's number, as /proc names them, not by the low
half of a pthread pointer."""
CALLBACK_NUMBERS: Final = 2_000
"""More than the API functions of either domain (807 and 523 in CUPTI 13.0)."""
API_ENTER: Final = 0
OFFSET_READINGS: Final = 5
NVTX_DEFAULT_DOMAIN: Final = "NVTX"

_Requested = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
_Completed = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)
_Called = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)


class _CallbackData(ctypes.Structure):
    """CUpti_CallbackData."""

    _fields_ = [
        ("site", ctypes.c_int),
        ("function_name", ctypes.c_void_p),
        ("function_params", ctypes.c_void_p),
        ("return_value", ctypes.c_void_p),
        ("symbol_name", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("context_uid", ctypes.c_uint32),
        ("correlation_data", ctypes.c_void_p),
        ("correlation", ctypes.c_uint32),
    ]


class BufferSink(Protocol):
    """Where CUPTI gets its buffers from, and where they go when they are full. Called from any thread."""

    def lend(self) -> tuple[int, int]:
        """Address and size in bytes of a zeroed buffer; (0, 0) if there is none."""

    def take(self, address: int, valid_bytes: int) -> None:
        """A lent buffer comes back with that many bytes of records."""


class Cupti:
    """The calls that recording needs. Raises NoDeviceError with CUPTI's own name for a failure."""

    def __init__(self, library: ctypes.CDLL, path: str) -> None:
        self._library = library
        self.path = path
        self._names: dict[tuple[int, int], str] = {}
        self._lent: dict[int, BufferSink] = {}
        self._sink: BufferSink | None = None
        self._registered = False
        self._requested = _Requested(self._hand_out)
        self._completed = _Completed(self._take_back)
        self._subscriber = ctypes.c_void_p()
        self._called: Any = None

    def version(self) -> int:
        """API version, e.g. 130000 or 28."""
        number = ctypes.c_uint32()
        self._call("cuptiGetVersion", ctypes.byref(number))
        return number.value

    def register(self, sink: BufferSink) -> None:
        """Let ``sink`` lend the buffers from now on."""
        self._sink = sink
        if self._registered:
            return
        # Where CUPTI can't be told, it zeroes buffers itself.
        zeroed, size = ctypes.c_uint8(1), ctypes.c_size_t(1)
        self._library.cuptiActivitySetAttribute(
            ctypes.c_int(ATTRIBUTE_ZEROED), ctypes.byref(size), ctypes.byref(zeroed)
        )
        self._call("cuptiActivityRegisterCallbacks", self._requested, self._completed)
        self._registered = True

    def detach(self) -> None:
        """Leave CUPTI for good: at the process's end it would call back into an interpreter that is gone."""
        self._library.cuptiFinalize()

    def number_threads_as_system(self) -> None:
        """Name threads by the kernel's number, which costs a look-up for each call that is recorded."""
        self._library.cuptiSetThreadIdType(ctypes.c_int(SYSTEM_THREADS))

    def threads_are_system(self) -> bool:
        """Whether records name threads by the kernel's number, which older libraries can't."""
        kind = ctypes.c_int(-1)
        status = self._library.cuptiGetThreadIdType(ctypes.byref(kind))
        return bool(status == 0 and kind.value == SYSTEM_THREADS)

    def timestamp_ns(self) -> int:
        """CUPTI's clock, which activity records are stamped with."""
        now = ctypes.c_uint64()
        self._call("cuptiGetTimestamp", ctypes.byref(now))
        return now.value

    def clock_offset_ns(self) -> int:
        """How far CUPTI's clock is ahead of ``time.time_ns``: the reading that took least time of a few.

        Both are CLOCK_REALTIME on Linux, unless somebody gave CUPTI another clock.
        """
        readings = [self._offset_reading() for _ in range(OFFSET_READINGS)]
        return min(readings)[1]

    def _offset_reading(self) -> tuple[int, int]:
        before = time.time_ns()
        theirs = self.timestamp_ns()
        after = time.time_ns()
        return after - before, theirs - (before + after) // 2

    def enable(self, kind: int, on: bool = True) -> None:
        """Switch one activity kind."""
        self._call("cuptiActivityEnable" if on else "cuptiActivityDisable", ctypes.c_int(kind))

    def latency_timestamps(self, on: bool) -> None:
        """Switch the ``queued`` and ``submitted`` stamps of kernels."""
        self._call("cuptiActivityEnableLatencyTimestamps", ctypes.c_uint8(on))

    def flush(self, *, forced: bool = True) -> None:
        """Make CUPTI hand over every buffer, or only those whose records are all complete."""
        self._call("cuptiActivityFlushAll", ctypes.c_uint32(FLUSH_FORCED if forced else FLUSH_COMPLETE))

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

    # --- callbacks of API calls -------------------------------------------------------------------
    def subscribe(self, on_enter: Callable[[int], None], functions: Callable[[str], bool]) -> None:
        """Call ``on_enter(correlation)`` when a thread enters one of ``functions``, in that thread.

        Raises NoDeviceError when another tool is the process's one subscriber.
        """

        def called(_data: Any, _domain: int, _number: int, record: int) -> None:
            data = _CallbackData.from_address(record)
            if data.site == API_ENTER:
                on_enter(data.correlation)

        self._called = _Called(called)
        subscriber = ctypes.c_void_p()
        self._call("cuptiSubscribe", ctypes.byref(subscriber), self._called, None)
        self._subscriber = subscriber
        for domain in (1, 2):
            for number in range(1, CALLBACK_NUMBERS):
                if functions(self.callback_name(domain, number)):
                    self._call("cuptiEnableCallback", ctypes.c_uint32(1), self._subscriber, domain, number)

    def unsubscribe(self) -> None:
        """End :meth:`subscribe`; nothing happens where it failed."""
        if self._subscriber.value:
            self._library.cuptiUnsubscribe(self._subscriber)
            self._subscriber = ctypes.c_void_p()

    # --- buffers ----------------------------------------------------------------------------------
    def _hand_out(self, buffer: Any, size: Any, most: Any) -> None:
        buffer[0], size[0], most[0] = None, 0, 0
        sink = self._sink
        if sink is None:
            return
        address, length = sink.lend()
        if address:
            self._lent[address] = sink
            buffer[0], size[0] = address, length

    def _take_back(self, _context: Any, _stream: int, buffer: int, _size: int, valid: int) -> None:
        if sink := self._lent.pop(buffer, None):  # else it is another profiler's
            sink.take(buffer, valid)

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
    try:
        _bindings().get_timestamp()  # the first call loads libcupti
    except (RuntimeError, OSError) as error:
        raise _not_loaded(error) from error
    path = next((path for path in _mapped_libraries() if "/libcupti.so" in path), None)
    if path is None:
        raise NoDeviceError("cupti-python loaded no libcupti", hint="pip install nvidia-cuda-cupti")
    return Cupti(ctypes.CDLL(path), path)


@lru_cache(maxsize=1)
def published_layouts() -> Mapping[str, np.dtype[Any]]:
    """Record layouts that cupti-python publishes for its CUPTI version, by name; needs no GPU."""
    bindings = _bindings()
    found = {name: getattr(bindings, name) for name in dir(bindings) if name.endswith("_dtype")}
    return {name: layout for name, layout in found.items() if isinstance(layout, np.dtype)}


def _bindings() -> Any:
    try:
        from cupti import cupti as bindings
    except (ImportError, RuntimeError, OSError) as error:
        raise _not_loaded(error) from error
    return bindings


def _not_loaded(error: Exception) -> NoDeviceError:
    return NoDeviceError(
        f"CUPTI can't be loaded ({str(error).splitlines()[0]})",
        hint="install cupti-python of your CUDA major version",
    )


def _mapped_libraries() -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split(maxsplit=5)[5] for line in lines if line.count("/")})


def inject_nvtx() -> None:
    """Let NVTX calls of this process reach CUPTI; must run before the first NVTX call."""
    os.environ.setdefault("NVTX_INJECTION64_PATH", load_cupti().path)
    with suppress(ImportError):
        import nvtx.nvtx

        name_default_domain(nvtx.nvtx)


def name_default_domain(package: Any) -> None:
    """Give the ``nvtx`` package's default domain the name that it has in that package's documentation.

    CUPTI records ranges of named domains, and those of ``nvtxRangePushA``, but not what the package pushes to
    the domain without a name.
    """
    by_name = getattr(package, "_get_domain_cached", None)
    if by_name is not None:
        package._get_domain_cached = lambda name: by_name(name or NVTX_DEFAULT_DOMAIN)
