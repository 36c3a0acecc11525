"""Gate 5: each hard scenario ended as it must, and left everything else as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cudagraph_gate.gates.check import Check, fails, holds, located, undecided, worker_end, worst
from cudagraph_gate.gates.trial_view import TrialView
from cudagraph_gate.gates.wording import listed, one_line
from cudagraph_gate.model import DRILL, SCENARIOS, GateStatus, Reason, Scenario, WorkerOutcome
from cudagraph_gate.records import (
    AttackStarted,
    DrillRun,
    Proof,
    Record,
    ScenarioEnded,
    ScenarioStarted,
    TrialStarted,
    WorkerEnd,
    scenario_stage,
)

NAMED: Final = 3
"""Skipped scenarios that a reason names; the report lists them all."""


@dataclass
class Part:
    """What one worker of a scenario recorded, and how it ended."""

    started: bool = False
    proofs: list[Proof] = field(default_factory=list)
    runs: list[DrillRun] = field(default_factory=list)
    ended: ScenarioEnded | None = None
    end: WorkerEnd | None = None


@dataclass(frozen=True)
class Attacked:
    """The newest attack on one shape's graph."""

    started: AttackStarted
    parts: Mapping[str, Sequence[Part]]
    """By scenario, in the order of their workers."""

    def of(self, name: str) -> Sequence[Part]:
        """The workers of one scenario."""
        return self.parts.get(name, ())


def view_attack(records: Sequence[Record], view: TrialView) -> Attacked | None:
    """The attack on the target's graph in the newest trial that tried it; None: there was none."""
    target = view.target
    if target is None:
        return None
    found: Attacked | None = None
    parts: dict[str, list[Part]] = {}
    for record in records:
        if isinstance(record, TrialStarted) and target.shape in record.shapes:
            found = None  # an older attack was on an older trial
        elif isinstance(record, AttackStarted):
            parts = {}
            same = (record.shape, record.method) == (target.shape, target.method)
            found = Attacked(record, parts) if same else None
        elif found is not None:
            _take(parts, record)
    return found


def _take(parts: dict[str, list[Part]], record: Record) -> None:
    if isinstance(record, WorkerEnd):
        for name in [
            scenario.name for scenario in SCENARIOS if record.stage == scenario_stage(scenario.name)
        ]:
            part = _part(parts, name, sum(each.end is not None for each in parts.get(name, ())))
            part.end = record
    elif isinstance(record, ScenarioStarted):
        _part(parts, record.scenario, record.part).started = True
    elif isinstance(record, Proof):
        _part(parts, record.scenario, record.part).proofs.append(record)
    elif isinstance(record, ScenarioEnded):
        _part(parts, record.scenario, record.part).ended = record
    elif isinstance(record, DrillRun):
        _part(parts, DRILL, 0).runs.append(record)


def _part(parts: dict[str, list[Part]], name: str, number: int) -> Part:
    own = parts.setdefault(name, [])
    while len(own) <= number:
        own.append(Part())
    return own[number]


def hard_scenario_checks(attacked: Attacked | None) -> list[Check]:
    """One check for each scenario but the drill; what was skipped or not reached is undecided."""
    if attacked is None:
        return [undecided(Reason.NOT_TRIED, "no hard scenario was tried")]
    run = [each for each in SCENARIOS if each.name not in (DRILL, *attacked.started.skipped)]
    checks = [*_skipped_checks(attacked), *(scenario_check(attacked, scenario) for scenario in run)]
    if any(check.status is not GateStatus.PASS for check in checks):
        return checks
    aside = sum(bool(left_out(attacked, scenario.name)) for scenario in SCENARIOS if scenario.name != DRILL)
    apart = f", {aside} do not apply" if aside else ""
    return [holds(f"{len(checks) - aside} hard scenarios ended as they must{apart}")]


def _skipped_checks(attacked: Attacked) -> list[Check]:
    """One check for each option that has left scenarios out."""
    by_option: dict[str, list[str]] = {}
    for name, why in attacked.started.skipped.items():
        if name != DRILL:
            by_option.setdefault(why, []).append(name)
    checks = []
    for why, names in by_option.items():
        many = len(names) > 1
        which = f"scenario{'s' * many} {listed(names, NAMED)} {'were' if many else 'was'} skipped ({why})"
        checks.append(undecided(Reason.NOT_TRIED, which))
    return checks


