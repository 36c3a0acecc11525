"""Logs of hard scenarios, written down by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evidence_builder import trial

from cudagraph_gate.model import SCENARIOS, GateStatus, Scenario
from cudagraph_gate.records import (
    AttackStarted,
    Proof,
    Record,
    ScenarioEnded,
    ScenarioStarted,
    WorkerEnd,
    scenario_stage,
)

PROOFS = ("nothing captures", "normal path", "memory")


def end(name: str, outcome: str = "finished", **change: Any) -> WorkerEnd:
    """How one worker of a scenario ended."""
    fields: dict[str, Any] = {"exit_code": 0 if outcome == "finished" else None, "reason": ""} | change
    return WorkerEnd(stage=scenario_stage(name), outcome=outcome, **fields)  # type: ignore[arg-type]


def ended(name: str, part: int = 0, **change: Any) -> ScenarioEnded:
    """What came of one worker's fault."""
    fields: dict[str, Any] = {"shape": "b1", "status": GateStatus.PASS, "seen": "as expected"}
    return ScenarioEnded(scenario=name, part=part, elapsed_ns=2_000_000_000, **fields | change)


def proof(name: str, part: int = 0, *, proved: str = "memory", **change: Any) -> Proof:
    """One proof, which holds."""
    fields: dict[str, Any] = {"status": GateStatus.PASS, "detail": "as before"}
    return Proof(scenario=name, part=part, name=proved, **fields | change)


def held(scenario: Scenario) -> list[Record]:
    """The log of one scenario that ended as it must."""
    records: list[Record] = []
    for part, outcome in enumerate(scenario.ends):
        records.append(ScenarioStarted(scenario=scenario.name, part=part, shape="b1"))
        if outcome == "finished":
            records += [proof(scenario.name, part, proved=each) for each in PROOFS]
            records.append(ended(scenario.name, part))
        records.append(end(scenario.name, outcome))
    return records


def attack(
    logs: dict[str, Sequence[Record]] | None = None, skipped: dict[str, str] | None = None, **started: Any
) -> list[Record]:
    """A whole attack in which all holds, but for the scenarios whose logs are given."""
    logs, skipped = logs or {}, skipped or {}
    chosen = [scenario for scenario in SCENARIOS if scenario.name not in skipped]
    fields: dict[str, Any] = {"shape": "b1"} | started
    records: list[Record] = [
        AttackStarted(scenarios=tuple(each.name for each in chosen), skipped=skipped, **fields)
    ]
    for scenario in chosen:
        records += logs.get(scenario.name, held(scenario))
    return records


def attacked_trial(
    logs: dict[str, Sequence[Record]] | None = None, skipped: dict[str, str] | None = None
) -> tuple[Record, ...]:
    """A trial in which all holds, and its attack."""
    return (*trial(), *attack(logs, skipped))
