"""The ladder as text for a terminal: its rungs, and what the later ones measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from cudagraph_gate.gates.concurrency import measured_concurrency, view_concurrency
from cudagraph_gate.gates.instances import measured_instances, view_instances
from cudagraph_gate.gates.latency import rung_gains
from cudagraph_gate.gates.measured import shape_costs
from cudagraph_gate.gates.memory import Growth, judge_series
from cudagraph_gate.gates.policy import MAX_SHAPES_MEMORY_BYTES
from cudagraph_gate.gates.shape_choice import ShapeCost, choose_buckets, choose_shapes, paddings
from cudagraph_gate.gates.traffic import PathLoad, judged_level, view_traffic
from cudagraph_gate.gates.trial_view import Evidence, ShapeTrial, TrialView
from cudagraph_gate.gates.wording import percent, size
from cudagraph_gate.model import GateStatus, NotMeasured
from cudagraph_gate.records import MemorySeries, Phase, RungEnded
from cudagraph_gate.report.console_pieces import add_row, line, table_of
from cudagraph_gate.report.console_traffic import (
    choice_note,
    padding_notes,
    shapes_table,
    traffic_notes,
    traffic_table,
)
from cudagraph_gate.stats import QuantileRatio

STATUS_STYLE: Final = {GateStatus.PASS: "green", GateStatus.FAIL: "bold red", GateStatus.UNKNOWN: "yellow"}
LADDER_HEAD: Final = ("", "rung", "answer", "gain", "reason")
MEMORY_HEAD: Final = ("activity", "times", "memory", "growth each", "in all", "course")
NO_GAIN: Final = "–"

_WORDS: Final = {"replays": "replays", "cycles": "capture cycles", "aborted": "aborted captures"}


def print_ladder(console: Console, trial: TrialView) -> None:
    """Each rung that was tried, and what the later ones measured.

    A trial that was killed has no answers, but what its workers measured is shown.
    """
    if trial.ended:
        table = table_of("ladder; gain is of the median time", LADDER_HEAD, right=(0, 3))
        for number, name, status, gain, reason in ladder_rows(trial):
            add_row(table, number, name, Text(status, style=STATUS_STYLE[GateStatus(status)]), gain, reason)
        console.print(table)
    for text in rung_lines(trial):
        line(console, text)
    _print_memory(console, memory_rows(trial))
    _print_traffic(console, trial.rungs.get(Phase.TRAFFIC))


# --- the rungs ------------------------------------------------------------------------------------


def ladder_rows(trial: TrialView) -> list[tuple[str, str, str, str, str]]:
    """One row a rung, as ``LADDER_HEAD`` names the columns.

    A rung that passes with a gain needs no sentence beside it; every other one says why.
    """
    return [_row(trial, rung) for rung in trial.ended]


def _row(trial: TrialView, rung: RungEnded) -> tuple[str, str, str, str, str]:
    gain = _gain(trial, rung.number)
    code = f" [{rung.code}]" if rung.code else ""
    told = rung.status is GateStatus.PASS and gain is not None
    reason = "" if told else rung.reason + code
    return str(rung.number), rung.name, rung.status.value, NO_GAIN if gain is None else percent(gain), reason


def _gain(trial: TrialView, number: int) -> float | None:
    """Share of the median time that graphs save on one rung; None where the rung has no such figure."""
    target = trial.target
    if number in (1, 2) and target is not None:
        ratio = rung_gains(target)[number - 1]
        return 1 - ratio.ratio if isinstance(ratio, QuantileRatio) else None
    phase = {4: Phase.INSTANCES, 5: Phase.CONCURRENCY, 6: Phase.TRAFFIC}.get(number)
    rung = None if phase is None else trial.rungs.get(phase)
    return None if rung is None else _LATER_GAINS[number](rung)


def _instances_gain(rung: ShapeTrial) -> float | None:
    faster = measured_instances(view_instances(rung.records, rung.shape)).get("speed_up")
    return 1 - 1 / faster if isinstance(faster, float) else None


def _concurrency_gain(rung: ShapeTrial) -> float | None:
    median = measured_concurrency(view_concurrency(rung.records, rung.shape)).get("p50")
    return 1 - float(median["ratio"]) if isinstance(median, dict) else None


def _traffic_gain(rung: ShapeTrial) -> float | None:
    traffic = view_traffic(rung.records)
    level = None if isinstance(traffic, NotMeasured) else judged_level(traffic)
    if level is None or not (isinstance(level.normal, PathLoad) and isinstance(level.graph, PathLoad)):
        return None
    return 1 - level.graph.p50_ns / max(1, level.normal.p50_ns)


_LATER_GAINS: Final = {4: _instances_gain, 5: _concurrency_gain, 6: _traffic_gain}


# --- what the later rungs measured ----------------------------------------------------------------


def rung_lines(trial: TrialView) -> Iterator[str]:
    """What rungs 4 and 5 measured, in a sentence each."""
    instances, together = trial.rungs.get(Phase.INSTANCES), trial.rungs.get(Phase.CONCURRENCY)
    if instances is not None:
        yield from instance_lines(measured_instances(view_instances(instances.records, instances.shape)))
    if together is not None:
        seen = view_concurrency(together.records, together.shape)
        yield from concurrency_lines(measured_concurrency(seen))


def instance_lines(measured: Mapping[str, Any]) -> Iterator[str]:
    """What several graphs of one shape cost and gave."""
    if not measured:
        return
    count, requests = measured["instances"], measured["instances"] * measured["requests"]
    each = measured["bytes_per_instance"]
    memory = f"not measured ({each.reason})" if isinstance(each, NotMeasured) else size(each)
    yield (
        f"{count} instances: {_outputs(measured['wrong_requests'], requests)}; memory of each further one "
        f"{memory}; together {_times_faster(measured['speed_up'], 'as fast as the normal path')}"
    )


def _outputs(wrong: int, requests: int) -> str:
    return f"{wrong} of {requests} requests wrong" if wrong else f"all {requests} requests right"


def _times_faster(ratio: float | NotMeasured, than: str) -> str:
    return f"not timed ({ratio.reason})" if isinstance(ratio, NotMeasured) else f"{ratio:.2f} x {than}"


def concurrency_lines(measured: Mapping[str, Any]) -> Iterator[str]:
    """What several host threads gave."""
    if not measured:
        return
    wrong = {name: measured[f"{name}_wrong_requests"] for name in ("normal", "graph")}
    seen = [f"{count} wrong requests of the {name} path" for name, count in wrong.items() if count]
    through = _times_faster(measured["throughput_ratio"], "the normal path's")
    yield f"{measured['threads']} threads: {'; '.join(seen or ['all outputs right'])}; throughput {through}"


def memory_rows(trial: TrialView) -> list[tuple[str, ...]]:
    """One row an activity that was repeated, as ``MEMORY_HEAD`` names the columns."""
    rung = trial.rungs.get(Phase.MEMORY)
    if rung is None:
        return []
    newest = {series.activity: series for series in rung.of(MemorySeries)}
    return [_memory_row(judge_series(series)) for series in newest.values()]


def _memory_row(growth: Growth) -> tuple[str, ...]:
    """``growth each`` is of the second half, where what warms up is over; ``in all`` is from the start on."""
    return (
        _WORDS[growth.activity],
        f"{growth.repetitions:,}",
        growth.source,
        size(growth.trend.bytes_per_repetition),
        size(growth.trend.grown_bytes),
        growth.course.value,
    )


def _print_memory(console: Console, rows: list[tuple[str, ...]]) -> None:
    if not rows:
        return
    table = table_of("memory over time", MEMORY_HEAD, right=(1, 3, 4))
    for row in rows:
        add_row(table, *row)
    console.print(table)


def _print_traffic(console: Console, trial: ShapeTrial | None) -> None:
    if trial is None:
        return
    traffic = view_traffic(trial.records)
    if isinstance(traffic, NotMeasured):
        line(console, f"traffic: {traffic.reason}", "yellow")
        return
    console.print(traffic_table(traffic))
    for note in traffic_notes(traffic):
        line(console, note)


def print_shapes(console: Console, evidence: Evidence) -> None:
    """Where several shapes were timed: what each gains, and which of them are worth capturing."""
    costs = shape_costs(evidence)
    if len(costs) < 2:
        return
    console.print(shapes_table(costs, choose_shapes(costs, MAX_SHAPES_MEMORY_BYTES)))
    for note in shapes_notes(costs):
        line(console, note)


def shapes_notes(costs: Sequence[ShapeCost]) -> list[str]:
    """Which shapes to capture, without padding and with it, within the default budget."""
    budget = MAX_SHAPES_MEMORY_BYTES
    padded = padding_notes(choose_buckets(costs, budget), paddings(costs), budget)
    return [choice_note(choose_shapes(costs, budget), budget), *padded]
