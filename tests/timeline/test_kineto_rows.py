"""Columns of events: numbers, threads and times as files write them."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.timeline.kineto_events import Arguments, Event
from cudagraph_gate.timeline.kineto_rows import (
    BAD_NUMBER,
    CALLS,
    CPU_OPS,
    KERNELS,
    Columns,
    nanoseconds,
    thread_number,
    whole_number,
)

EXACT_UNTIL_NS = 2**43 * 1000


@given(st.integers(0, EXACT_UNTIL_NS))
def test_times_with_three_decimals_are_exact_to_101_days(time_ns: int) -> None:
    assert nanoseconds(np.array([float(Decimal(time_ns) / 1000)])).tolist() == [time_ns]


@given(st.integers(0, 9_000_000_000_000_000))
def test_whole_microseconds_are_exact_until_2255(time_us: int) -> None:
    assert nanoseconds(np.array([float(time_us)])).tolist() == [time_us * 1000]


@pytest.mark.parametrize(
    ("written", "number"),
    [(None, 0), (7, 7), ("7", 7), ("-1", -1), ("0x10", 16), ("stream 22", 22), (True, 1)],
)
def test_numbers_are_read_as_files_write_them(written: int | str | None, number: int) -> None:
    assert whole_number(written) == number


@pytest.mark.parametrize("written", ["", "none", "0xzz", 2**63, "9" * 30, "0x" + "f" * 20])
def test_what_is_no_number_of_64_bits_is_none(written: int | str) -> None:
    assert whole_number(written) is None


def test_threads_named_without_digits_get_numbers_of_their_own() -> None:
    named = [thread_number(name) for name in ("main", "worker", "main")]
    assert named[0] == named[2] != named[1]
    assert thread_number("24572") == 24572
    assert thread_number(None) == 0


def test_lists_of_events_become_one_table() -> None:
    columns = Columns()
    for start in (1.0, 5.0):
        columns.add(
            [Event(ph="X", cat="kernel", name="k", ts=start, dur=2, args=Arguments(device=1, stream=3))]
        )
    table = columns.table(KERNELS)
    assert table["start_ns"].tolist() == [1000, 5000]
    assert table["end_ns"].tolist() == [3000, 7000]
    assert (table["device"].tolist(), table["stream"].tolist()) == ([1, 1], [3, 3])
    assert columns.table(CALLS) == {}


def kernels(*arguments: Arguments | None, tid: int | str = 5) -> Columns:
    columns = Columns()
    columns.add(
        [Event(ph="X", cat="kernel", name="k", pid=2, tid=tid, ts=1, dur=1, args=each) for each in arguments]
    )
    return columns


def test_one_odd_value_leaves_the_rest_of_its_column_as_it_is() -> None:
    columns = kernels(Arguments(correlation=2**62), Arguments(correlation="8"), Arguments(correlation=2**64))
    assert columns.table(KERNELS)["correlation"].tolist() == [2**62, 8, 0]
    assert dict(columns.lost) == {(KERNELS, BAD_NUMBER): 1}


def test_device_and_stream_are_the_places_only_where_a_row_has_none() -> None:
    table = kernels(Arguments(device=0, stream="7"), None, tid="stream 9").table(KERNELS)
    assert (table["device"].tolist(), table["stream"].tolist()) == ([0, 2], [7, 9])


def test_a_shape_beyond_64_bits_counts_as_none() -> None:
    columns = kernels(Arguments(device=0, stream=0, grid=(2, 2**70, 3)), Arguments(device=0, stream=0))
    table = columns.table(KERNELS)
    assert [table[f"grid_{side}"].tolist() for side in "xyz"] == [[2, 0], [0, 0], [3, 0]]
    assert dict(columns.lost) == {(KERNELS, BAD_NUMBER): 1}


def test_names_share_their_codes_over_tables() -> None:
    columns = Columns()
    columns.add(
        [Event(ph="X", cat=cat, name=name, ts=1, dur=1) for cat, name in (("cpu_op", "a"), ("runtime", "a"))]
    )
    assert list(columns.names) == ["a"]
    assert columns.table(CPU_OPS)["name"].tolist() == columns.table(CALLS)["name"].tolist() == [0]


def test_events_of_no_table_are_counted_by_category() -> None:
    columns = Columns()
    columns.add([Event(ph="X", cat="mtia_runtime", ts=1, dur=1), Event(ph="M"), Event(ph="s", cat="ac2g")])
    assert dict(columns.categories) == {"mtia_runtime": 1}
    assert columns.any_events
