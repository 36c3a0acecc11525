"""What the user's NVTX ranges hold."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from made_timelines import Row, call, diagnosed, kernel, request, span, timeline

from cudagraph_gate.diagnosis.idle import idle_of_devices
from cudagraph_gate.diagnosis.ranges import ranges_of
from cudagraph_gate.diagnosis.submission import operations_with_submission
from cudagraph_gate.model import Cause, IdleCauses, NotMeasured, RangeSummary

ROWS = [kernel(20, 60, 1), kernel(40, 80, 2, stream=8), kernel(130, 150, 3)]
CALLS = [call(5, 10, 1), call(12, 18, 2), call(105, 110, 3)]


def test_ranges_of_one_name_are_summed() -> None:
    (summary,) = diagnosed(ROWS, CALLS, [span("step", 0, 50), span("step", 100, 140)]).ranges
    idle = IdleCauses(
        by_cause={Cause.HOST_WORK: 5, Cause.HOST_API: 5, Cause.LAUNCH_LATENCY: 20},
    )
    assert summary == RangeSummary(
        name="step", domain="app", count=2, wall_ns=90, busy_ns=40, operations=3, submissions=3, idle=idle
    )


def test_nested_ranges_each_count_their_own_time_longest_first() -> None:
    ranges = [span("inner", 15, 70), span("outer", 0, 160), span("inner", 70, 75, domain="lib")]
    found = diagnosed(ROWS, CALLS, ranges).ranges
    assert [(one.domain, one.name, one.busy_ns, one.operations) for one in found] == [
        ("app", "outer", 80, 3),
        ("app", "inner", 50, 0),
        ("lib", "inner", 5, 0),
    ]


def test_stamps_tell_submission_where_no_call_is_recorded() -> None:
    rows = [kernel(20, 60, 1, queued_ns=5), kernel(70, 80, 2)]
    (summary,) = diagnosed(rows, [], [span("step", 0, 100)], level="light").ranges
    assert summary.operations == 1


def test_requests_and_ranges_outside_the_window_are_left_out() -> None:
    assert diagnosed(ROWS, CALLS, [request(0, 160), span("warm-up", -50, -10)]).ranges == ()


def test_work_of_another_process_is_not_counted() -> None:
    (summary,) = diagnosed(ROWS, CALLS, [span("step", 0, 100, process=2)]).ranges
    assert (summary.busy_ns, summary.operations) == (0, 0)


def test_fifty_names_are_kept() -> None:
    ranges = [span(f"layer {number}", 0, 100 + number) for number in range(60)]
    found = diagnosed(ROWS, CALLS, ranges).ranges
    assert (len(found), found[0].name, found[-1].name) == (50, "layer 59", "layer 10")


def test_a_graph_launch_is_one_submission_of_its_nodes() -> None:
    rows = [kernel(20, 30, 1, graph=4), kernel(30, 40, 1, graph=4), kernel(50, 60, 2), kernel(70, 80)]
    calls = [call(5, 10, 1, name="cuGraphLaunch"), call(12, 18, 2)]
    (summary,) = diagnosed(rows, calls, [span("step", 0, 100)]).ranges
    assert (summary.operations, summary.submissions) == (3, 2)


def test_a_submission_at_the_end_of_a_range_belongs_to_the_next() -> None:
    ranges = [span("first", 0, 12), span("second", 12, 20)]
    assert [one.operations for one in diagnosed(ROWS, CALLS, ranges, window=(0, 200)).ranges] == [1, 1]


def test_idle_is_counted_inside_the_window_alone() -> None:
    (summary,) = diagnosed(ROWS, CALLS, [span("step", 90, 200)], window=(100, 145)).ranges
    assert summary.wall_ns == 110
    assert summary.idle == IdleCauses(by_cause={Cause.RAMP: 30})


def test_nested_ranges_each_count_the_same_idle_time() -> None:
    found = diagnosed(ROWS, CALLS, [span("outer", 80, 130), span("inner", 100, 110)]).ranges
    assert [one.idle for one in found] == [
        IdleCauses(by_cause={Cause.HOST_WORK: 25, Cause.HOST_API: 5, Cause.LAUNCH_LATENCY: 20}),
        IdleCauses(by_cause={Cause.HOST_WORK: 5, Cause.HOST_API: 5}),
    ]


def test_idle_is_that_of_the_device_that_submission_kept_waiting_longest() -> None:
    rows = [*ROWS, kernel(20, 100, 4, device=1), kernel(130, 150, 5, device=1)]
    calls = [*CALLS, call(2, 3, 4), call(90, 95, 5)]
    (summary,) = diagnosed(rows, calls, [span("step", 0, 200)]).ranges
    assert summary.idle == IdleCauses(
        by_cause={Cause.HOST_WORK: 20, Cause.HOST_API: 10, Cause.LAUNCH_LATENCY: 20}
    )


def test_idle_is_not_measured_where_no_device_was_busy_or_records_were_dropped() -> None:
    (other,) = diagnosed(ROWS, CALLS, [span("step", 0, 100, process=2)]).ranges
    assert other.idle == NotMeasured(reason="no device of the process was busy in the window")
    (blind,) = diagnosed(ROWS, CALLS, [span("step", 0, 100)], dropped_records=3).ranges
    assert isinstance(blind.idle, NotMeasured)
    assert "3 records" in blind.idle.reason


def test_a_name_in_two_processes_counts_the_idle_time_of_the_one_that_has_a_device() -> None:
    ranges = [span("step", 0, 200), span("step", 0, 200, process=2)]
    (summary,) = diagnosed(ROWS, CALLS, ranges).ranges
    assert isinstance(summary.idle, IdleCauses)
    assert sum(summary.idle.by_cause.values()) == 50


def test_ranges_that_a_recorder_adds_are_shown_only_where_there_are_no_others() -> None:
    added = [span("aten::mm", 0, 50, domain="cpu_op"), span("poll", 0, 60, domain="os_runtime")]
    assert [one.name for one in diagnosed(ROWS, CALLS, [*added, span("step", 0, 30)]).ranges] == ["step"]
    assert [one.name for one in diagnosed(ROWS, CALLS, added).ranges] == ["poll", "aten::mm"]


def test_names_of_equal_time_come_in_alphabetical_order() -> None:
    for names in (["b", "a"], ["a", "b"]):
        found = diagnosed(ROWS, CALLS, [span(name, 20, 30) for name in names]).ranges
        assert [one.name for one in found] == ["a", "b"]


RANGES = st.lists(
    st.tuples(st.integers(-20, 180), st.integers(0, 60), st.sampled_from("abc")), min_size=1, max_size=5
)


def summaries(ranges: list[Row]) -> tuple[RangeSummary, ...]:
    """What is told of them, and nothing else."""
    recorded = timeline(ROWS, CALLS, ranges)
    operations, window = operations_with_submission(recorded), recorded.window()
    return ranges_of(recorded, operations, window, idle_of_devices(recorded, operations, window))


@settings(max_examples=25)
@given(RANGES)
def test_what_names_hold_is_the_sum_of_what_their_ranges_hold(drawn: list[tuple[int, int, str]]) -> None:
    ranges = [span(name, start, start + length) for start, length, name in drawn]
    found = {one.name: one for one in summaries(ranges)}
    alone = [one for row in ranges for one in summaries([row])]
    for name, summary in found.items():
        parts = [one for one in alone if one.name == name]
        for field in ("count", "wall_ns", "busy_ns", "operations", "submissions"):
            assert getattr(summary, field) == sum(getattr(one, field) for one in parts)
        assert isinstance(summary.idle, IdleCauses)
        idle = [one.idle for one in parts if isinstance(one.idle, IdleCauses)]
        for cause in Cause:
            assert summary.idle.by_cause.get(cause, 0) == sum(one.by_cause.get(cause, 0) for one in idle)
