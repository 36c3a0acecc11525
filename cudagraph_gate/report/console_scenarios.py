"""The hard scenarios as text for a terminal: what was injected, what came of it, and where the time went."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.text import Text

from cudagraph_gate.gates.scenarios import Attacked, scenario_check, scenario_ns, view_attack
from cudagraph_gate.gates.trial_view import Evidence, TrialView
from cudagraph_gate.gates.wording import one_line
from cudagraph_gate.model import SCENARIOS, GateStatus, Scenario
from cudagraph_gate.report.console_pieces import add_row, line, table_of
from cudagraph_gate.report.console_rungs import STATUS_STYLE

SCENARIOS_TITLE: Final = "hard scenarios"
SCENARIOS_HEAD: Final = ("scenario", "answer", "s", "what came of it")
NOT_RUN: Final = "–"
NS_PER_S: Final = 1e9


def print_scenarios(console: Console, evidence: Evidence, trial: TrialView) -> None:
    """A table of the scenarios that were run; nothing where none was."""
    attacked = view_attack(evidence.records, trial)
    if attacked is None:
        return
    table = table_of(SCENARIOS_TITLE, SCENARIOS_HEAD, right=(2,))
    for name, status, seconds, seen in scenario_rows(attacked):
        add_row(table, name, Text(status, style=STATUS_STYLE[GateStatus(status)]), seconds, seen)
    console.print(table)
    for text in scenario_notes(attacked):
        line(console, text)


def scenario_rows(attacked: Attacked) -> list[tuple[str, str, str, str]]:
    """One row a scenario that was to be run, as ``SCENARIOS_HEAD`` names the columns."""
    chosen = [scenario for scenario in SCENARIOS if scenario.name in attacked.started.scenarios]
    return [_row(attacked, scenario) for scenario in chosen]


def _row(attacked: Attacked, scenario: Scenario) -> tuple[str, str, str, str]:
    check = scenario_check(attacked, scenario)
    answers = [part.ended for part in attacked.of(scenario.name) if part.ended is not None]
    elapsed_ns = scenario_ns(attacked.of(scenario.name))
    seconds = f"{elapsed_ns / NS_PER_S:.1f}" if elapsed_ns else NOT_RUN
    if check.status is GateStatus.PASS:
        seen = one_line("; ".join(each.seen for each in answers)) or scenario.expected
    else:
        code = f" [{check.code}]" if check.code else ""
        seen = check.sentence.removeprefix(f"scenario {scenario.name}").lstrip(":, ") + code
    return scenario.name, check.status.value, seconds, seen


def scenario_notes(attacked: Attacked) -> list[str]:
    """What was left out, and what the scenarios took together."""
    notes = []
    by_option: dict[str, list[str]] = {}
    for name, why in attacked.started.skipped.items():
        by_option.setdefault(why, []).append(name)
    for why, names in by_option.items():
        notes.append(f"left out by {why}: {', '.join(names)}")
    taken = {name: scenario_ns(parts) for name, parts in attacked.parts.items()}
    if any(taken.values()):
        slowest = max(taken, key=lambda name: taken[name])
        notes.append(
            f"hard scenarios took {sum(taken.values()) / NS_PER_S:.1f} s, the longest {slowest} "
            f"({taken[slowest] / NS_PER_S:.1f} s)"
        )
    return notes
