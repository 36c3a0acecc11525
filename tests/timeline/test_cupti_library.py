"""The calls into CUPTI, against a library that is written here."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from scripted_cupti import INSUFFICIENT_PRIVILEGES, Library, opened

from cudagraph_gate.errors import NoDeviceError
from cudagraph_gate.timeline.cupti_library import Cupti, load_cupti, name_default_domain


class Lender:
    """Lends buffers of 128 bytes and remembers what comes back."""

    def __init__(self, buffers: int = 9) -> None:
        self._buffers = [ctypes.create_string_buffer(128) for _ in range(buffers)]
        self._left = list(self._buffers)
        self.taken: list[bytes] = []

    def lend(self) -> tuple[int, int]:
        return (ctypes.addressof(self._left.pop()), 128) if self._left else (0, 0)

    def take(self, address: int, valid_bytes: int) -> None:
        self.taken.append(ctypes.string_at(address, valid_bytes))


def requested(library: Library) -> tuple[int | None, int]:
    """Ask for a buffer as CUPTI does: its address and size; there must be no limit of records."""
    address, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(9)
    library.requested(ctypes.pointer(address), ctypes.pointer(size), ctypes.pointer(most))
    assert most.value == 0
    return address.value, size.value


def completed(library: Library, address: int | None, content: bytes) -> None:
    ctypes.memmove(address or 0, content, len(content))
    library.completed(None, 0, address, 128, len(content))


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
        ("cuptiActivityRegisterCallbacks", lambda cupti: cupti.register(Lender())),
        ("cuptiGetTimestamp", Cupti.clock_offset_ns),
        ("cuptiSubscribe", lambda cupti: cupti.subscribe(print, bool)),
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
    cupti.flush(forced=False)
    assert cupti.dropped() == 42
    assert library.called == [
        ("cuptiGetVersion", ()),
        ("cuptiActivityEnableLatencyTimestamps", (1,)),
        ("cuptiActivityEnable", (10,)),
        ("cuptiActivityDisable", (10,)),
        ("cuptiActivityFlushAll", (1,)),
        ("cuptiActivityFlushAll", (0,)),
        ("cuptiActivityGetNumDroppedRecords", (None, 0)),
    ]


# --- buffers ----------------------------------------------------------------------------------------


def test_buffers_are_lent_and_come_back_with_their_records() -> None:
    cupti, library = opened()
    lender = Lender(buffers=2)
    cupti.register(lender)
    (first, size), (second, _) = requested(library), requested(library)
    assert size == 128
    assert first != second
    completed(library, second, b"second..")
    completed(library, first, b"")
    assert lender.taken == [b"second..", b""]


def test_cupti_gets_no_buffer_where_there_is_none() -> None:
    cupti, library = opened()
    cupti.register(Lender(buffers=0))
    assert requested(library) == (None, 0)


def test_a_buffer_goes_back_to_who_lent_it() -> None:
    cupti, library = opened()
    earlier, later = Lender(), Lender()
    cupti.register(earlier)
    address, _ = requested(library)
    cupti.register(later)
    completed(library, address, b"old.....")
    assert (earlier.taken, later.taken) == ([b"old....."], [])
    assert requested(library)[0] is not None
    assert [name for name, _ in library.called].count("cuptiActivityRegisterCallbacks") == 1


def test_a_buffer_of_another_profiler_is_left_alone() -> None:
    cupti, library = opened()
    lender = Lender()
    cupti.register(lender)
    foreign = ctypes.create_string_buffer(128)
    completed(library, ctypes.addressof(foreign), b"foreign.")
    assert lender.taken == []


def test_buffers_are_promised_to_be_zeroed() -> None:
    cupti, library = opened()
    cupti.register(Lender())
    assert ("cuptiActivitySetAttribute", (5, 1, 1)) in library.called


def test_threads_are_numbered_by_the_system_when_that_is_asked_for() -> None:
    cupti, _library = opened()
    cupti.register(Lender())
    assert not cupti.threads_are_system()
    cupti.number_threads_as_system()
    assert cupti.threads_are_system()


def test_ranges_without_a_domain_go_to_the_one_that_the_package_names() -> None:
    asked: list[str] = []
    package = SimpleNamespace(_get_domain_cached=asked.append)
    name_default_domain(package)
    for name in (None, "app"):
        package._get_domain_cached(name)
    assert asked == ["NVTX", "app"]


def test_an_nvtx_package_of_another_make_is_left_alone() -> None:
    package = SimpleNamespace()
    name_default_domain(package)
    assert vars(package) == {}


def test_the_size_of_a_record_is_where_cupti_finds_the_next_one() -> None:
    cupti, _library = opened()
    memory = np.zeros(120, np.uint8)
    assert cupti.record_size(memory, 120, 0) == 40
    assert cupti.record_size(memory, 120, 40) == 40
    assert cupti.record_size(memory, 120, 80) is None


def test_the_clocks_offset_is_measured() -> None:
    cupti, library = opened()
    library.clock_ahead_ns = 5_000_000_000
    assert abs(cupti.clock_offset_ns() - 5_000_000_000) < 100_000_000


# --- callbacks --------------------------------------------------------------------------------------


def test_entering_one_of_the_functions_is_told_with_its_correlation() -> None:
    cupti, library = opened()
    entered: list[int] = []
    cupti.subscribe(entered.append, lambda name: name == "cuMemcpyHtoDAsync")
    assert library.enabled == [(1, 279)]
    library.call_back(41)
    library.call_back(41, entering=False)
    library.call_back(2**32 - 1)
    assert entered == [41, 2**32 - 1]


def test_another_subscriber_is_named_as_the_reason() -> None:
    cupti, library = opened(cuptiSubscribe=39)
    with pytest.raises(NoDeviceError, match="cuptiSubscribe failed with status 39"):
        cupti.subscribe(print, bool)
    cupti.unsubscribe()
    assert "cuptiUnsubscribe" not in [name for name, _ in library.called]


def test_unsubscribing_ends_the_subscription_once() -> None:
    cupti, library = opened()
    cupti.subscribe(print, lambda name: False)
    cupti.unsubscribe()
    cupti.unsubscribe()
    assert [call for call in library.called if call[0] == "cuptiUnsubscribe"] == [("cuptiUnsubscribe", (99,))]


# --- names ------------------------------------------------------------------------------------------


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
