"""Each cause of idle time, computed by hand, and all of them against a reference that walks ns by ns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_timelines import Row, call, causes, diagnosed, kernel, overhead, request, sync, timeline

from cudagraph_gate.diagnosis.idle import idle_of_devices
from cudagraph_gate.diagnosis.submission import operations_with_submission
from cudagraph_gate.model import Cause

BEFORE = kernel(0, 100, 1)
AFTER = kernel(200, 300, 2)
FIRST_CALL = call(-50, -10, 1)


def gap(*calls: Row, after: Row = AFTER, **others: Any) -> dict[Cause, int]:
    """Causes of the idle interval 100 to 200 between two kernels."""
    return causes(diagnosed([BEFORE, after], [FIRST_CALL, *calls], window=(0, 300), **others))


def test_time_before_the_submission_call_is_host_work() -> None:
    assert gap(call(150, 180, 2)) == {Cause.HOST_WORK: 50, Cause.HOST_API: 30, Cause.LAUNCH_LATENCY: 20}


def test_other_calls_of_the_thread_are_host_api() -> None:
    allocation = call(120, 140, 9, name="cuMemAlloc")
    expected = {Cause.HOST_WORK: 30, Cause.HOST_API: 50, Cause.LAUNCH_LATENCY: 20}
    assert gap(allocation, call(150, 180, 2)) == expected


def test_calls_of_another_thread_do_not_count() -> None:
    foreign = [sync(100, 150, thread=11), call(100, 150, 9, thread=11)]
    assert gap(*foreign, call(150, 200, 2)) == {Cause.HOST_WORK: 50, Cause.HOST_API: 50}


def test_a_blocking_call_before_the_submission_is_sync() -> None:
    assert gap(sync(20, 130), call(150, 200, 2)) == {Cause.SYNC: 30, Cause.HOST_WORK: 20, Cause.HOST_API: 50}


def test_a_blocking_call_inside_another_call_is_sync() -> None:
    free = call(100, 150, 9, name="cudaFree")
    assert gap(free, sync(110, 150), call(150, 200, 2)) == {Cause.HOST_API: 60, Cause.SYNC: 40}


def test_a_blocking_submission_is_sync_until_its_operation_starts() -> None:
    copy = call(160, 320, 2, name="cuMemcpyDtoH", blocking=True)
    assert gap(copy) == {Cause.HOST_WORK: 60, Cause.SYNC: 40}


def test_work_that_its_own_stream_delayed_is_launch_latency() -> None:
    assert gap(call(10, 50, 2)) == {Cause.LAUNCH_LATENCY: 100}


def test_work_submitted_early_to_a_free_stream_waits_for_a_dependency() -> None:
    assert gap(call(10, 50, 2), after=AFTER | {"stream": 8}) == {Cause.DEPENDENCY: 100}


def test_a_call_that_ends_within_the_gap_is_no_dependency() -> None:
    late = gap(call(10, 110, 2), after=AFTER | {"stream": 8})
    assert late == {Cause.HOST_API: 10, Cause.LAUNCH_LATENCY: 90}


def test_time_between_nodes_of_one_launch_is_graph_gap() -> None:
    nodes = [kernel(0, 100, 1, graph=5, node=1), kernel(130, 200, 1, graph=5, node=2)]
    assert causes(diagnosed(nodes, [call(-50, -10, 1, name="cuGraphLaunch")])) == {Cause.GRAPH_GAP: 30}


def test_time_between_two_launches_of_a_graph_is_not_graph_gap() -> None:
    nodes = [kernel(0, 100, 1, graph=5, node=1), kernel(130, 200, 2, graph=5, node=1)]
    launches = [call(-50, -10, 1, name="cuGraphLaunch"), call(100, 120, 2, name="cuGraphLaunch")]
    assert causes(diagnosed(nodes, launches)) == {Cause.HOST_API: 20, Cause.LAUNCH_LATENCY: 10}


def test_without_a_submission_the_cause_is_unknown() -> None:
    assert gap() == {Cause.UNKNOWN: 100}


def test_recorder_overhead_is_taken_out_first() -> None:
    rows = (
        [BEFORE, AFTER],
        [FIRST_CALL, call(150, 200, 2)],
        [],
        [overhead(90, 120), overhead(0, 300, process=2)],
    )
    expected = {Cause.PROFILER: 20, Cause.HOST_WORK: 30, Cause.HOST_API: 50}
    assert causes(diagnosed(*rows, window=(0, 300))) == expected


def test_time_outside_every_request_is_no_request() -> None:
    requests = [request(0, 110), request(140, 300)]
    found = causes(diagnosed([BEFORE, AFTER], [call(150, 200, 2)], requests))
    assert found == {Cause.NO_REQUEST: 30, Cause.HOST_WORK: 20, Cause.HOST_API: 50}


def test_the_borders_of_the_window_are_ramp_where_a_request_runs() -> None:
    rows = [kernel(100, 200, 1)], [call(10, 50, 1)], [request(20, 250)], [overhead(30, 40)]
    expected = {Cause.NO_REQUEST: 70, Cause.PROFILER: 10, Cause.RAMP: 120}
    assert causes(diagnosed(*rows, window=(0, 300))) == expected


def test_an_operation_across_the_border_leaves_no_ramp() -> None:
    assert causes(diagnosed([kernel(-10, 20), kernel(90, 120)], window=(0, 100))) == {Cause.UNKNOWN: 70}


@pytest.mark.parametrize("thread", [0, 11])
def test_stamps_stand_in_for_the_call_at_level_light(thread: int) -> None:
    stamped = AFTER | {"queued_ns": 150, "submitted_ns": 170}
    waits = [sync(60, 120, thread=thread)]
    found = causes(diagnosed([BEFORE, stamped], waits, window=(0, 300), level="light"))
    expected = {Cause.SYNC: 20, Cause.HOST_WORK: 30, Cause.HOST_API: 20, Cause.LAUNCH_LATENCY: 30}
    assert found == expected


def test_calls_without_a_thread_match_every_thread() -> None:
    assert gap(sync(100, 140, thread=0), call(150, 200, 2)) == {
        Cause.SYNC: 40,
        Cause.HOST_WORK: 10,
        Cause.HOST_API: 50,
    }


def test_nested_calls_of_one_correlation_count_as_the_outermost() -> None:
    nested = [call(150, 170, 2), call(140, 180, 2, name="cudaLaunchKernel")]
    assert gap(*nested) == {Cause.HOST_WORK: 40, Cause.HOST_API: 40, Cause.LAUNCH_LATENCY: 20}


def test_of_operations_that_start_together_the_lowest_correlation_decides() -> None:
    together = [BEFORE, AFTER | {"correlation": 3, "stream": 8}, AFTER]
    found = causes(diagnosed(together, [call(100, 200, 2), call(180, 200, 3)], window=(0, 300)))
    assert found == {Cause.HOST_API: 100}


# --- against a reference ------------------------------------------------------------------------------

LIMIT = 40
moments = st.integers(0, LIMIT)
spans = st.tuples(moments, st.integers(1, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@st.composite
def operations(draw: st.DrawFn) -> Row:
    start, end = draw(spans)
    stamps = draw(st.sampled_from([{}, {"queued_ns": max(start - 3, 1), "submitted_ns": max(start - 1, 1)}]))
    others = {"stream": draw(st.integers(7, 8)), "graph": draw(st.sampled_from([0, 0, 4]))}
    return kernel(start, end, draw(st.integers(0, 5)), **others, **stamps)


@st.composite
def host_calls(draw: st.DrawFn) -> Row:
    others = {"thread": draw(st.sampled_from([0, 10, 11])), "blocking": draw(st.booleans())}
    return call(*draw(spans), draw(st.integers(0, 5)), **others)


def reference(
    runs: list[Row], calls: list[Row], marked: list[Row], overheads: list[Row], window: tuple[int, int]
) -> dict[Cause, int]:
    """The rules of docs/definitions.md, one nanosecond at a time."""
    found: dict[Cause, int] = {}
    for moment in range(*window):
        if not any(has(run, moment) for run in runs):
            cause = cause_at(moment, runs, calls, marked, overheads, window)
            found[cause] = found.get(cause, 0) + 1
    return found


def has(row: Row, moment: int) -> bool:
    return bool(row["start_ns"] <= moment < row["end_ns"])


def cause_at(
    moment: int, runs: list[Row], calls: list[Row], marked: list[Row], overheads: list[Row], window: Any
) -> Cause:
    if marked and not any(has(row, moment) for row in marked):
        return Cause.NO_REQUEST
    if any(has(row, moment) for row in overheads):
        return Cause.PROFILER
    later = [run for run in runs if run["start_ns"] > moment and run["start_ns"] < window[1]]
    earlier = [run for run in runs if run["end_ns"] <= moment]
    if not later or not any(run["end_ns"] > window[0] for run in earlier):
        return Cause.RAMP
    ties = ("start_ns", "correlation", "end_ns", "stream", "graph", "queued_ns", "submitted_ns")
    after = min(later, key=lambda run: [run.get(name, 0) for name in ties])
    idle_since = max(run["end_ns"] for run in earlier)
    last = [run for run in earlier if run["end_ns"] == idle_since]
    nodes = [run["correlation"] for run in last if run["graph"]]
    if after["graph"] and after["correlation"] and after["correlation"] in nodes:
        return Cause.GRAPH_GAP
    return cause_by_submission(moment, after, idle_since, earlier, calls)


def cause_by_submission(
    moment: int, after: Row, idle_since: int, earlier: list[Row], calls: list[Row]
) -> Cause:
    own = [row for row in calls if row["correlation"] == after["correlation"] != 0]
    own.sort(key=lambda row: (row["start_ns"], -row["end_ns"]))
    if own:
        begin, finish, thread = own[0]["start_ns"], own[0]["end_ns"], own[0]["thread"]
    elif after.get("queued_ns"):
        begin, finish, thread = after["queued_ns"], after["submitted_ns"], 0
    else:
        return Cause.UNKNOWN
    around = [row for row in calls if has(row, moment) and (thread == 0 or row["thread"] in (0, thread))]
    if moment < begin:
        if any(row["blocking"] for row in around):
            return Cause.SYNC
        return Cause.HOST_API if around else Cause.HOST_WORK
    if moment < finish:
        return Cause.SYNC if own and own[0]["blocking"] else Cause.HOST_API
    free = all(run["end_ns"] < idle_since for run in earlier if run["stream"] == after["stream"])
    return Cause.DEPENDENCY if finish <= idle_since and free else Cause.LAUNCH_LATENCY


@settings(max_examples=300)
@given(
    st.lists(operations(), min_size=1, max_size=7),
    st.lists(host_calls(), max_size=6),
    st.lists(spans.map(lambda pair: request(*pair)), max_size=2),
    st.lists(spans.map(lambda pair: overhead(*pair)), max_size=2),
    st.tuples(moments, st.integers(1, 50)).map(lambda pair: (pair[0], pair[0] + pair[1])),
)
def test_every_idle_nanosecond_has_the_cause_of_the_reference(
    runs: list[Row], calls: list[Row], marked: list[Row], overheads: list[Row], window: tuple[int, int]
) -> None:
    recorded = timeline(runs, calls, marked, overheads)
    for device in idle_of_devices(recorded, operations_with_submission(recorded), window):
        summary = device.summary
        assert summary.busy_ns + sum(summary.causes.values()) == summary.window_ns == window[1] - window[0]
        found = {cause: time for cause, time in summary.causes.items() if time}
        assert found == reference(runs, calls, marked, overheads, window)
