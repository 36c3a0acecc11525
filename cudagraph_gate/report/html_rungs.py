"""The ladder in an HTML report: its rungs, and what the later ones measured."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from cudagraph_gate.gates.trial_view import TrialView
from cudagraph_gate.report.console_rungs import (
    LADDER_HEAD,
    MEMORY_HEAD,
    ladder_rows,
    memory_rows,
    rung_lines,
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
