"""Busy time, window and graph launches of a recording's operations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.timeline.busy import busy_ns, graph_launches, union_ns, window_ns
from cudagraph_gate.timeline.table import OPERATION_COLUMNS, frame, frame_of


def union(*intervals: tuple[int, int]) -> int:
    starts, ends = (np.array([each[side] for each in intervals], np.int64) for side in (0, 1))
    return union_ns(starts, ends)


@pytest.mark.parametrize(
    ("intervals", "length"),
    [
        ((), 0),
        (((5, 9),), 4),
        (((0, 4), (4, 6)), 6),
        (((0, 4), (10, 12)), 6),
        (((0, 10), (2, 3), (9, 12)), 12),
        (((10, 12), (0, 4)), 6),
        (((0, 10), (0, 10)), 10),
        (((3, 3), (7, 5)), 0),
    ],
)
def test_union_of_intervals_in_any_order(intervals: tuple[tuple[int, int], ...], length: int) -> None:
    assert union(*intervals) == length


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12))
def test_the_union_counts_each_covered_ns_once(intervals: list[tuple[int, int]]) -> None:
    assert union(*intervals) == len({ns for start, end in intervals for ns in range(start, end)})


def test_busy_and_window_are_over_all_streams() -> None:
    rows = [
        {"kind": "kernel", "start_ns": 100, "end_ns": 200, "stream": 13},
        {"kind": "memcpy", "start_ns": 150, "end_ns": 250, "stream": 14},
        {"kind": "memset", "start_ns": 400, "end_ns": 410, "stream": 13},
    ]
    operations = frame_of(OPERATION_COLUMNS, rows)
    assert (busy_ns(operations), window_ns(operations)) == (160, 310)


def test_a_graph_launch_is_counted_once_however_many_nodes_it_has() -> None:
    rows = [
        {"process": 1, "correlation": 7, "graph": 3},
        {"process": 1, "correlation": 7, "graph": 3},
        {"process": 1, "correlation": 8, "graph": 3},
        {"process": 2, "correlation": 8, "graph": 5},
        {"process": 1, "correlation": 9, "graph": 0},
    ]
    assert graph_launches(frame_of(OPERATION_COLUMNS, rows)) == 3


def test_no_operation_is_no_time() -> None:
    nothing = frame(OPERATION_COLUMNS)
    assert (busy_ns(nothing), window_ns(nothing), graph_launches(nothing)) == (0, 0, 0)
