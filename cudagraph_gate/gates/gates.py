"""The seven gates in their order, and what the other shapes add to the verdict."""

from __future__ import annotations

from msgspec import structs

from cudagraph_gate.evidence import PILOT_LOG
from cudagraph_gate.gates.check import Gate
from cudagraph_gate.gates.comparison import comparison_gate
from cudagraph_gate.gates.drill import drill_checks, measured_drill
from cudagraph_gate.gates.environment import environment_gate
from cudagraph_gate.gates.explicit import explicit_conditions
from cudagraph_gate.gates.judged_trial import JudgedTrial
from cudagraph_gate.gates.lifecycle import lifecycle_gate
from cudagraph_gate.gates.measured import measured_ladder
from cudagraph_gate.gates.own_path import own_work_condition
from cudagraph_gate.gates.prediction import evidence_gate
from cudagraph_gate.gates.rungs import ladder_checks, ladder_conditions
from cudagraph_gate.gates.scenarios import hard_scenario_checks, measured_scenarios, view_attack
from cudagraph_gate.gates.segment import other_path_condition, segment_gate, unstable_condition
from cudagraph_gate.gates.uses import use_conditions
from cudagraph_gate.gates.whole_request import measured_whole_request, whole_request_conditions
from cudagraph_gate.gates.wording import one_line
from cudagraph_gate.model import GateResult
from cudagraph_gate.records import RungEnded

HARD_SCENARIOS = Gate(5, "hard scenarios", (PILOT_LOG,))
DRILL = Gate(7, "drill", (PILOT_LOG,))


def run_gates(trial: JudgedTrial, last: RungEnded, stale: tuple[str, ...]) -> tuple[GateResult, ...]:
    """All seven gates on the target shape; ``last`` is the rung that ended the climb."""
    evidence, view, policy = trial.evidence, trial.view, trial.policy
    comparison = comparison_gate(evidence, view, policy, ladder_checks(trial, last))
    whole = measured_whole_request(view.target)
    measured = comparison.measured | whole | measured_ladder(trial)
    attacked = view_attack(evidence.records, view)
    return (
        evidence_gate(evidence, policy),
        segment_gate(evidence, view, policy),
        environment_gate(evidence.fingerprint, stale),
        lifecycle_gate(view, policy),
        HARD_SCENARIOS.result(hard_scenario_checks(attacked), measured_scenarios(attacked), {}),
        structs.replace(comparison, measured=measured),
        DRILL.result(
            drill_checks(attacked, policy),
            measured_drill(attacked),
            {"max_tail_regression": policy.max_tail_regression},
        ),
    )


def conditions(trial: JudgedTrial, last: RungEnded) -> tuple[str, ...]:
    """What a verdict is bound to beyond the fingerprint; ``last`` is the rung that ended the climb."""
    target = trial.view.target
    found = (
        other_path_condition(target),
        own_work_condition(target) if target else "",
        unstable_condition(trial.evidence),
    )
    return (
        *filter(None, found),
        *use_conditions(target),
        *whole_request_conditions(trial.view, trial.policy),
        *ladder_conditions(trial, last),
        *excluded_shapes(trial),
        *explicit_conditions(trial.view),
    )


def excluded_shapes(trial: JudgedTrial) -> tuple[str, ...]:
    """A condition for each other shape for which the trial did not hold, with the reason."""
    found = ((shape.shape, trial.exclusion(shape)) for shape in trial.view.others)
    return tuple(one_line(f"shape {name} excluded: {reason}") for name, reason in found if reason)
