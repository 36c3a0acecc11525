"""What the user's NVTX ranges hold."""

from __future__ import annotations

from made_timelines import call, diagnosed, kernel, request, span

from cudagraph_gate.model import RangeSummary

ROWS = [kernel(20, 60, 1), kernel(40, 80, 2, stream=8), kernel(130, 150, 3)]
CALLS = [call(5, 10, 1), call(12, 18, 2), call(105, 110, 3)]


def test_ranges_of_one_name_are_summed() -> None:
    (summary,) = diagnosed(ROWS, CALLS, [span("step", 0, 50), span("step", 100, 140)]).ranges
    expected = RangeSummary(name="step", domain="app", count=2, wall_ns=90, busy_ns=40, operations=3)
    assert summary == expected


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
