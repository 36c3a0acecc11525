"""Gate 4, lifecycle: what a graph costs once is known, and paid back soon enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cudagraph_gate.evidence import PILOT_LOG
from cudagraph_gate.gates.break_even import (
    BreakEven,
    break_even,
    cost_of,
    minutes,
    one_time_cost,
    request_rate,
)
from cudagraph_gate.gates.check import Check, Gate, fails, finding_checks, holds, undecided
from cudagraph_gate.gates.latency import saved_per_request
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.segment import not_tried
from cudagraph_gate.gates.trial_view import ShapeTrial, TrialView
from cudagraph_gate.gates.update_cost import measured_updates, update_notes
from cudagraph_gate.gates.wording import duration
from cudagraph_gate.model import GateResult, NotMeasured, Reason
from cudagraph_gate.records import Phase

GATE = Gate(4, "lifecycle", (PILOT_LOG,))
COSTS: Final = (
    Phase.CAPTURE,
    Phase.INSTANTIATE,
    Phase.UPLOAD,
    Phase.FIRST_REPLAY,
    Phase.STEADY_REPLAY,
    Phase.UPDATE,
)
"""Phases whose cost must be measured, each on its own."""
OWN_COSTS: Final = (Phase.CAPTURE, Phase.STEADY_REPLAY)
"""Of a path of the workload's own: building it with its first requests, and steady ones."""
ALSO: Final = (Phase.COLD_REQUEST, Phase.WARM_UP, Phase.REINSTANTIATE, Phase.DESTROY)
"""Phases whose cost is told where it was measured; older logs lack some."""
PHASES: Final = frozenset(COSTS) - {Phase.CAPTURE} | {
    Phase.DESTROY,
    Phase.UPDATE_CURVE,
    Phase.REINSTANTIATE,
}
"""Phases whose findings speak of the lifecycle; those of the capture speak of the segment."""

_NO_RATE: Final = NotMeasured(reason="the rate of requests is not known")


def lifecycle_gate(trial: TrialView, policy: Policy) -> GateResult:
    """Judge the target shape's costs and its break-even."""
    threshold = {"max_break_even_calls": policy.max_break_even_calls}
    target = trial.target
    if target is None or not target.records:
        return GATE.result([not_tried(trial, trial.name)], {}, threshold)
    rate = request_rate(trial, target.shape)
    checks = lifecycle_checks(target, policy, rate)
    return GATE.result(checks, _measured(target, rate), threshold)


def lifecycle_checks(trial: ShapeTrial, policy: Policy, rate: float | NotMeasured = _NO_RATE) -> list[Check]:
    """What the trial of one shape says of its costs; ``rate`` is of its requests a second."""
    checks = finding_checks(trial, PHASES)
    costs = {phase: cost_of(trial, phase) for phase in _needed(trial)}
    unmeasured = {phase: cost for phase, cost in costs.items() if isinstance(cost, NotMeasured)}
    if unmeasured:
        return [*checks, undecided(Reason.UNMEASURABLE, _unmeasured_text(unmeasured))]
    return [*checks, _break_even_check(trial, policy, rate), *update_notes(trial, saved_per_request(trial))]


def _needed(trial: ShapeTrial) -> tuple[Phase, ...]:
    return OWN_COSTS if trial.method == "own" else COSTS


def _unmeasured_text(costs: Mapping[Phase, NotMeasured]) -> str:
    """Phases without a cost, each reason said once."""
    phases_of: dict[str, list[str]] = {}
    for phase, cost in costs.items():
        phases_of.setdefault(cost.reason, []).append(phase)
    parts = (f"{', '.join(phases)} ({reason})" for reason, phases in phases_of.items())
    return f"not measured: {'; '.join(parts)}"


def _break_even_check(trial: ShapeTrial, policy: Policy, rate: float | NotMeasured) -> Check:
    saved, paid = saved_per_request(trial), break_even(trial)
    if isinstance(saved, int) and saved <= 0:
        return fails(Reason.NO_GAIN, f"never breaks even: the median request takes {duration(-saved)} longer")
    if isinstance(saved, NotMeasured) or isinstance(paid, NotMeasured):
        absent = saved if isinstance(saved, NotMeasured) else paid
        return undecided(Reason.UNMEASURABLE, f"no break-even: {absent.reason}")  # type: ignore[union-attr]
    if isinstance(paid.worst_calls, NotMeasured):
        return undecided(Reason.UNMEASURABLE, f"no break-even: {paid.worst_calls.reason}")
    return _limit_check(paid, paid.worst_calls, saved, policy, rate)


def _limit_check(paid: BreakEven, worst: int, saved: int, policy: Policy, rate: float | NotMeasured) -> Check:
    limit = policy.max_break_even_calls
    seen = f"breaks even after {paid.calls} requests{_minutes_text(paid.calls, rate)}"
    at_worst = f", {worst} at worst" if worst > paid.calls else ""
    seen = f"{seen}{at_worst}, each saves {duration(saved)}"
    if paid.calls > limit:
        return fails(Reason.NO_GAIN, f"{seen}; the limit is {limit}")
    if worst > limit:
        return undecided(Reason.UNMEASURABLE, f"{seen}; the limit {limit} lies between")
    return holds(seen)


def _minutes_text(calls: int, rate: float | NotMeasured) -> str:
    spent = minutes(calls, rate)
    return "" if isinstance(spent, NotMeasured) else f" ({spent:.3g} minutes at the traffic's rate)"


def _measured(trial: ShapeTrial, rate: float | NotMeasured) -> dict[str, Any]:
    paid, saved = break_even(trial), saved_per_request(trial)
    phases = (*_needed(trial), *ALSO)
    measured: dict[str, Any] = {f"{phase}_ns": cost_of(trial, phase) for phase in phases}
    calls, worst = (paid, paid) if isinstance(paid, NotMeasured) else (paid.calls, paid.worst_calls)
    return measured | {
        "saved_ns": saved,
        "one_time_cost_ns": one_time_cost(trial),
        "break_even_calls": calls,
        "break_even_worst_calls": worst,
        "requests_per_s": rate,
        "break_even_minutes": minutes(calls, rate),
        "break_even_worst_minutes": minutes(worst, rate),
        "updates": measured_updates(trial, saved),
    }
