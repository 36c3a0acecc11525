"""Completed buffers go to a file, their memory is lent again, and nothing is lost without being counted."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cupti_records import LAYOUTS, NEWEST_SIZES, TEXTS, SizeByKind, collected, record
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.errors import EvidenceError
from cudagraph_gate.timeline.cupti_spool import MOST_WAITING, READY_BUFFERS, Names, Spool

BUFFER_BYTES = 4096
START, END = 2, 4


class Texts:
    """Reads texts once each: afterwards they are gone."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __call__(self, pointer: int) -> str:
        assert pointer not in self.read
        self.read.append(pointer)
        return TEXTS[pointer]


def names(read_text: Callable[[int], str] | None = None) -> Names:
    return Names(LAYOUTS, SizeByKind(NEWEST_SIZES), read_text or Texts())


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(names(), tmp_path, buffer_bytes=BUFFER_BYTES)
    yield made
    made.close()


def give(spool: Spool, content: bytes) -> int:
    """Fill a lent buffer as CUPTI does; returns its address."""
    address, size = spool.lend()
    assert size == BUFFER_BYTES
    memory = _memory(address)
    assert not memory.any(), "CUPTI was told that buffers are zeroed"
    memory[: len(content)] = np.frombuffer(content, np.uint8)
    spool.take(address, len(content))
    return address


def _memory(address: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_uint8 * BUFFER_BYTES).from_address(address))


def kernels(*correlations: int, name: int = 100) -> bytes:
    return b"".join(record(10, correlation_id=number, name=name) for number in correlations)


def correlations(spool: Spool) -> list[int]:
    copies = [(memory[:valid].copy(), valid) for memory, valid in spool.buffers()]
    found: list[int] = collected(*copies)[10]["correlation_id"].tolist()
    return found


def test_buffers_come_back_from_the_file_in_order(spool: Spool) -> None:
    for first in range(0, 60, 3):
        give(spool, kernels(first, first + 1, first + 2))
    spool.settle()
    assert correlations(spool) == list(range(60))
    assert spool.recorded_bytes == 60 * len(kernels(0))
    assert (spool.dropped, spool.problems) == (0, [])


@given(st.lists(st.integers(0, 12), max_size=30))
def test_every_record_comes_back_once_however_buffers_are_filled(counts: list[int]) -> None:
    spool, number = Spool(names(), buffer_bytes=BUFFER_BYTES), 0
    for count in counts:
        give(spool, kernels(*range(number, number + count)))
        number += count
    spool.settle()
    assert (correlations(spool) if number else []) == list(range(number))
    spool.close()


def test_memory_is_lent_again_and_does_not_grow_with_the_recording(spool: Spool) -> None:
    used = set()
    for number in range(200):
        used.add(give(spool, kernels(number)))
        spool.settle()
    assert len(used) <= READY_BUFFERS + 1


def test_a_buffer_that_comes_back_empty_leaves_nothing(spool: Spool) -> None:
    give(spool, b"")
    spool.settle()
    assert list(spool.buffers()) == []


def test_the_file_has_no_name_so_that_it_is_gone_with_the_process(spool: Spool, tmp_path: Path) -> None:
    give(spool, kernels(1))
    spool.settle()
    assert list(tmp_path.iterdir()) == []


def test_texts_are_read_when_a_buffer_comes_back_and_once(tmp_path: Path) -> None:
    texts = Texts()
    read = names(texts)
    spool = Spool(read, tmp_path, buffer_bytes=BUFFER_BYTES)
    give(spool, kernels(1, 2, name=200) + kernels(3))
    give(spool, record(12, name=300, domain=400, flags_=START) + kernels(4, name=200))
    spool.settle()
    assert sorted(texts.read) == [100, 200, 300, 400]
    assert [read.text(pointer) for pointer in (0, 100, 300)] == ["", "scale", "request"]
    spool.close()


def test_ends_of_the_counted_ranges_are_counted_over_buffers() -> None:
    read = names()
    read.counted_range = "request"
    spool = Spool(read, buffer_bytes=BUFFER_BYTES)
    give(spool, record(12, id=1, flags_=START, name=300) + record(12, id=2, flags_=START, name=500))
    give(spool, record(12, id=2, flags_=END) + record(12, id=1, flags_=END))
    give(spool, record(12, id=3, flags_=START, name=300))
    spool.settle()
    assert read.ended == 1
    spool.close()


# --- when it goes wrong -----------------------------------------------------------------------------


def test_what_a_full_disk_loses_is_counted(tmp_path: Path) -> None:
    room = [len(kernels(1, 2))]

    def limited(descriptor: int, data: memoryview, offset: int) -> int:
        if offset >= room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.pwrite(descriptor, data[:100], offset)  # a piece at a time, as write may

    spool = Spool(names(), tmp_path, buffer_bytes=BUFFER_BYTES, write=limited)
    give(spool, kernels(1, 2))
    give(spool, kernels(3, 4, 5))
    give(spool, kernels(6))
    spool.settle()
    assert spool.dropped == 4
    assert spool.problems == ["the recording ended early: it can't be written (No space left on device)"]
    assert correlations(spool) == [1, 2]
    spool.close()


def test_a_buffer_that_can_not_be_read_does_not_end_the_writer(tmp_path: Path) -> None:
    spool = Spool(names(), tmp_path, buffer_bytes=BUFFER_BYTES)
    give(spool, np.array([77, 0], np.uint64).tobytes())  # the iterator of this test knows no such kind
    give(spool, kernels(1))
    spool.settle()
    assert spool.dropped == 2
    assert spool.problems == ["a buffer of records can't be read (77)"]
    spool.close()


def test_a_writer_that_is_far_behind_makes_lending_wait(tmp_path: Path) -> None:
    reading, caught_up = threading.Event(), threading.Event()

    def slow(pointer: int) -> str:
        reading.set()
        caught_up.wait(20)
        return TEXTS[pointer]

    spool = Spool(names(slow), tmp_path, buffer_bytes=BUFFER_BYTES)
    give(spool, kernels(0))
    reading.wait(20)
    for number in range(MOST_WAITING):
        give(spool, kernels(number))
    lent: list[tuple[int, int]] = []
    waiting = threading.Thread(target=lambda: lent.append(spool.lend()))
    waiting.start()
    assert not lent
    caught_up.set()
    waiting.join()
    assert lent[0][1] == BUFFER_BYTES
    spool.close()


def test_records_that_another_profiler_took_are_missed(spool: Spool) -> None:
    give(spool, kernels(1))
    empty, _ = spool.lend()
    taken, _ = spool.lend()
    _memory(taken)[:208] = np.frombuffer(kernels(2)[:208], np.uint8)
    assert empty != taken
    spool.miss()
    assert spool.dropped == 1
    assert spool.problems == [
        "1 record buffers did not come back: another profiler of this process took them"
    ]


def test_a_folder_that_can_not_be_written_to_is_named(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="can't write the recording") as caught:
        Spool(names(), tmp_path / "missing")
    assert caught.value.where == str(tmp_path / "missing")
