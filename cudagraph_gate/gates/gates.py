"""The seven gates in their order, and what the other shapes add to the verdict."""

from __future__ import annotations

from msgspec import structs

from cudagraph_gate.evidence import PILOT_LOG
from cudagraph_gate.gates.check import Gate, undecided
from cudagraph_gate.gates.comparison import comparison_gate
from cudagraph_gate.gates.environment import environment_gate
from cudagraph_gate.gates.gain import evidence_gate
from cudagraph_gate.gates.lifecycle import lifecycle_gate
from cudagraph_gate.gates.measured import measured_ladder
from cudagraph_gate.gates.own_path import kept_outputs_condition
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.rungs import exclusion, ladder_checks, ladder_conditions
from cudagraph_gate.gates.segment import other_path_condition, segment_gate, unstable_condition
from cudagraph_gate.gates.trial_view import Evidence, view_trial
from cudagraph_gate.gates.wording import one_line
from cudagraph_gate.model import GateResult, Reason

HARD_SCENARIOS = Gate(5, "hard scenarios", (PILOT_LOG,))
DRILL = Gate(7, "drill", (PILOT_LOG,))


def run_gates(evidence: Evidence, policy: Policy, stale: tuple[str, ...]) -> tuple[GateResult, ...]:
    """All seven gates on the target shape."""
    trial = view_trial(evidence)
    comparison = comparison_gate(evidence, trial, policy, ladder_checks(evidence, policy))
    measured = comparison.measured | measured_ladder(evidence, policy)
    return (
        evidence_gate(evidence, policy),
        segment_gate(evidence, trial, policy),
        environment_gate(evidence.fingerprint, stale),
        lifecycle_gate(trial, policy),
        _not_part(HARD_SCENARIOS, "the hard scenarios are not part of this version of the trial"),
        structs.replace(comparison, measured=measured),
        _not_part(DRILL, "the drill is not part of this version of the trial"),
    )


def conditions(evidence: Evidence, policy: Policy) -> tuple[str, ...]:
    """What a verdict is bound to beyond the fingerprint."""
    target = view_trial(evidence).target
    found = (other_path_condition(target), kept_outputs_condition(target), unstable_condition(evidence))
    ladder = ladder_conditions(evidence, policy)
    return (*filter(None, found), *ladder, *excluded_shapes(evidence, policy))


def excluded_shapes(evidence: Evidence, policy: Policy) -> tuple[str, ...]:
    """A condition for each other shape for which the trial did not hold, with the reason."""
    trial = view_trial(evidence)
    found = ((shape.shape, exclusion(trial, shape, policy)) for shape in trial.others)
    return tuple(one_line(f"shape {name} excluded: {reason}") for name, reason in found if reason)


def _not_part(gate: Gate, sentence: str) -> GateResult:
    return gate.result([undecided(Reason.NOT_TRIED, sentence)], {}, {})
