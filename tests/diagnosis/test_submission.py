"""The join of calls and operations, for dense and for scattered correlations and several processes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_timelines import call, kernel, sync, timeline

from cudagraph_gate.diagnosis.submission import (
    BEGIN_NS,
    CALL_ROW,
    FINISH_NS,
    SUBMITTER,
    group_codes,
    launch_keys,
    operations_with_submission,
    outermost,
)

FAR = 2**61


@pytest.mark.parametrize("step", [1, 10**6, FAR])
def test_calls_are_found_by_process_and_correlation(step: int) -> None:
    rows = [kernel(10, 20, step), kernel(30, 40, 2 * step, process=2), kernel(50, 60, 2 * step)]
    calls = [call(5, 8, 2 * step), call(1, 4, step, thread=11), call(22, 25, 2 * step, process=2, thread=12)]
    joined = operations_with_submission(timeline(rows, calls))
    assert joined[CALL_ROW].tolist() == [1, 2, 0]
    assert joined[BEGIN_NS].tolist() == [1, 22, 5]
    assert joined[FINISH_NS].tolist() == [4, 25, 8]
    assert joined[SUBMITTER].tolist() == [11, 12, 10]


@pytest.mark.parametrize("step", [1, 10**9])
def test_without_a_call_stamps_stand_in_and_without_stamps_zero(step: int) -> None:
    rows = [
        kernel(10, 20, step),
        kernel(30, 40, 2 * step, queued_ns=25, submitted_ns=28),
        kernel(50, 60, 0, submitted_ns=45),
        kernel(70, 80, 4 * step),
    ]
    joined = operations_with_submission(timeline(rows, [call(1, 4, step), call(2, 3, 0)]))
    assert joined[CALL_ROW].tolist() == [0, -1, -1, -1]
    assert joined[BEGIN_NS].tolist() == [1, 25, 45, 0]
    assert joined[FINISH_NS].tolist() == [4, 28, 45, 0]
    assert joined[SUBMITTER].tolist() == [10, 0, 0, 0]


def test_operations_in_order_share_their_columns_with_the_timeline() -> None:
    recorded = timeline([kernel(10, 20, 1), kernel(30, 40, 2)])
    joined = operations_with_submission(recorded)
    assert np.shares_memory(joined["start_ns"].to_numpy(), recorded.operations["start_ns"].to_numpy())


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0, 1, 5, FAR, 2 * FAR - 1])), max_size=8))
def test_keys_are_equal_where_process_and_correlation_are(rows: list[tuple[int, int]]) -> None:
    one = timeline([kernel(0, 1, correlation, process=process) for process, correlation in rows]).operations
    other = timeline([], [call(0, 1, correlation, process=process) for process, correlation in rows]).calls
    keys, again = (found.tolist() for found in launch_keys(one, other))
    assert keys == again
    assert all(key >= 0 for key in keys)
    assert len(set(keys)) == len(set(rows))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=8))
def test_group_codes_follow_the_order_of_the_columns(rows: list[tuple[int, int]]) -> None:
    frame = timeline([kernel(0, 1, context=context, stream=stream) for context, stream in rows]).operations
    codes = group_codes(frame, ("context", "stream")).tolist()
    pairs = sorted(set(zip(rows, codes, strict=True)))
    assert [code for _, code in pairs] == sorted({code for _, code in pairs})
    assert len(pairs) == len(set(rows))


def test_outermost_calls_of_each_thread_in_time_order() -> None:
    calls = [sync(12, 15), sync(10, 20), sync(20, 30), sync(11, 40, thread=11), sync(12, 13, process=2)]
    kept = outermost(timeline([], calls).calls)
    assert kept["start_ns"].tolist() == [10, 20, 11, 12]
    assert outermost(timeline().calls).empty
