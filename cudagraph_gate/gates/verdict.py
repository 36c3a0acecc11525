"""From gate results to the verdict; pure, so that the same evidence always gives the same answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from cudagraph_gate.errors import ExitCode
from cudagraph_gate.evidence import missing
from cudagraph_gate.gates.environment import environment_gate
from cudagraph_gate.gates.gates import conditions, run_gates
from cudagraph_gate.gates.judged_trial import JudgedTrial
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.rungs import climb
from cudagraph_gate.gates.trial_view import Evidence
from cudagraph_gate.model import Decision, GateResult, GateStatus, Verdict
from cudagraph_gate.records import TrialStarted

EXIT_CODES: Final = {
    Decision.GO: ExitCode.GO,
    Decision.NO_GO: ExitCode.NO_GO,
    Decision.CONDITIONAL: ExitCode.CONDITIONAL,
    Decision.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}


def judge(evidence: Evidence, policy: Policy, *, stale: tuple[str, ...] = ()) -> Verdict:
    """The verdict on ``evidence``. ``stale`` names the fingerprint fields that differ on this machine."""
    trial = JudgedTrial(evidence, policy)
    last = climb(trial)[-1]
    gates, bound_to = run_gates(trial, last, stale), conditions(trial, last)
    decision = Decision.INCONCLUSIVE if stale else decide(gates, bound_to)
    return Verdict(
        verdict=Decision.INCONCLUSIVE if evidence.simulated else decision,
        rehearsal=decision if evidence.simulated else None,
        recorded_verdict=_recorded(evidence, gates, bound_to) if stale else None,
        stale=stale,
        reasons=_reasons(gates, GateStatus.UNKNOWN if stale else None),
        conditions=bound_to,
        gates=gates,
        workload=evidence.workload,
        shape=trial.view.name or "",
        shapes_left_out=_left_out(evidence),
        run=evidence.run,
        fingerprint=evidence.fingerprint or missing("fingerprint"),
        policy=msgspec.structs.asdict(policy),
    )


def _left_out(evidence: Evidence) -> tuple[str, ...]:
    """Declared shapes that no trial in this run was asked for."""
    trials = [record for record in evidence.records if isinstance(record, TrialStarted)]
    tried = {shape for started in trials for shape in started.shapes}
    return tuple(shape for shape in trials[-1].left_out if shape not in tried) if trials else ()


def _recorded(evidence: Evidence, gates: Sequence[GateResult], bound_to: Sequence[str]) -> Decision:
    """The verdict where stale evidence was recorded: only the environment's gate answers otherwise there."""
    if evidence.simulated:
        return Decision.INCONCLUSIVE
    at_home = environment_gate(evidence.fingerprint, ())
    return decide([at_home if gate.number == at_home.number else gate for gate in gates], bound_to)


def decide(gates: Sequence[GateResult], conditions: Sequence[str]) -> Decision:
    """Any fail is NO-GO, else any unknown INCONCLUSIVE, else any condition CONDITIONAL, else GO.

    No gate at all is INCONCLUSIVE: nothing was shown.
    """
    statuses = {gate.status for gate in gates} or {GateStatus.UNKNOWN}
    if GateStatus.FAIL in statuses:
        return Decision.NO_GO
    if GateStatus.UNKNOWN in statuses:
        return Decision.INCONCLUSIVE
    return Decision.CONDITIONAL if conditions else Decision.GO


def exit_code(verdict: Verdict) -> ExitCode:
    """The exit code that tells a script this verdict."""
    return EXIT_CODES[verdict.verdict]


def _reasons(gates: Sequence[GateResult], only: GateStatus | None) -> tuple[str, ...]:
    """The sentences of the failing gates, else of the unknown ones; ``only`` those of one status."""
    for status in (only,) if only else (GateStatus.FAIL, GateStatus.UNKNOWN):
        found = tuple(
            f"gate {gate.number} {gate.name}: {gate.reason}" for gate in gates if gate.status is status
        )
        if found:
            return found
    return ()
