"""The ladder as text for a terminal: its rungs, and what the later ones measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from cudagraph_gate.gates.concurrency import measured_concurrency
from cudagraph_gate.gates.instances import measured_instances
from cudagraph_gate.gates.memory import judge_series
from cudagraph_gate.gates.traffic import view_traffic
from cudagraph_gate.gates.trial_view import ShapeTrial, TrialView
from cudagraph_gate.gates.wording import size
from cudagraph_gate.model import GateStatus, NotMeasured
from cudagraph_gate.records import MemorySeries, Phase
from cudagraph_gate.report.console_pieces import add_row, line, table_of
from cudagraph_gate.report.console_traffic import traffic_notes, traffic_table

STATUS_STYLE: Final = {GateStatus.PASS: "green", GateStatus.FAIL: "bold red", GateStatus.UNKNOWN: "yellow"}


def print_ladder(console: Console, trial: TrialView) -> None:
    """Each rung that was tried, and what the later ones measured."""
    if not trial.ended:
        return
    table = table_of("ladder", ("", "rung", "answer", "reason"), right=(0,))
    for rung in trial.ended:
        answer = Text(rung.status, style=STATUS_STYLE[rung.status])
        code = f" [{rung.code}]" if rung.code else ""
        table.add_row(str(rung.number), Text(rung.name), answer, Text(rung.reason + code, overflow="fold"))
    console.print(table)
    for text in _rung_lines(trial):
        line(console, text)
    _print_memory(console, trial.rungs.get(Phase.MEMORY))
    _print_traffic(console, trial.rungs.get(Phase.TRAFFIC))


def _rung_lines(trial: TrialView) -> Iterator[str]:
    instances, together = trial.rungs.get(Phase.INSTANCES), trial.rungs.get(Phase.CONCURRENCY)
    if instances is not None:
        yield from instance_lines(measured_instances(instances.records, instances.shape))
    if together is not None:
        yield from concurrency_lines(measured_concurrency(together.records, together.shape))


def instance_lines(measured: Mapping[str, Any]) -> Iterator[str]:
    """What several graphs of one shape cost and gave."""
    if not measured:
        return
    each, faster = measured["bytes_per_instance"], measured["speed_up"]
    memory = f"not measured ({each.reason})" if isinstance(each, NotMeasured) else size(each)
    gain = f"not measured ({faster.reason})" if isinstance(faster, NotMeasured) else f"{faster:.2f}x"
    yield (
        f"{measured['instances']} instances: {measured['wrong_requests']} of {measured['requests']} requests "
        f"each wrong, {memory} for each further one, rounds {gain} as fast as the normal path's"
    )


def concurrency_lines(measured: Mapping[str, Any]) -> Iterator[str]:
    """What several host threads gave."""
    if not measured:
        return
    ratio = measured["throughput_ratio"]
    gain = f"not measured ({ratio.reason})" if isinstance(ratio, NotMeasured) else f"{ratio:.2f}x"
    yield f"{measured['threads']} threads: throughput {gain} the normal path's"


def _print_memory(console: Console, trial: ShapeTrial | None) -> None:
    if trial is None:
        return
    table = table_of("memory over time", ("activity", "times", "growth each", "course"), right=(1, 2))
    for series in trial.of(MemorySeries):
        growth = judge_series(series)
        each = f"{growth.trend.bytes_per_repetition:,.0f} B of {growth.source}"
        add_row(table, growth.activity, f"{growth.repetitions:,}", each, growth.course)
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
