"""The calls into CUPTI, against a library that is written here."""

# ruff: noqa: N802  (the calls have CUPTI's own names)
from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from cudagraph_gate.errors import NoDeviceError
from cudagraph_gate.timeline.cupti_library import BUFFER_BYTES, Cupti, load_cupti

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

    def _answer(self, name: str, *args: Any) -> int:
        self.called.append((name, tuple(getattr(value, "value", value) for value in args)))
        return self.statuses.get(name, 0)

    def cuptiGetVersion(self, number: Any) -> int:
        number._obj.value = 130001
        return self._answer("cuptiGetVersion")

    def cuptiActivityRegisterCallbacks(self, requested: Any, completed: Any) -> int:
        self.requested, self.completed = requested, completed
        return self._answer("cuptiActivityRegisterCallbacks")

    def cuptiActivityEnable(self, kind: Any) -> int:
        return self._answer("cuptiActivityEnable", kind)

    def cuptiActivityDisable(self, kind: Any) -> int:
        return self._answer("cuptiActivityDisable", kind)

    def cuptiActivityEnableLatencyTimestamps(self, on: Any) -> int:
        return self._answer("cuptiActivityEnableLatencyTimestamps", on)

    def cuptiActivityFlushAll(self, flag: Any) -> int:
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
        """Records of 40 bytes."""
        if record._obj.value + 40 >= base.value + valid.value:
            return MAX_LIMIT_REACHED
        record._obj.value += 40
        return 0


def opened(**statuses: int) -> tuple[Cupti, Library]:
    library: Any = Library(**statuses)
    return Cupti(library, "/somewhere/libcupti.so.13"), library


def requested(library: Library) -> int:
    """Ask for a buffer as CUPTI does: its address; the callback has to say its size and no record limit."""
    address, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(9)
    library.requested(ctypes.pointer(address), ctypes.pointer(size), ctypes.pointer(most))
    assert (size.value, most.value) == (BUFFER_BYTES, 0)
    assert address.value is not None
    assert address.value % 8 == 0
    return address.value


def completed(library: Library, address: int, content: bytes) -> None:
    ctypes.memmove(address, content, len(content))
    library.completed(None, 0, address, BUFFER_BYTES, len(content))


def test_a_failed_call_is_named_with_cuptis_own_word_for_it() -> None:
    cupti, _library = opened(cuptiActivityEnable=INSUFFICIENT_PRIVILEGES)
    message = "cuptiActivityEnable failed with CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
    with pytest.raises(NoDeviceError, match=message) as caught:
        cupti.enable(10)
    assert "permission" in (caught.value.hint or "")


def test_a_status_that_cupti_has_no_word_for_is_given_as_its_number() -> None:
    cupti, _library = opened(cuptiActivityFlushAll=999)
    with pytest.raises(NoDeviceError, match="cuptiActivityFlushAll failed with status 999"):
        cupti.flush()


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("cuptiGetVersion", Cupti.version),
        ("cuptiActivityRegisterCallbacks", Cupti.register),
        ("cuptiActivityDisable", lambda cupti: cupti.enable(10, on=False)),
        ("cuptiActivityEnableLatencyTimestamps", lambda cupti: cupti.latency_timestamps(True)),
        ("cuptiActivityGetNumDroppedRecords", Cupti.dropped),
    ],
)
def test_every_call_is_checked(name: str, act: Callable[[Cupti], object]) -> None:
    cupti, _library = opened(**{name: 999})
    with pytest.raises(NoDeviceError, match=f"{name} failed"):
        act(cupti)


def test_the_calls_pass_what_recording_needs() -> None:
    cupti, library = opened()
    assert cupti.version() == 130001
    cupti.latency_timestamps(True)
    cupti.enable(10)
    cupti.enable(10, on=False)
    cupti.flush()
    assert cupti.dropped() == 42
    assert library.called == [
        ("cuptiGetVersion", ()),
        ("cuptiActivityEnableLatencyTimestamps", (1,)),
        ("cuptiActivityEnable", (10,)),
        ("cuptiActivityDisable", (10,)),
        ("cuptiActivityFlushAll", (1,)),
        ("cuptiActivityGetNumDroppedRecords", (None, 0)),
    ]


def test_filled_buffers_come_oldest_first_and_once() -> None:
    cupti, library = opened()
    cupti.register()
    first, second, third = (requested(library) for _ in range(3))
    assert len({first, second, third}) == 3
    completed(library, second, b"second..")
    completed(library, first, b"first...........")
    assert [bytes(memory[:valid]) for memory, valid in cupti.take_filled()] == [
        b"second..",
        b"first...........",
    ]
    assert cupti.take_filled() == []
    completed(library, third, b"third...")
    assert [valid for _memory, valid in cupti.take_filled()] == [8]


def test_a_buffer_that_comes_back_empty_is_not_kept() -> None:
    cupti, library = opened()
    cupti.register()
    completed(library, requested(library), b"")
    assert cupti.take_filled() == []


def test_the_size_of_a_record_is_where_cupti_finds_the_next_one() -> None:
    cupti, library = opened()
    cupti.register()
    completed(library, requested(library), bytes(120))
    ((memory, valid),) = cupti.take_filled()
    assert cupti.record_size(memory, valid, 0) == 40
    assert cupti.record_size(memory, valid, 40) == 40
    assert cupti.record_size(memory, valid, 80) is None


@pytest.mark.parametrize(
    ("domain", "number", "name"),
    [
        (1, 307, "cuLaunchKernel"),
        (1, 279, "cuMemcpyHtoDAsync"),
        (2, 13, "cudaLaunchKernel"),
        (1, 5, "callback 5"),
    ],
)
def test_callbacks_have_plain_names(domain: int, number: int, name: str) -> None:
    assert opened()[0].callback_name(domain, number) == name


def test_cupti_is_asked_for_a_callbacks_name_once() -> None:
    cupti, library = opened()
    assert cupti.callback_name(1, 307) == cupti.callback_name(1, 307)
    assert library.called == [("cuptiGetCallbackName", (1, 307))]


def test_cupti_that_cannot_be_loaded_is_no_device_with_advice() -> None:
    try:
        cupti = load_cupti()
    except NoDeviceError as error:
        assert "CUPTI can't be loaded" in error.what
        assert error.hint
    else:
        assert "libcupti.so" in cupti.path
