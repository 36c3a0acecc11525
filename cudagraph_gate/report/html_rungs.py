"""The ladder in an HTML report: its rungs, and what the later ones measured."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from cudagraph_gate.gates.measured import shape_costs
from cudagraph_gate.gates.policy import MAX_SHAPES_MEMORY_BYTES
from cudagraph_gate.gates.shape_choice import choose_shapes
from cudagraph_gate.gates.traffic import view_traffic
from cudagraph_gate.gates.trial_view import Evidence, ShapeTrial, TrialView
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.records import Phase
from cudagraph_gate.report.console_rungs import (
    LADDER_HEAD,
    MEMORY_HEAD,
    ladder_rows,
    memory_rows,
    rung_lines,
    shapes_notes,
)
from cudagraph_gate.report.console_traffic import (
    SHAPES_HEAD,
    SHAPES_TITLE,
    TRAFFIC_HEAD,
    TRAFFIC_TITLE,
    shapes_rows,
    traffic_notes,
    traffic_rows,
)
from cudagraph_gate.report.html_pieces import escaped, table_of


def ladder_parts(trial: TrialView) -> Iterable[str]:
    """The table of the rungs with what they measured; nothing of a trial without any."""
    if trial.ended:
        rows = (
            [number, escape(name), f'<span class="{status}">{status}</span>', gain, escape(reason)]
            for number, name, status, gain, reason in ladder_rows(trial)
        )
        yield "<h2>Ladder</h2>" + table_of(LADDER_HEAD, rows)
    yield from (f"<p>{escape(text)}</p>" for text in rung_lines(trial))
    memory = memory_rows(trial)
    if memory:
        yield "<h2>Memory over time</h2>" + table_of(MEMORY_HEAD, map(escaped, memory))
    traffic = trial.rungs.get(Phase.TRAFFIC)
    if traffic is not None:
        yield from _traffic(traffic)


def _traffic(rung: ShapeTrial) -> Iterable[str]:
    """Latency of both paths at each load level."""
    traffic = view_traffic(rung.records)
    yield f"<h2>{_capital(TRAFFIC_TITLE)}</h2>"
    if isinstance(traffic, NotMeasured):
        yield f"<p>{escape(traffic.reason)}</p>"
        return
    yield table_of(TRAFFIC_HEAD, map(escaped, traffic_rows(traffic)))
    yield from (f"<p>{escape(note)}</p>" for note in traffic_notes(traffic))


def shapes_parts(evidence: Evidence) -> Iterable[str]:
    """Where several shapes were timed: what each gains, and which of them are worth capturing."""
    costs = shape_costs(evidence)
    if len(costs) < 2:
        return
    chosen = choose_shapes(costs, MAX_SHAPES_MEMORY_BYTES)
    yield f"<h2>{_capital(SHAPES_TITLE)}</h2>"
    yield table_of(SHAPES_HEAD, map(escaped, shapes_rows(costs, chosen)))
    yield from (f"<p>{escape(note)}</p>" for note in shapes_notes(costs))


def _capital(title: str) -> str:
    return escape(title[0].upper() + title[1:])
