"""The hard scenarios in an HTML report."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from cudagraph_gate.gates.scenarios import view_attack
from cudagraph_gate.gates.trial_view import Evidence, TrialView
from cudagraph_gate.report.console_scenarios import (
    SCENARIOS_HEAD,
    SCENARIOS_TITLE,
    scenario_notes,
    scenario_rows,
)
from cudagraph_gate.report.html_pieces import table_of


def scenario_parts(evidence: Evidence, trial: TrialView) -> Iterable[str]:
    """The table of the scenarios that were run; nothing where none was."""
    attacked = view_attack(evidence.records, trial)
    if attacked is None:
        return
    rows = (
        [escape(name), f'<span class="{status}">{status}</span>', seconds, escape(seen)]
        for name, status, seconds, seen in scenario_rows(attacked)
    )
    yield f"<h2>{SCENARIOS_TITLE.capitalize()}</h2>" + table_of(SCENARIOS_HEAD, rows)
    yield from (f"<p>{escape(note)}</p>" for note in scenario_notes(attacked))
