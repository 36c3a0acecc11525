"""The ladder: which rung holds, from the evidence alone; the trial goes on only while they do.

1 fixed input, 2 fresh inputs, 3 all shapes, 4 several instances, 5 concurrent requests, 6 the traffic mix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cudagraph_gate.gates.check import (
    Check,
    ending,
    fails,
    finding_checks,
    holds,
    joined,
    undecided,
    worker_end,
    worst,
)
from cudagraph_gate.gates.comparison import comparison_checks
from cudagraph_gate.gates.concurrency import concurrency_check
from cudagraph_gate.gates.instances import instances_check
from cudagraph_gate.gates.latency import compare_paths, rung_gains
from cudagraph_gate.gates.lifecycle import lifecycle_checks
from cudagraph_gate.gates.memory import memory_checks
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.segment import not_tried, segment_checks
from cudagraph_gate.gates.traffic import traffic_check
from cudagraph_gate.gates.trial_view import Evidence, ShapeTrial, TrialView, view_trial
from cudagraph_gate.gates.wording import one_line, percent
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.records import Phase, RungEnded, TrafficRun

OWN_SERIAL: Final = "a graph path of the workload's own is tried with one request at a time"


@dataclass(frozen=True)
class Rung:
    """One rung: its question to the evidence, and what a graph is bound to where it does not hold."""

    number: int
    name: str
    judge: Callable[[TrialView, Policy], Check]
    bound_to: str = ""
    """The condition of use; empty where a rung that does not hold refuses the graph."""


def judge_rung(number: int, evidence: Evidence, policy: Policy) -> RungEnded:
    """The answer of rung ``number`` (1 to 6)."""
    return _ended(RUNGS[number - 1], view_trial(evidence), policy)


def ladder(evidence: Evidence, policy: Policy) -> tuple[RungEnded, ...]:
    """Every rung up to the first that does not hold."""
    view = view_trial(evidence)
    climbed: list[RungEnded] = []
    for rung in rungs_of(view):
        climbed.append(_ended(rung, view, policy))
        if climbed[-1].status is not GateStatus.PASS:
            break
    return tuple(climbed)


def rungs_of(view: TrialView) -> tuple[Rung, ...]:
    """The rungs that this trial has: without a request mix there is no sixth."""
    own = view.target is not None and view.target.method == "own"
    return tuple(
        rung
        for rung in RUNGS
        if not (own and rung.number in (4, 5)) and not (rung.number == 6 and not view.traffic)
    )


def ladder_checks(evidence: Evidence, policy: Policy) -> list[Check]:
    """What the rungs say beyond the gates' own checks, and memory over time.

    Of the first two rungs only the bare replay is no gate's: the others repeat the gates 2, 4 and 6.
    """
    view, last = view_trial(evidence), ladder(evidence, policy)[-1]
    if last.number < 3:
        target = _target(view)
        return [] if target is None else _replay_checks(target, policy)
    return [
        *_last_rung_checks(last),
        *_recorded_failures(view, last, policy),
        *_memory_over_time(view, policy),
    ]


def _recorded_failures(view: TrialView, last: RungEnded, policy: Policy) -> list[Check]:
    """The traffic mix, where a rung below it fails that only binds the use: it is served in turns."""
    later = [rung for rung in rungs_of(view) if rung.number > last.number and not rung.bound_to]
    ended = [_ended(rung, view, policy) for rung in later]
    counted = {GateStatus.FAIL}
    if last.status is GateStatus.FAIL:
        counted.add(GateStatus.UNKNOWN)
    return [check for each in ended if each.status in counted for check in _last_rung_checks(each)]


def _memory_over_time(view: TrialView, policy: Policy) -> list[Check]:
    trial = view.rungs.get(Phase.MEMORY)
    checks = memory_checks(trial, policy, required=True)
    return checks if trial is None else [*checks, *_end_checks(trial)]


def _last_rung_checks(last: RungEnded) -> list[Check]:
    sentence = f"rung {last.number}, {last.name}: {last.reason}"
    if last.status is GateStatus.PASS:
        return [holds("every rung holds")]
    if last.status is GateStatus.UNKNOWN:
        return [undecided(last.code or Reason.NOT_TRIED, sentence)]
    if RUNGS[last.number - 1].bound_to:
        return [holds(f"the rungs below {last.number} hold")]
    return [fails(last.code or Reason.NO_GAIN, sentence)]


def ladder_conditions(evidence: Evidence, policy: Policy) -> tuple[str, ...]:
    """What a graph is bound to because a rung from the third on does not hold or has no meaning."""
    view = view_trial(evidence)
    found = []
    if view.target is not None and view.target.method == "own":
        found.append(f"serial use only: {OWN_SERIAL}")
    last = ladder(evidence, policy)[-1]
    rung = RUNGS[last.number - 1]
    if last.status is GateStatus.FAIL and rung.bound_to:
        found.append(one_line(f"{rung.bound_to}: rung {rung.number}, {rung.name}, fails: {last.reason}"))
    return tuple(found)


def shapes_that_hold(evidence: Evidence, policy: Policy) -> tuple[str, ...]:
    """Names of the shapes whose own trials hold, in the log's order."""
    return _holding(view_trial(evidence), policy)


def _holding(view: TrialView, policy: Policy) -> tuple[str, ...]:
    shapes = ([view.target] if view.target else []) + list(view.others)
    return tuple(shape.shape for shape in shapes if shape.records and not exclusion(view, shape, policy))


