"""Submissions, the gaps between them, TKLQT and blocking calls, computed by hand."""

from __future__ import annotations

from made_timelines import call, diagnosed, kernel, sync

from cudagraph_gate.model import CallSummary, Distribution, NotMeasured


def test_submissions_are_calls_that_submitted_operations() -> None:
    rows = [kernel(10, 20, 1), kernel(30, 40, 2), kernel(50, 60)]
    launches = diagnosed(rows, [call(0, 5, 1), call(6, 9, 2), call(10, 20, 3, name="cuMemAlloc")]).launches
    assert launches.submissions == 2


def test_the_call_before_the_first_operation_belongs_to_the_window() -> None:
    launches = diagnosed(
        [kernel(100, 110, 1), kernel(120, 130, 2)], [call(0, 5, 1), call(105, 115, 2)]
    ).launches
    assert launches.submissions == 2
    assert launches.tklqt_ns == 100 + 15


def test_submissions_that_do_not_touch_the_window_are_left_out() -> None:
    rows = [kernel(10, 20, 1), kernel(100, 110, 2)]
    launches = diagnosed(rows, [call(0, 5, 1), call(90, 95, 2)], window=(80, 120)).launches
    assert (launches.submissions, launches.tklqt_ns) == (1, 10)


def test_submission_gaps_run_from_end_to_start_on_each_thread() -> None:
    rows = [kernel(100 + number, 200, number) for number in range(1, 6)]
    calls = [
        call(0, 10, 1),
        call(30, 40, 2),
        call(35, 45, 3),
        call(20, 25, 4, thread=11),
        call(60, 65, 5, thread=11),
    ]
    gap = diagnosed(rows, calls, window=(0, 200)).launches.submission_gap
    assert isinstance(gap, Distribution)
    assert (gap.count, gap.minimum, gap.p50, gap.maximum) == (3, 0, 20, 35)


def test_one_submission_has_no_gap() -> None:
    gap = diagnosed([kernel(10, 20, 1)], [call(0, 5, 1)]).launches.submission_gap
    assert gap == NotMeasured(reason="fewer than two submission calls on any thread")


def test_a_graph_launch_is_charged_once_in_tklqt() -> None:
    nodes = [kernel(start, start + 5, 1, graph=4, node=start) for start in (50, 60, 70)]
    rows = [*nodes, kernel(100, 110, 2), kernel(120, 130, 3, kind="memcpy")]
    launches = diagnosed(
        rows, [call(30, 40, 1, name="cuGraphLaunch"), call(80, 85, 2), call(86, 87, 3)]
    ).launches
    assert launches.graph_launches == 1
    assert launches.tklqt_ns == (50 - 30) + (100 - 80)


def test_graph_launches_are_known_by_nodes_or_by_call() -> None:
    rows = [kernel(0, 10, 1, graph=4), kernel(20, 30, 2, graph=4), kernel(40, 50, 2, graph=4)]
    calls = [call(15, 18, 2, name="cuGraphLaunch"), call(32, 34, 3, name="cudaGraphLaunch")]
    assert diagnosed(rows, calls).launches.graph_launches == 3


def test_without_calls_nothing_is_said_of_submission() -> None:
    launches = diagnosed([kernel(10, 20, 1), kernel(30, 40, 2)], [sync(0, 40)], level="light").launches
    reason = NotMeasured(reason="no submission call is recorded in the window (level light)")
    assert (launches.submissions, launches.submission_gap, launches.tklqt_ns) == (0, reason, reason)


def test_blocking_calls_are_summed_by_name_inside_the_window() -> None:
    calls = [
        sync(-10, 20),
        sync(30, 40),
        sync(60, 95, name="cuEventSynchronize"),
        call(40, 50),
        sync(300, 400),
    ]
    launches = diagnosed([kernel(0, 100)], calls).launches
    assert launches.blocking_calls == (
        CallSummary(name="cuEventSynchronize", count=1, total_ns=35),
        CallSummary(name="cuStreamSynchronize", count=2, total_ns=30),
    )
