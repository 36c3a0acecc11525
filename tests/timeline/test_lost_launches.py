"""Launches without an operation: captured, unfinished or lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.timeline.lost_launches import captured_launches, lost_and_unfinished, with_operation
from cudagraph_gate.timeline.table import CALL_COLUMNS, OPERATION_COLUMNS, frame, frame_of

EPOCH_NS = 1_700_000_000_000_000_000
"""Where a double counts in steps of 256 ns."""


def operations(*correlations: int, process: int = 1) -> pd.DataFrame:
    return frame_of(OPERATION_COLUMNS, [{"process": process, "correlation": each} for each in correlations])


def launch(start_ns: int, correlation: int, **more: Any) -> dict[str, Any]:
    row = {"name": "cudaLaunchKernel", "start_ns": start_ns, "correlation": correlation}
    return row | {"process": 1, "thread": 1, "status": 0} | more


def begin(start_ns: int, **more: Any) -> dict[str, Any]:
    return launch(start_ns, 0, name="cudaStreamBeginCapture_v10000", **more)


def end(start_ns: int, **more: Any) -> dict[str, Any]:
    return launch(start_ns, 0, name="cudaStreamEndCapture", **more)


def counts(ran: pd.DataFrame, *rows: dict[str, Any], captured: list[bool] | None = None) -> tuple[int, int]:
    calls = frame_of(CALL_COLUMNS, rows)
    return lost_and_unfinished(ran, calls, np.array(captured or [False] * len(rows), dtype=np.bool_))


def captured(ran: pd.DataFrame, *rows: dict[str, Any]) -> list[int]:
    """The correlations of the captured launches."""
    calls = frame_of(CALL_COLUMNS, rows)
    launches = calls[calls["correlation"] != 0]
    return launches["correlation"][captured_launches(ran, launches, calls)].tolist()


# --- lost and unfinished --------------------------------------------------------------------------
def test_before_the_last_launch_that_ran_it_is_a_loss_and_after_it_unfinished() -> None:
    assert counts(operations(2), launch(0, 1), launch(1, 2), launch(2, 3), launch(3, 4)) == (1, 2)


def test_the_order_of_the_rows_does_not_matter() -> None:
    assert counts(operations(2), launch(3, 4), launch(1, 2), launch(2, 3), launch(0, 1)) == (1, 2)


def test_a_nanosecond_since_the_epoch_counts() -> None:
    ran, after = launch(EPOCH_NS, 1), launch(EPOCH_NS + 1, 2)
    assert counts(operations(1), ran, after) == (0, 1)


def test_each_thread_has_a_last_launch_of_its_own() -> None:
    rows = [launch(1, 1), launch(9, 2, thread=2), launch(5, 3), launch(5, 4, thread=2)]
    assert counts(operations(1, 2), *rows) == (1, 1)


def test_a_thread_of_which_nothing_ran_is_judged_by_its_process() -> None:
    rows = [launch(5, 1), launch(4, 2, thread=2), launch(6, 3, thread=2)]
    assert counts(operations(1), *rows) == (1, 1)


def test_a_process_of_which_nothing_ran_lost_all() -> None:
    assert counts(operations(1), launch(1, 1), launch(2, 1, process=2), launch(3, 2, process=2)) == (2, 0)


def test_calls_are_joined_by_process_and_correlation() -> None:
    ran = pd.concat([operations(1), operations(2, process=2)])
    rows = [launch(1, 1), launch(2, 2), launch(3, 1, process=2), launch(4, 2, process=2)]
    assert with_operation(ran, frame_of(CALL_COLUMNS, rows)).tolist() == [True, False, False, True]
    assert counts(ran, *rows) == (1, 1)


def test_no_correlation_finds_no_operation() -> None:
    assert counts(operations(0, 2), launch(1, 0), launch(2, 2)) == (1, 0)


def test_failed_and_captured_launches_need_no_operation() -> None:
    rows = [launch(1, 1, status=700), launch(2, 2), launch(3, 3)]
    assert counts(operations(3), *rows, captured=[False, True, False]) == (0, 0)


def test_without_launches_nothing_is_lost() -> None:
    none = np.zeros(0, dtype=np.bool_)
    calls = frame(CALL_COLUMNS)
    assert lost_and_unfinished(operations(1), calls, none) == (0, 0)
    assert captured_launches(operations(1), calls, calls).tolist() == []


def test_without_operations_all_is_lost() -> None:
    assert counts(frame(OPERATION_COLUMNS), launch(1, 1), launch(2, 2)) == (2, 0)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3), st.booleans()), max_size=12))
def test_the_counts_are_those_of_a_plain_search(rows: list[tuple[int, int, bool]]) -> None:
    launches = [launch(at, at, process=row[0], thread=row[1]) for at, row in enumerate(rows, 1)]
    made = [{"process": row[0], "correlation": at} for at, row in enumerate(rows, 1) if row[2]]
    lost = unfinished = 0
    for at, (process, thread, ran) in enumerate(rows, 1):
        of_process = [when for when, row in enumerate(rows, 1) if row[0] == process and row[2]]
        own = [when for when in of_process if rows[when - 1][1] == thread] or of_process
        after = bool(own) and at > max(own)
        lost, unfinished = lost + (not ran and not after), unfinished + (not ran and after)
    found = counts(frame_of(OPERATION_COLUMNS, made), *launches)
    assert found == (lost, unfinished)


# --- captured -------------------------------------------------------------------------------------
def test_what_lies_between_begin_and_end_is_captured() -> None:
    rows = [launch(1, 1), begin(2), launch(3, 3), launch(4, 4), end(5), launch(6, 6)]
    assert captured(operations(), *rows) == [3, 4]


@pytest.mark.parametrize("other", [{"thread": 2}, {"process": 2}])
def test_a_capture_covers_its_own_thread_only(other: dict[str, int]) -> None:
    rows = [begin(1, **other), launch(2, 2), launch(3, 3, **other), end(4, **other)]
    assert captured(operations(), *rows) == [3]


def test_a_launch_that_ran_is_not_captured() -> None:
    assert captured(operations(2), begin(1), launch(2, 2), launch(3, 3), end(4)) == [3]


def test_a_capture_without_its_end_is_over_at_the_next_launch_that_ran() -> None:
    rows = [begin(1), launch(2, 2), launch(3, 3, thread=2), launch(4, 4), launch(5, 5)]
    assert captured(operations(3, 4), *rows) == [2]
    assert captured(operations(3), *rows) == [2, 4, 5]


def test_a_capture_without_its_begin_began_after_the_last_launch_that_ran() -> None:
    rows = [launch(1, 1), launch(2, 2), launch(3, 3), end(4), launch(5, 5)]
    assert captured(operations(2), *rows) == [3]
    assert captured(operations(), *rows) == [1, 2, 3]


def test_captures_of_two_streams_may_lie_in_each_other() -> None:
    rows = [begin(1), begin(2), launch(3, 3), end(4), launch(5, 5), end(6), launch(7, 7)]
    assert captured(operations(), *rows) == [3, 5]


def test_a_capture_that_could_not_begin_covers_nothing() -> None:
    assert captured(operations(), begin(1, status=900), launch(2, 2)) == []
