"""Submissions, the gaps between them, TKLQT and blocking calls, computed by hand."""

from __future__ import annotations

from made_timelines import call, diagnosed, kernel, sync

from cudagraph_gate.model import CallSummary, Distribution, Histogram, NotMeasured


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


def test_each_thread_has_its_own_gaps_the_busiest_first() -> None:
    rows = [kernel(5_000 + number, 6_000, number) for number in range(1, 6)]
    calls = [
        call(0, 10, 1, thread=11),
        call(20, 30, 2),
        call(180, 190, 3),
        call(200, 210, 4),
        call(900, 905, 5, thread=11),
    ]
    first, second = diagnosed(rows, calls, window=(0, 9_000)).launches.threads
    assert (first.process, first.thread, first.submissions) == (1, 10, 3)
    assert isinstance(first.gap, Distribution)
    assert (first.gap.minimum, first.gap.maximum) == (10, 150)
    assert first.histogram == Histogram(lower_ns=(0, 100), counts=(1, 1))
    assert (second.thread, second.histogram) == (11, Histogram(lower_ns=(500,), counts=(1,)))


def test_a_thread_with_one_call_has_no_gap() -> None:
    (thread,) = diagnosed([kernel(10, 20, 1)], [call(0, 5, 1)]).launches.threads
    reason = NotMeasured(reason="the thread made one submission call")
    assert (thread.submissions, thread.gap, thread.histogram) == (1, reason, reason)
    assert diagnosed([kernel(10, 20)]).launches.threads == ()


def test_threads_of_two_processes_with_one_number_are_two() -> None:
    rows = [kernel(10, 20, 1), kernel(10, 20, 1, process=2)]
    launches = diagnosed(rows, [call(0, 5, 1), call(0, 5, 1, process=2)]).launches
    assert [one.process for one in launches.threads] == [1, 2]


def test_submission_calls_are_counted_by_function() -> None:
    rows = [kernel(10, 20, 1), kernel(30, 40, 2), kernel(50, 60, 3)]
    calls = [call(0, 5, 1), call(6, 9, 2), call(20, 30, 3, name="cuGraphLaunch"), call(11, 19, 4)]
    assert diagnosed(rows, calls).launches.by_call == (
        CallSummary(name="cuGraphLaunch", count=1, total_ns=10),
        CallSummary(name="cuLaunchKernel", count=2, total_ns=8),
    )


def test_blocking_calls_tell_the_five_sites_with_the_most_time() -> None:
    calls = [sync(10 * at, 10 * at + at, site=f"train.py:{at} step") for at in range(1, 8)]
    calls += [sync(80, 86, site="train.py:7 step"), sync(90, 99)]
    (summary,) = diagnosed([kernel(0, 100)], calls).launches.blocking_calls
    assert (summary.count, summary.total_ns) == (9, 28 + 6 + 9)
    assert [(site.where, site.count, site.total_ns) for site in summary.sites] == [
        ("train.py:7 step", 2, 13),
        ("train.py:6 step", 1, 6),
        ("train.py:5 step", 1, 5),
        ("train.py:4 step", 1, 4),
        ("train.py:3 step", 1, 3),
    ]
