"""Gate 4, lifecycle: what a graph costs once is known, and paid back soon enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cudagraph_gate.evidence import PILOT_LOG
from cudagraph_gate.gates.check import Check, Gate, ending, fails, finding_checks, holds, undecided
from cudagraph_gate.gates.latency import compare_paths, saved_per_request
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.segment import not_tried
from cudagraph_gate.gates.trial_view import ShapeTrial, TrialView
from cudagraph_gate.gates.wording import duration, percent
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
PHASES: Final = frozenset(COSTS) - {Phase.CAPTURE} | {Phase.DESTROY}
"""Phases whose findings speak of the lifecycle; those of the capture speak of the segment."""


def lifecycle_gate(trial: TrialView, policy: Policy) -> GateResult:
    """Judge the target shape's costs and its break-even."""
    threshold = {"max_break_even_calls": policy.max_break_even_calls}
    target = trial.target
    if target is None or not target.records:
        return GATE.result([not_tried(trial, trial.name)], {}, threshold)
    measured = {f"{phase}_ns": _cost(target, phase) for phase in COSTS}
    measured |= {"saved_ns": saved_per_request(target), "break_even_calls": break_even_calls(target)}
    return GATE.result(lifecycle_checks(target, policy), measured, threshold)


def lifecycle_checks(trial: ShapeTrial, policy: Policy) -> list[Check]:
    """What the trial of one shape says of its costs."""
    checks = finding_checks(trial, PHASES)
    costs = {phase: _cost(trial, phase) for phase in COSTS}
    unmeasured = {phase: cost for phase, cost in costs.items() if isinstance(cost, NotMeasured)}
    if unmeasured:
        return [*checks, undecided(Reason.UNMEASURABLE, _unmeasured_text(unmeasured))]
    return [*checks, _break_even_check(trial, policy)]


def _unmeasured_text(costs: Mapping[Phase, NotMeasured]) -> str:
    """Phases without a cost, each reason said once."""
    phases_of: dict[str, list[str]] = {}
    for phase, cost in costs.items():
        phases_of.setdefault(cost.reason, []).append(phase)
    parts = (f"{', '.join(phases)} ({reason})" for reason, phases in phases_of.items())
    return f"not measured: {'; '.join(parts)}"


def break_even_calls(trial: ShapeTrial) -> int | NotMeasured:
    """Requests after which what the graph costs once is paid back by what each request saves."""
    saved = saved_per_request(trial)
    if isinstance(saved, NotMeasured):
        return saved
    if saved <= 0:
        return NotMeasured(reason="never breaks even: a request saves nothing")
    once = one_time_cost(trial)
    return once if isinstance(once, NotMeasured) else -(-once // saved)


def one_time_cost(trial: ShapeTrial) -> int | NotMeasured:
    """Capture, instantiate, upload, and what the first replay takes longer than a steady one, in ns."""
    costs = [_cost(trial, phase) for phase in COSTS[:5]]
    known = [cost for cost in costs if isinstance(cost, int)]
    if len(known) < len(costs):
        return next(cost for cost in costs if isinstance(cost, NotMeasured))
    capture, instantiate, upload, first, steady = known
    return capture + instantiate + upload + max(0, first - steady)


def _cost(trial: ShapeTrial, phase: Phase) -> int | NotMeasured:
    cost = trial.costs.get(phase)
    if cost is not None:
        return cost
    reason = "the trial went past it" if trial.completed else ending(trial)
    return NotMeasured(reason=f"no record of it, {reason}")


def _unsure_saving(trial: ShapeTrial) -> Check | None:
    """A break-even on a saving that may be noise says nothing."""
    paths = compare_paths(trial)
    if isinstance(paths, NotMeasured):
        return undecided(Reason.UNMEASURABLE, f"no break-even: {paths.reason}")
    if paths.p50.ratio.high < 1:
        return None
    interval = f"{percent(1 - paths.p50.ratio.high)} to {percent(1 - paths.p50.ratio.low)}"
    return undecided(
        Reason.UNMEASURABLE, f"no break-even: whether a request saves anything is unsure ({interval})"
    )


def _break_even_check(trial: ShapeTrial, policy: Policy) -> Check:
    saved = saved_per_request(trial)
    calls = break_even_calls(trial)
    if isinstance(saved, NotMeasured):
        return undecided(Reason.UNMEASURABLE, f"no break-even: {saved.reason}")
    if saved <= 0:
        return fails(Reason.NO_GAIN, f"never breaks even: the median request takes {duration(-saved)} longer")
    if isinstance(calls, NotMeasured):
        return undecided(Reason.UNMEASURABLE, f"no break-even: {calls.reason}")
    if (unsure := _unsure_saving(trial)) is not None:
        return unsure
    paid = f"breaks even after {calls} requests, each saves {duration(saved)}"
    if calls > policy.max_break_even_calls:
        return fails(Reason.NO_GAIN, f"{paid}; the limit is {policy.max_break_even_calls}")
    return holds(paid)
