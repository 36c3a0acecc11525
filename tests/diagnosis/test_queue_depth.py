"""Queue depth over the window, computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_timelines import Row, call, diagnosed, kernel, timeline

from cudagraph_gate.diagnosis.queue_depth import queue_depth_of
from cudagraph_gate.diagnosis.submission import operations_with_submission
from cudagraph_gate.model import NotMeasured, QueueDepth


def depth(rows: list[Row], calls: list[Row], window: tuple[int, int] | None = None) -> QueueDepth:
    found = diagnosed(rows, calls, window=window).launches.queue_depth
    assert isinstance(found, QueueDepth)
    return found


def test_an_operation_is_queued_from_its_call_to_its_end() -> None:
    found = depth([kernel(30, 60, 1)], [call(20, 25, 1)], window=(0, 120))
    assert (found.mean, found.maximum) == (40 / 120, 1)
    assert found.empty_share == 80 / 120
    assert found.over_time == (0.0,) * 10 + (1.0,) * 20 + (0.0,) * 30


def test_operations_that_are_queued_together_add_up() -> None:
    rows = [kernel(30, 60, 1), kernel(60, 90, 2), kernel(90, 120, 3)]
    found = depth(rows, [call(0, 5, 1), call(6, 9, 2), call(60, 70, 3)], window=(0, 120))
    assert (found.mean, found.maximum, found.empty_share) == ((60 + 84 + 60) / 120, 2, 0.0)
    assert (found.over_time[0], found.over_time[20], found.over_time[-1]) == (1.0, 2.0, 1.0)


def test_an_operation_that_ends_as_the_next_one_is_submitted_leaves_the_queue_first() -> None:
    assert depth([kernel(10, 20, 1), kernel(25, 30, 2)], [call(5, 8, 1), call(20, 22, 2)]).maximum == 1


def test_a_graph_launch_counts_once_until_its_last_node() -> None:
    nodes = [kernel(40, 50, 1, graph=4), kernel(45, 70, 1, graph=4, stream=8), kernel(80, 90, 2)]
    found = depth(nodes, [call(20, 30, 1, name="cuGraphLaunch"), call(60, 65, 2)], window=(0, 100))
    assert (found.mean, found.maximum) == ((50 + 30) / 100, 2)


def test_a_stamp_stands_for_a_call_and_an_unknown_submission_for_nothing_before_the_start() -> None:
    rows = [kernel(20, 40, 1, queued_ns=10), kernel(60, 70, 2)]
    found = depth(rows, [], window=(0, 100))
    assert (found.mean, found.empty_share) == (0.4, 0.6)


def test_only_the_part_inside_the_window_counts() -> None:
    rows = [kernel(20, 200, 1), kernel(300, 400, 2)]
    found = depth(rows, [call(-50, -40, 1), call(280, 290, 2)], window=(0, 100))
    assert (found.mean, found.maximum, found.empty_share) == (1.0, 1, 0.0)


def test_where_no_submission_is_recorded_the_depth_is_not_known() -> None:
    found = diagnosed([kernel(0, 10), kernel(20, 30)]).launches.queue_depth
    assert found == NotMeasured(reason="no submission of an operation is recorded")
    assert isinstance(diagnosed([]).launches.queue_depth, NotMeasured)


def test_long_windows_stay_exact() -> None:
    day = 86_400_000_000_000
    base = 1_700_000_000_000_000_000
    rows = [kernel(base + 5, base + day, number) for number in range(1, 201)]
    calls = [call(base, base + 1, number) for number in range(1, 201)]
    assert depth(rows, calls, window=(base, base + day)).mean == 200.0


@given(
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 20), st.integers(1, 40)), min_size=1),
    st.tuples(st.integers(0, 60), st.integers(1, 60)),
)
def test_depth_is_what_counting_each_nanosecond_gives(
    drawn: list[tuple[int, int, int]], span: tuple[int, int]
) -> None:
    rows = [kernel(at + wait, at + wait + run, n) for n, (at, wait, run) in enumerate(drawn, start=1)]
    calls = [call(at, at + 1, n) for n, (at, _, _) in enumerate(drawn, start=1)]
    window = (span[0], span[0] + span[1])
    counted = [sum(at <= moment < at + wait + run for at, wait, run in drawn) for moment in range(*window)]
    found = queue_depth_of(operations_with_submission(timeline(rows, calls)), window)
    assert isinstance(found, QueueDepth)
    assert found.mean == pytest.approx(sum(counted) / span[1])
    assert (found.maximum, found.empty_share) == (max(counted), counted.count(0) / span[1])
    assert len(found.over_time) == 60