def exclusion(view: TrialView, shape: ShapeTrial, policy: Policy) -> str:
    """Why a shape is left out; empty if it held. What was not shown to hold is left out too."""
    if not shape.records:
        return not_tried(view, shape.shape).sentence.removeprefix(f"shape {shape.shape} was ")
    decisive = worst(trial_checks(shape, policy))
    return "" if decisive[0].status is GateStatus.PASS else decisive[0].sentence


def trial_checks(shape: ShapeTrial, policy: Policy) -> list[Check]:
    """All that the trial of one shape says of it."""
    checks = segment_checks(shape) + lifecycle_checks(shape, policy)
    return checks + comparison_checks(shape, policy, compare_paths(shape))


def _ended(rung: Rung, view: TrialView, policy: Policy) -> RungEnded:
    check = rung.judge(view, policy)
    return RungEnded(
        number=rung.number, name=rung.name, status=check.status, reason=check.sentence, code=check.code
    )


def _target(view: TrialView) -> ShapeTrial | None:
    return view.target if view.target is not None and view.target.records else None


# --- one shape ------------------------------------------------------------------------------------


def _fixed_input(view: TrialView, policy: Policy) -> Check:
    target = _target(view)
    if target is None:
        return not_tried(view, view.name)
    return joined([*segment_checks(target), *_replay_checks(target, policy)])


def _replay_checks(trial: ShapeTrial, policy: Policy) -> list[Check]:
    """Whether a bare replay gains too little; rung 2 judges the whole request where none was timed."""
    fixed, _fresh = rung_gains(trial)
    if isinstance(fixed, NotMeasured) or 1 - fixed.low >= policy.min_gain:
        return []
    gain = f"a bare replay gains {percent(1 - fixed.ratio)}, at most {percent(1 - fixed.low)}"
    return [fails(Reason.NO_GAIN, f"{gain}; the minimum is {percent(policy.min_gain)}")]


def _fresh_inputs(view: TrialView, policy: Policy) -> Check:
    target = _target(view)
    return not_tried(view, view.name) if target is None else joined(trial_checks(target, policy))


def _all_shapes(view: TrialView, policy: Policy) -> Check:
    if not view.others:
        return holds("there is one shape")
    left_out = {shape.shape: exclusion(view, shape, policy) for shape in view.others}
    excluded = [name for name, why in left_out.items() if why]
    if not excluded:
        return holds(f"all {len(view.others) + 1} shapes hold")
    if len(excluded) < len(view.others):
        return holds(f"{', '.join(excluded)} excluded, the other shapes hold")
    if not any(shape.records for shape in view.others):
        return undecided(Reason.NOT_TRIED, "no other shape was tried")
    if not any(_refused(shape, policy) for shape in view.others):
        why = next(why for why in left_out.values() if why)
        return undecided(Reason.UNMEASURABLE, f"whether any shape but {view.name} holds is open: {why}")
    return fails(Reason.NO_GAIN, f"no shape but {view.name} holds")


def _refused(shape: ShapeTrial, policy: Policy) -> bool:
    return bool(shape.records) and worst(trial_checks(shape, policy))[0].status is GateStatus.FAIL


# --- rungs with workers of their own --------------------------------------------------------------


def _own_worker(view: TrialView, phase: Phase, judged: Callable[[ShapeTrial], Check]) -> Check:
    """The findings and the end of a rung's worker, and what ``judged`` says of its records."""
    trial = view.rungs.get(phase)
    if trial is None:
        died = f": a worker {worker_end(view.ends[-1])}" if view.ends else ""
        return undecided(Reason.NOT_TRIED, f"it was not tried{died}")
    return joined([*finding_checks(trial, frozenset(Phase)), *_end_checks(trial), judged(trial)])


def _end_checks(trial: ShapeTrial) -> list[Check]:
    """A worker that crashed or hung in its rung speaks against the graph; one that got lost says nothing."""
    end = trial.end
    if end is not None and end.outcome == "finished":
        return []
    if end is not None and end.outcome in ("crashed", "timed_out"):
        return [fails(Reason.CRASH if end.outcome == "crashed" else Reason.HANG, ending(trial))]
    return [undecided(Reason.NOT_TRIED, f"its worker was not seen to finish: {ending(trial)}")]


def _instances(view: TrialView, policy: Policy) -> Check:
    return _own_worker(
        view, Phase.INSTANCES, lambda trial: instances_check(trial.records, trial.shape, policy)
    )


def _concurrency(view: TrialView, policy: Policy) -> Check:
    return _own_worker(
        view, Phase.CONCURRENCY, lambda trial: concurrency_check(trial.records, trial.shape, policy)
    )


def _traffic(view: TrialView, policy: Policy) -> Check:
    def judged(trial: ShapeTrial) -> Check:
        return joined([*_served_checks(view, trial, policy), traffic_check(trial.records, policy)])

    return _own_worker(view, Phase.TRAFFIC, judged)


def _served_checks(view: TrialView, trial: ShapeTrial, policy: Policy) -> list[Check]:
    """Whether the mix was served by graphs of shapes that hold: under another policy it may not be."""
    served = dict.fromkeys(name for run in trial.of(TrafficRun) for name in run.captured)
    wrong = [name for name in served if name not in _holding(view, policy)]
    if not wrong:
        return []
    return [
        undecided(Reason.NOT_TRIED, f"the mix was served by graphs of {', '.join(wrong)}, which are excluded")
    ]


RUNGS: Final = (
    Rung(1, "fixed input", _fixed_input),
    Rung(2, "fresh inputs", _fresh_inputs),
    Rung(3, "all shapes", _all_shapes, "serial use of the first shape only"),
    Rung(4, "several instances", _instances, "serial use of one instance only"),
    Rung(5, "concurrent requests", _concurrency, "serial use only"),
    Rung(6, "traffic mix", _traffic),
)
