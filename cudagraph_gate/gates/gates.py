"""The seven gates in their order, and what the other shapes add to the verdict."""

from __future__ import annotations

from cudagraph_gate.evidence import PILOT_LOG
from cudagraph_gate.gates.check import Check, Gate, undecided, worst
from cudagraph_gate.gates.comparison import comparison_checks, comparison_gate
from cudagraph_gate.gates.environment import environment_gate
from cudagraph_gate.gates.gain import evidence_gate
from cudagraph_gate.gates.latency import compare_paths
from cudagraph_gate.gates.lifecycle import lifecycle_checks, lifecycle_gate
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.segment import (
    not_tried,
    other_path_condition,
    segment_checks,
    segment_gate,
    unstable_condition,
)
from cudagraph_gate.gates.trial_view import Evidence, ShapeTrial, TrialView, view_trial
from cudagraph_gate.gates.wording import one_line
from cudagraph_gate.model import GateResult, GateStatus, Reason

HARD_SCENARIOS = Gate(5, "hard scenarios", (PILOT_LOG,))
DRILL = Gate(7, "drill", (PILOT_LOG,))


def run_gates(evidence: Evidence, policy: Policy, stale: tuple[str, ...]) -> tuple[GateResult, ...]:
    """All seven gates on the target shape."""
    trial = view_trial(evidence)
    return (
        evidence_gate(evidence, policy),
        segment_gate(evidence, trial, policy),
        environment_gate(evidence.fingerprint, stale),
        lifecycle_gate(trial, policy),
        _not_part(HARD_SCENARIOS, "the hard scenarios are not part of this version of the trial"),
        comparison_gate(evidence, trial, policy),
        _not_part(DRILL, "the drill is not part of this version of the trial"),
    )


def conditions(evidence: Evidence, policy: Policy) -> tuple[str, ...]:
    """What a verdict is bound to beyond the fingerprint."""
    found = (other_path_condition(view_trial(evidence).target), unstable_condition(evidence))
    return (*filter(None, found), *excluded_shapes(evidence, policy))


def excluded_shapes(evidence: Evidence, policy: Policy) -> tuple[str, ...]:
    """A condition for each other shape for which the trial did not hold, with the reason."""
    trial = view_trial(evidence)
    found = ((shape.shape, _exclusion(trial, shape, policy)) for shape in trial.others)
    return tuple(one_line(f"shape {name} excluded: {reason}") for name, reason in found if reason)


def _exclusion(trial: TrialView, shape: ShapeTrial, policy: Policy) -> str:
    """Why a shape is left out; empty if it held. What was not shown to hold is left out too."""
    if not shape.records:
        return not_tried(trial, shape.shape).sentence.removeprefix(f"shape {shape.shape} was ")
    decisive = worst(_trial_checks(shape, policy))
    return "" if decisive[0].status is GateStatus.PASS else decisive[0].sentence


def _trial_checks(shape: ShapeTrial, policy: Policy) -> list[Check]:
    checks = segment_checks(shape)
    checks += lifecycle_checks(shape, policy)
    return checks + comparison_checks(shape, policy, compare_paths(shape))


def _not_part(gate: Gate, sentence: str) -> GateResult:
    return gate.result([undecided(Reason.NOT_TRIED, sentence)], {}, {})
