"""One gate is made of checks; the worst of them decides, so that adding a bad one never helps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cudagraph_gate.gates.trial_view import ShapeTrial, before
from cudagraph_gate.gates.wording import one_line
from cudagraph_gate.model import GateResult, GateStatus, NotMeasured, Reason
from cudagraph_gate.records import Finding, Phase, WorkerEnd

_WORST_FIRST: Final = (GateStatus.FAIL, GateStatus.UNKNOWN, GateStatus.PASS)
_UNDECIDED_CODES: Final = frozenset(
    {Reason.NOT_TRIED, Reason.UNMEASURABLE, Reason.ENVIRONMENT, Reason.NO_GRAPH_USED}
)
"""Findings that kept the trial from trying say nothing about the graph."""
_WORKLOAD_CODES: Final = frozenset({Reason.WORKLOAD, Reason.CRASH, Reason.HANG})
"""Before capture only the user's own code has run: these then say nothing about the graph either."""


@dataclass(frozen=True)
class Check:
    """One question of a gate and its answer in a sentence."""

    status: GateStatus
    sentence: str
    code: Reason | None = None


def holds(sentence: str) -> Check:
    """A check that passes."""
    return Check(GateStatus.PASS, sentence)


def fails(code: Reason, sentence: str) -> Check:
    """A check that speaks against the graph."""
    return Check(GateStatus.FAIL, sentence, code)


def undecided(code: Reason, sentence: str) -> Check:
    """A check that could not be answered."""
    return Check(GateStatus.UNKNOWN, sentence, code)


@dataclass(frozen=True)
class Gate:
    """Number, name and the artefacts that a gate reads."""

    number: int
    name: str
    evidence: tuple[str, ...]

    def result(
        self, checks: Iterable[Check], measured: dict[str, Any], threshold: dict[str, Any]
    ) -> GateResult:
        """The gate's answer: the worst status, with the sentences that have it and the first one's code."""
        decisive = worst(tuple(checks))
        return GateResult(
            number=self.number,
            name=self.name,
            status=decisive[0].status,
            measured={key: _plain(value) for key, value in measured.items()},
            threshold=threshold,
            reason=one_line("; ".join(check.sentence for check in decisive)),
            code=decisive[0].code,
            evidence=self.evidence,
        )


def worst(checks: Sequence[Check]) -> tuple[Check, ...]:
    """The checks with the worst status among ``checks``; a gate without any check is not tried."""
    for status in _WORST_FIRST:
        found = tuple(check for check in checks if check.status is status)
        if found:
            return found
    return (undecided(Reason.NOT_TRIED, "nothing was checked"),)


def joined(checks: Sequence[Check]) -> Check:
    """The worst status with each sentence that has it, and the first one's code."""
    decisive = worst(checks)
    sentences = dict.fromkeys(check.sentence for check in decisive)
    return Check(decisive[0].status, one_line("; ".join(sentences)), decisive[0].code)


def finding_checks(trial: ShapeTrial, phases: frozenset[Phase]) -> list[Check]:
    """The blocking findings of ``phases``."""
    return [
        _finding_check(finding) for finding in trial.findings if finding.blocks and finding.phase in phases
    ]


def located(sentence: str, call: str, where: str) -> str:
    """The sentence with the call and the line behind it, as far as they are known."""
    parts = (f"in {call}" if call else "", f"at {where}" if where else "")
    place = ", ".join(filter(None, parts))
    return f"{sentence} ({place})" if place else sentence


def _finding_check(finding: Finding) -> Check:
    sentence = located(finding.message, finding.call, finding.where)
    if finding.code in _UNDECIDED_CODES:
        return undecided(finding.code, sentence)
    if finding.code in _WORKLOAD_CODES and before(finding.phase, Phase.CAPTURE):
        return undecided(Reason.WORKLOAD, sentence)
    return fails(finding.code, sentence)


def ending(trial: ShapeTrial) -> str:
    """Where a trial ended and how its worker did: for what is missing from the log."""
    phase = trial.last_phase
    reached = f"the trial of shape {trial.shape} ended " + (
        f"in phase {phase}" if phase else "before its first phase"
    )
    end = trial.end
    if end is None or end.outcome == "finished":
        return reached
    return f"{reached}: its worker {worker_end(end)}"


def worker_end(end: WorkerEnd) -> str:
    """How a worker ended and why: ``crashed (SIGSEGV, last in model.py:7)``."""
    why = end.reason if end.signal in end.reason else f"{end.signal}, {end.reason}"
    return end.outcome.replace("_", " ") + (f" ({why.strip(', ')})" if why else "")


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value) if isinstance(value, NotMeasured) else value
