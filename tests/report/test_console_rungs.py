"""The ladder as a person reads it: its rungs, and what the later ones measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from evidence_builder import MS, not_measured, passing, rung, shape_records, timed, trial

from cudagraph_gate.gates import view_trial
from cudagraph_gate.gates.trial_view import TrialView
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.records import (
    ConcurrentRun,
    InstanceRun,
    MemorySeries,
    Phase,
    PhaseStarted,
    Record,
    RungEnded,
    TrafficRun,
)
from cudagraph_gate.report.console_rungs import (
    concurrency_lines,
    instance_lines,
    ladder_rows,
    memory_rows,
    print_ladder,
    rung_lines,
)

Printed = Callable[..., str]
KIB, MIB = 1 << 10, 1 << 20
NAMES = (
    "fixed input",
    "fresh inputs",
    "all shapes",
    "several instances",
    "concurrent requests",
    "traffic mix",
)
INSTANCES = {
    "instances": 4,
    "requests": 10,
    "wrong_requests": 0,
    "bytes_per_instance": 64 * MIB,
    "speed_up": 2.5,
}
THREADS = {
    "threads": 4,
    "normal_wrong_requests": 0,
    "graph_wrong_requests": 0,
    "throughput_ratio": 1.5,
}


def ended(number: int, status: GateStatus = GateStatus.PASS, reason: str = "held", **code: Any) -> RungEnded:
    return RungEnded(number=number, name=NAMES[number - 1], status=status, reason=reason, **code)


def view(*records: Record, target: tuple[Record, ...] | None = None) -> TrialView:
    return view_trial(passing(records=(*trial(target or shape_records(), rungs=()), *records)))


def instances(**change: Any) -> tuple[Record, ...]:
    """Four instances whose rounds gain 60 %."""
    given: dict[str, Any] = {"wrong": 0, "bytes_per_instance": 64 * MIB, "normal_ns": MS, "graph_ns": 400_000}
    return rung(Phase.INSTANCES, InstanceRun(shape="b1", count=4, requests=10, **(given | change)))


def concurrency() -> tuple[Record, ...]:
    """Ten blocks of each path; graphs gain a quarter."""
    runs = [
        ConcurrentRun(
            shape="b1",
            path=path,
            order=order,
            threads=4,
            latencies_ns=(latency_ns,) * 20,
            elapsed_ns=latency_ns * 5,
            process_cpu_ns=1_000,
            wrong=0,
        )
        for order in range(10)
        for path, latency_ns in (("normal", MS), ("graph", 750_000))
    ]
    return rung(Phase.CONCURRENCY, *runs)


def traffic() -> tuple[Record, ...]:
    """Half the normal path's load, twice of each path; graphs answer in half the time."""
    runs = [
        TrafficRun(
            path=path,
            level=0.5,
            order=order,
            shapes=("b1",),
            captured=("b1",),
            requests=(0,) * 50,
            arrivals_ns=tuple(range(0, 100 * MS, 2 * MS)),
            starts_ns=tuple(range(0, 100 * MS, 2 * MS)),
            ends_ns=tuple(due + service for due in range(0, 100 * MS, 2 * MS)),
        )
        for order in range(2)
        for path, service in (("normal", MS), ("graph", MS // 2))
    ]
    return rung(Phase.TRAFFIC, *runs)


def memory(*used: int, activity: str = "replays") -> MemorySeries:
    return MemorySeries(
        shape="b1",
        activity=activity,
        counts=tuple(range(0, 10 * len(used), 10)),
        device_used_bytes=used,
        allocator_bytes=not_measured("none"),
        host_rss_bytes=not_measured("none"),
    )


LEAK = memory(*(MIB * 4 * index for index in range(16)))
"""Four MiB in ten repetitions."""
FLAT = memory(*(64 * MIB for _ in range(16)), activity="cycles")


def whole() -> tuple[Record, ...]:
    """Everything that the rungs from the third on can log."""
    parts = (rung(Phase.MEMORY, LEAK, FLAT), instances(), concurrency(), traffic())
    answers = (ended(number) for number in range(1, 7))
    return (*(record for part in parts for record in part), *answers)


# --- the table ------------------------------------------------------------------------------------


def test_a_rung_that_holds_shows_its_gain_and_no_sentence() -> None:
    replays = [*timed("normal", MS), *timed("graph", 600_000), *timed("replay", 500_000)]
    rows = ladder_rows(view(*whole(), target=shape_records(blocks=replays)))
    assert rows == [
        ("1", "fixed input", "pass", "50.0 %", ""),
        ("2", "fresh inputs", "pass", "40.0 %", ""),
        ("3", "all shapes", "pass", "–", "held"),
        ("4", "several instances", "pass", "60.0 %", ""),
        ("5", "concurrent requests", "pass", "25.0 %", ""),
        ("6", "traffic mix", "pass", "50.0 %", ""),
    ]


@pytest.mark.parametrize("status", [GateStatus.FAIL, GateStatus.UNKNOWN])
def test_a_rung_that_does_not_hold_says_why_with_its_code(status: GateStatus) -> None:
    answer = ended(4, status, "outputs differ", code=Reason.REPLAY_RACE)
    (row,) = ladder_rows(view(*instances(wrong=3), answer))
    assert row == ("4", "several instances", status.value, "60.0 %", "outputs differ [replay-race]")


@pytest.mark.parametrize("number", [1, 3, 4, 5, 6])
def test_a_rung_without_a_figure_says_what_it_has_to_say(number: int) -> None:
    bare = shape_records(blocks=[*timed("normal", MS), *timed("graph", 600_000)])
    (row,) = ladder_rows(view(ended(number, reason="nothing to compare"), target=bare))
    assert row[3:] == ("–", "nothing to compare")


@pytest.mark.parametrize(
    "records",
    [
        instances(graph_ns=not_measured("not timed")),
        rung(Phase.CONCURRENCY, *concurrency()[1:5]),
        rung(Phase.TRAFFIC, *traffic()[1:2]),
    ],
    ids=["untimed rounds", "few blocks", "one path"],
)
def test_figures_that_are_missing_are_no_gain(records: tuple[Record, ...]) -> None:
    number = {Phase.INSTANCES: 4, Phase.CONCURRENCY: 5, Phase.TRAFFIC: 6}
    phase = next(record.phase for record in records if isinstance(record, PhaseStarted))
    (row,) = ladder_rows(view(*records, ended(number[phase])))
    assert row[3] == "–"


# --- what the rungs measured ------------------------------------------------------------------------


def test_instances_are_one_sentence() -> None:
    assert list(instance_lines(INSTANCES)) == [
        "4 instances: all 40 requests right; memory of each further one 64.0 MiB; "
        "together 2.50 x as fast as the normal path"
    ]
    absent = {"bytes_per_instance": not_measured("others"), "speed_up": not_measured("noise")}
    assert list(instance_lines(INSTANCES | absent | {"wrong_requests": 3})) == [
        "4 instances: 3 of 40 requests wrong; memory of each further one not measured (others); "
        "together not timed (noise)"
    ]


def test_threads_are_one_sentence() -> None:
    assert list(concurrency_lines(THREADS)) == [
        "4 threads: all outputs right; throughput 1.50 x the normal path's"
    ]
    wrong = {"graph_wrong_requests": 2, "throughput_ratio": not_measured("few blocks")}
    assert list(concurrency_lines(THREADS | wrong)) == [
        "4 threads: 2 wrong requests of the graph path; throughput not timed (few blocks)"
    ]


def test_rungs_that_were_not_tried_say_nothing(printed: Printed) -> None:
    assert list(instance_lines({})) == list(concurrency_lines({})) == list(rung_lines(view())) == []
    assert memory_rows(view()) == []
    assert printed(print_ladder, view()) == ""


def test_memory_shows_what_each_repetition_takes() -> None:
    assert memory_rows(view(*rung(Phase.MEMORY, LEAK, FLAT))) == [
        ("replays", "150", "device", "410 KiB", "60.0 MiB", "leak"),
        ("capture cycles", "150", "device", "0 B", "0 B", "flat"),
    ]


def test_only_the_newest_series_of_an_activity_is_shown() -> None:
    again = memory(*(MIB for _ in range(16)))
    assert memory_rows(view(*rung(Phase.MEMORY, LEAK, again)))[0][-1] == "flat"


# --- all of it ------------------------------------------------------------------------------------


def test_a_whole_ladder_fits_80_columns(printed: Printed) -> None:
    sentence = "a_name_without_any_blank_" * 8
    text = printed(print_ladder, view(*whole(), ended(5, GateStatus.FAIL, sentence, code=Reason.REGRESS)))
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    parts = ("ladder;", "4 instances:", "4 threads:", "memory over time", "queueing included")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_killed_trial_shows_what_was_measured(printed: Printed) -> None:
    text = printed(print_ladder, view(*instances()))
    assert text.startswith("4 instances: all 40 requests right")


def test_traffic_without_a_run_says_so(printed: Printed) -> None:
    assert printed(print_ladder, view(*rung(Phase.TRAFFIC))) == "traffic: the request mix was not replayed\n"
