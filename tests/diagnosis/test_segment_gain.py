"""What a segment could give back at most: idle that launching caused before its own operations."""

from __future__ import annotations

import pytest
from made_segments import Program, only, segments
from made_timelines import call, kernel, timeline

from cudagraph_gate.model import NotMeasured, Segment


def kernels(segment: Segment) -> str:
    return "".join(sorted(segment.kernels))


def test_the_gain_is_bounded_by_the_median_submission_idle_of_a_repeat() -> None:
    program = Program()
    for _ in range(5):
        program.run("ABC").sync()
    segment = only(program.timeline())
    assert not isinstance(segment.prediction, NotMeasured)
    # Between the kernels 2 x 70 ns are idle. Before the first one a graph has to be launched as well.
    assert segment.prediction.upper_bound_ns == 2 * 70


def test_a_host_that_is_far_ahead_adds_no_idle_of_other_repeats() -> None:
    # All launches are over before the second kernel ends; the stream then leaves 2 ns before each kernel.
    calls = [call(10 * n, 10 * n + 5, n) for n in range(1, 61)]
    rows = [kernel(1000 + 100 * n, 1098 + 100 * n, n, name="ABC"[n % 3]) for n in range(1, 61)]
    found = only(timeline(rows, calls))
    assert not isinstance(found.prediction, NotMeasured)
    assert found.prediction.upper_bound_ns == found.operations * 2
    assert found.wall.p50 == found.operations * 100
    assert found.coverage == pytest.approx(1.0, abs=0.01)


def test_idle_is_credited_to_the_thread_that_ended_it_alone() -> None:
    rows, calls = [], []
    for n in range(20):
        for number, (name, moment, thread) in enumerate(
            (("a", 100, 10), ("b", 200, 10), ("c", 500, 20), ("d", 900, 20)), start=4 * n + 1
        ):
            at = 1_000 * n + moment
            rows.append(kernel(at, at + 10, number, name=name))
            calls.append(call(at - 10, at - 5, number, thread=thread))
    found = {one.thread: one.prediction for one in segments(timeline(rows, calls))}
    bounds = {thread: one.upper_bound_ns for thread, one in found.items() if not isinstance(one, NotMeasured)}
    # Thread 10 ends the gap of 90 before b; between its rounds it pauses. Thread 20 does not, and ends those
    # of 290 and 390 before c and d.
    assert bounds == {10: 90, 20: 290 + 390}


def test_what_is_a_graph_already_is_not_predicted() -> None:
    program = Program()
    for _ in range(6):
        program.launch([(letter, {"graph": 3}) for letter in "ABCD"], "cuGraphLaunch").wait(300).sync()
    for one in segments(program.timeline()):
        assert isinstance(one.prediction, NotMeasured)
        assert "graph already" in one.prediction.reason


def test_a_start_that_waits_for_a_host_callback_is_nothing_to_give_back() -> None:
    # Launched early, on a free stream: 300 µs late, as behind a cudaLaunchHostFunc.
    calls, rows = [], []
    for n in range(12):
        at = 1_000_000 * n
        calls += [call(at, at + 5, 2 * n + 1), call(at + 10, at + 15, 2 * n + 2)]
        rows += [
            kernel(at + 20, at + 1_000, 2 * n + 1, name="a"),
            kernel(at + 301_000, at + 999_000, 2 * n + 2, name="b"),
        ]
    found = only(timeline(rows, calls))
    assert not isinstance(found.prediction, NotMeasured)
    assert found.prediction.upper_bound_ns <= 2_000


def test_one_long_pause_is_claimed_by_no_segment() -> None:
    program = Program()
    for number in range(5):
        program.run("A").wait(10**9 if number == 2 else 0).run("BC").sync()
    prediction = only(program.timeline()).prediction
    assert not isinstance(prediction, NotMeasured)
    assert prediction.upper_bound_ns == 2 * 70


def test_the_segment_with_most_to_gain_comes_first() -> None:
    program = Program()
    for _ in range(4):
        program.run("PQRS").sync().run("A").wait(5000).run("B").sync()
    assert [(one.number, kernels(one)) for one in segments(program.timeline())] == [(1, "AB"), (2, "PQRS")]


def test_nothing_is_predicted_where_idle_is_not_measurable() -> None:
    made = Program().run("ABC" * 5).timeline(dropped_records=3)
    assert isinstance(only(made).prediction, NotMeasured)