def left_out(attacked: Attacked, name: str) -> str:
    """Why a scenario's fault has no meaning for this workload; empty if it has."""
    answers = (part.ended for part in attacked.of(name))
    return next((each.seen for each in answers if each is not None and not each.applies), "")


def scenario_check(attacked: Attacked, scenario: Scenario) -> Check:
    """Whether this scenario's workers ended as they must and proved what they had to."""
    name = scenario.name
    if name in attacked.started.skipped:
        return undecided(Reason.NOT_TRIED, f"scenario {name} was skipped ({attacked.started.skipped[name]})")
    parts = attacked.of(name)
    if not parts:
        return undecided(Reason.NOT_TRIED, f"scenario {name} was not reached")
    if why := left_out(attacked, name):
        return holds(f"{name} does not apply: {why}")
    checks = [
        check
        for number, expected in enumerate(scenario.ends)
        for check in _part_checks(name, number, expected, parts)
    ]
    decisive = worst(checks)
    if decisive[0].status is GateStatus.PASS:
        seen = "; ".join(part.ended.seen for part in parts if part.ended is not None)
        return holds(one_line(f"{name}: {seen}"))
    sentences = dict.fromkeys(check.sentence for check in decisive)
    return Check(decisive[0].status, one_line("; ".join(sentences)), decisive[0].code)


def _part_checks(name: str, number: int, expected: WorkerOutcome, parts: Sequence[Part]) -> Iterator[Check]:
    which = f"scenario {name}" + (", after its process was replaced," if number else "")
    if number >= len(parts):
        yield undecided(Reason.NOT_TRIED, f"{which} was not reached")
        return
    part = parts[number]
    yield _end_check(which, expected, part)
    if part.ended is not None:
        yield _ended_check(which, part.ended)
    yield from (_proof_check(which, proof) for proof in part.proofs)


def _end_check(which: str, expected: WorkerOutcome, part: Part) -> Check:
    end = part.end
    if end is None:
        return undecided(Reason.NOT_TRIED, f"{which} was not seen to end")
    seen = f"its worker {worker_end(end)}"
    if end.outcome == expected:
        if expected == "finished" and part.ended is None:
            return undecided(Reason.NOT_TRIED, f"{which} ended without an answer")
        if expected != "finished" and not part.started:
            return undecided(Reason.NOT_TRIED, f"{which} ended before its fault: {seen}")
        return holds(f"{which} ended as it must")
    if end.outcome == "crashed":
        return fails(Reason.CRASH, f"{which} broke the process: {seen}")
    if end.outcome == "timed_out":
        return fails(Reason.HANG, f"{which} never ended: {seen}")
    if end.outcome == "finished":
        if part.ended is not None and part.ended.status is not GateStatus.PASS:
            return holds(f"{which} says itself what came of it")
        return undecided(Reason.UNMEASURABLE, f"{which}: its fault did not show, the worker went on")
    return undecided(Reason.NOT_TRIED, f"{which} could not be tried: {seen}")


def _ended_check(which: str, ended: ScenarioEnded) -> Check:
    advice = f"; {ended.advice}" if ended.advice and ended.status is not GateStatus.PASS else ""
    seen = located(f"{which}: {ended.seen}", ended.call, ended.where)
    return Check(ended.status, f"{seen}{advice}", ended.code)


def _proof_check(which: str, proof: Proof) -> Check:
    return Check(proof.status, f"{which} and then {proof.name}: {proof.detail}", proof.code)


def scenario_ns(parts: Sequence[Part]) -> int:
    """Wall time of a scenario's workers, in ns; 0 where it is not known."""
    taken = 0
    for part in parts:
        if part.end is not None and isinstance(part.end.elapsed, int):
            taken += part.end.elapsed
        elif part.ended is not None:
            taken += part.ended.elapsed_ns
    return taken


def measured_scenarios(attacked: Attacked | None) -> dict[str, Any]:
    """Status, what was seen and wall time of each scenario, for the gate's ``measured``."""
    if attacked is None:
        return {}
    return {scenario.name: _measured(attacked, scenario) for scenario in SCENARIOS if scenario.name != DRILL}


def _measured(attacked: Attacked, scenario: Scenario) -> dict[str, Any]:
    check = scenario_check(attacked, scenario)
    ended = [part.ended for part in attacked.of(scenario.name) if part.ended is not None]
    return {
        "status": check.status,
        "seen": check.sentence,
        "code": check.code,
        "applies": all(each.applies for each in ended),
        "elapsed_ns": scenario_ns(attacked.of(scenario.name)),
    }
