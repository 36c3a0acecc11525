"""Launch phases: the call, the queue, the kernel."""

from __future__ import annotations

import re
from pathlib import Path

from made_timelines import NO_TIMES, Row, call, diagnosed, example, kernel

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.model import Distribution, IdleGaps, LaunchPhases, Limiter, NotMeasured, QueueDepth

DEFINITIONS = Path(__file__).parents[2] / "docs" / "definitions.md"


def phases(operations: list[Row], calls: list[Row]) -> LaunchPhases:
    found = diagnosed(operations, calls).launches.phases
    assert isinstance(found, LaunchPhases)
    return found


def test_a_launch_has_a_call_a_queue_and_a_kernel_time() -> None:
    found = phases([kernel(30, 100, 1), kernel(100, 150, 2)], [call(0, 10, 1), call(12, 18, 2)])
    assert isinstance(found.queue, Distribution)
    assert (found.api.minimum, found.api.maximum) == (6, 10)
    assert (found.queue.minimum, found.queue.maximum) == (20, 82)
    assert (found.kernel.minimum, found.kernel.maximum) == (50, 70)
    assert (found.launches, found.queued) == (2, 2)


def test_a_kernel_that_starts_before_its_call_returns_has_no_queue_time() -> None:
    found = phases([kernel(8, 20, 1), kernel(30, 40, 2)], [call(0, 10, 1), call(12, 25, 2)])
    assert isinstance(found.queue, Distribution)
    assert (found.queued, found.queue.count, found.queue.p50) == (1, 1, 5)


def test_a_kernel_that_starts_as_its_call_returns_was_queued_for_no_time() -> None:
    found = phases([kernel(10, 20, 1)], [call(0, 10, 1)])
    assert isinstance(found.queue, Distribution)
    assert (found.queued, found.queue.p50) == (1, 0)


def test_without_any_queue_time_the_reason_is_given() -> None:
    found = phases([kernel(8, 20, 1)], [call(0, 10, 1)])
    assert found.queue == NotMeasured(reason="every kernel started before its launch call returned")


def test_a_graph_launch_counts_once_by_its_first_node() -> None:
    nodes = [kernel(start, start + 5, 1, graph=4, node=start) for start in (50, 60, 70)]
    found = phases(nodes, [call(30, 40, 1, name="cuGraphLaunch")])
    assert isinstance(found.queue, Distribution)
    assert (found.launches, found.queue.p50, found.kernel.maximum) == (1, 10, 5)


def test_copies_are_no_launches() -> None:
    rows = [kernel(10, 20, 1), kernel(30, 90, 2, kind="memcpy", name="HtoD")]
    assert phases(rows, [call(0, 5, 1), call(6, 9, 2)]).launches == 1


def test_stamps_alone_do_not_tell_phases() -> None:
    rows = [kernel(10, 20, 1, queued_ns=2, submitted_ns=4)]
    found = diagnosed(rows, level="light").launches.phases
    assert found == NotMeasured(reason="no launch call is recorded in the window (level light)")


def test_the_documented_numbers_are_those_of_the_example() -> None:
    section = DEFINITIONS.read_text().split("### Queue depth, phases and limiter\n", 1)[1].split("\n#", 1)[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", section, re.MULTILINE))
    diagnosis = diagnose(example(), NO_TIMES)
    found, depth, gaps = (
        diagnosis.launches.phases,
        diagnosis.launches.queue_depth,
        diagnosis.devices[0].idle_gaps,
    )
    assert isinstance(found, LaunchPhases)
    assert isinstance(found.queue, Distribution)
    assert isinstance(depth, QueueDepth)
    assert isinstance(gaps, IdleGaps)
    assert diagnosis.limiter is Limiter.SUBMISSION
    assert "idle for submission 24.0 % of it" in diagnosis.conclusion
    assert {name: float(number) for name, number in documented.items()} == {
        "queue_depth_mean": depth.mean,
        "queue_depth_maximum": depth.maximum,
        "queue_empty_share": depth.empty_share,
        "api_p50_ns": found.api.p50,
        "queue_p50_ns": found.queue.p50,
        "kernel_p50_ns": found.kernel.p50,
        "idle_gaps": gaps.count,
        "limiter_submission_ns": 0.24 * 2000,
    }
