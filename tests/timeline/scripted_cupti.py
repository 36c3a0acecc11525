"""A libcupti that is written here: it answers as told, and completes the buffers that it is given."""

# ruff: noqa: N802  (the calls have CUPTI's own names)
from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from cudagraph_gate.timeline.cupti_library import Cupti

INSUFFICIENT_PRIVILEGES = 35
MAX_LIMIT_REACHED = 12
CALLBACK_NAMES = {
    (1, 307): b"cuLaunchKernel_ptsz",
    (1, 279): b"cuMemcpyHtoDAsync_v2",
    (2, 13): b"cudaLaunchKernel_v7000",
}


class Library:
    """Stands for libcupti: answers every call with ``statuses`` by name (0 where none is given)."""

    def __init__(self, **statuses: int) -> None:
        self.statuses = statuses
        self.called: list[tuple[str, tuple[Any, ...]]] = []
        self.requested: Callable[..., None] = lambda *_: None
        self.completed: Callable[..., None] = lambda *_: None
        self.called_back: Callable[..., None] = lambda *_: None
        self.enabled: list[tuple[int, int]] = []
        self.clock_ahead_ns = 0
        self.thread_kind = 0
        self.sizes: dict[int, int] = {}
        """Bytes of a record by kind, 40 where nothing is said."""
        self.pending: list[bytes] = []
        """Records of buffers that are completed at the next flush, whatever buffers CUPTI was lent."""

    def _answer(self, name: str, *args: Any) -> int:
        self.called.append((name, tuple(getattr(value, "value", value) for value in args)))
        return self.statuses.get(name, 0)

    def cuptiGetVersion(self, number: Any) -> int:
        number._obj.value = 130001
        return self._answer("cuptiGetVersion")

    def cuptiActivityRegisterCallbacks(self, requested: Any, completed: Any) -> int:
        self.requested, self.completed = requested, completed
        return self._answer("cuptiActivityRegisterCallbacks")

    def cuptiActivitySetAttribute(self, attribute: Any, size: Any, value: Any) -> int:
        return self._answer("cuptiActivitySetAttribute", attribute, size._obj, value._obj)

    def cuptiSetThreadIdType(self, kind: Any) -> int:
        self.thread_kind = kind.value
        return self._answer("cuptiSetThreadIdType", kind)

    def cuptiGetThreadIdType(self, kind: Any) -> int:
        kind._obj.value = self.thread_kind
        return self._answer("cuptiGetThreadIdType")

    def cuptiGetTimestamp(self, now: Any) -> int:
        now._obj.value = self.clock_ns()
        return self._answer("cuptiGetTimestamp")

    def cuptiSubscribe(self, subscriber: Any, callback: Any, _data: Any) -> int:
        subscriber._obj.value, self.called_back = 99, callback
        return self._answer("cuptiSubscribe")

    def cuptiEnableCallback(self, _on: Any, _subscriber: Any, domain: int, number: int) -> int:
        self.enabled.append((domain, number))
        return self._answer("cuptiEnableCallback")

    def cuptiUnsubscribe(self, subscriber: Any) -> int:
        return self._answer("cuptiUnsubscribe", subscriber)

    def cuptiActivityEnable(self, kind: Any) -> int:
        return self._answer("cuptiActivityEnable", kind)

    def cuptiActivityDisable(self, kind: Any) -> int:
        return self._answer("cuptiActivityDisable", kind)

    def cuptiActivityEnableLatencyTimestamps(self, on: Any) -> int:
        return self._answer("cuptiActivityEnableLatencyTimestamps", on)

    def cuptiActivityFlushAll(self, flag: Any) -> int:
        for content in self.pending:
            self.fill(content)
        self.pending = []
        return self._answer("cuptiActivityFlushAll", flag)

    def cuptiActivityGetNumDroppedRecords(self, context: Any, stream: Any, number: Any) -> int:
        number._obj.value = 42
        return self._answer("cuptiActivityGetNumDroppedRecords", context, stream)

    def cuptiGetCallbackName(self, domain: int, number: int, name: Any) -> int:
        text = CALLBACK_NAMES.get((domain, number))
        name._obj.value = text
        return self._answer("cuptiGetCallbackName", domain, number) if text else 1

    def cuptiGetResultString(self, status: int, name: Any) -> int:
        name._obj.value = {INSUFFICIENT_PRIVILEGES: b"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"}.get(status)
        return 0

    def cuptiActivityGetNextRecord(self, base: Any, valid: Any, record: Any) -> int:
        """Step over one record."""
        size = self.sizes.get(ctypes.c_uint32.from_address(record._obj.value).value, 40)
        if record._obj.value + size >= base.value + valid.value:
            return MAX_LIMIT_REACHED
        record._obj.value += size
        return 0

    def clock_ns(self) -> int:
        """CUPTI's clock."""
        return time.time_ns() + self.clock_ahead_ns

    def call_back(self, correlation: int, *, entering: bool = True) -> None:
        """A thread enters or leaves a function that was subscribed to."""
        record = bytearray(72)
        record[0:4], record[64:68] = (not entering).to_bytes(4, "little"), correlation.to_bytes(4, "little")
        held = (ctypes.c_char * 72).from_buffer(record)
        self.called_back(None, 1, 307, ctypes.addressof(held))

    def fill(self, content: bytes) -> None:
        """Ask for a buffer, fill it and give it back."""
        address, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(9)
        self.requested(ctypes.pointer(address), ctypes.pointer(size), ctypes.pointer(most))
        if address.value:
            ctypes.memmove(address.value, content, len(content))
            self.completed(None, 0, address.value, size.value, len(content))


def opened(**statuses: int) -> tuple[Cupti, Library]:
    library: Any = Library(**statuses)
    return Cupti(library, "/somewhere/libcupti.so.13"), library
