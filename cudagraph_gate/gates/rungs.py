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
)
from cudagraph_gate.gates.concurrency import concurrency_check
from cudagraph_gate.gates.gain import too_small
from cudagraph_gate.gates.instances import instances_check
from cudagraph_gate.gates.judged_trial import JudgedTrial
from cudagraph_gate.gates.latency import rung_gains
from cudagraph_gate.gates.memory import memory_checks
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.segment import not_tried, segment_checks
from cudagraph_gate.gates.traffic import traffic_check
from cudagraph_gate.gates.trial_view import Evidence, ShapeTrial, TrialView
from cudagraph_gate.gates.wording import one_line, percent
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.records import Phase, RungEnded, TrafficRun

OWN_SERIAL: Final = "a graph path of the workload's own is tried with one request at a time"


@dataclass(frozen=True)
class Rung:
    """One rung: its question to the evidence, and what a graph is bound to where it does not hold."""

    number: int
    name: str
    judge: Callable[[JudgedTrial], Check]
    bound_to: str = ""
    """The condition of use; empty where a rung that does not hold refuses the graph."""


def judge_rung(number: int, evidence: Evidence, policy: Policy) -> RungEnded:
    """The answer of rung ``number`` (1 to 6)."""
    return _ended(RUNGS[number - 1], JudgedTrial(evidence, policy))


def ladder(evidence: Evidence, policy: Policy) -> tuple[RungEnded, ...]:
    """Every rung up to the first that does not hold."""
    return climb(JudgedTrial(evidence, policy))


def shapes_that_hold(evidence: Evidence, policy: Policy) -> tuple[str, ...]:
    """Names of the shapes whose own trials hold, in the log's order."""
    return JudgedTrial(evidence, policy).holding


def climb(trial: JudgedTrial) -> tuple[RungEnded, ...]:
    """Every rung up to the first that does not hold; at least one."""
    climbed: list[RungEnded] = []
    for rung in rungs_of(trial.view):
        climbed.append(_ended(rung, trial))
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


def ladder_checks(trial: JudgedTrial, last: RungEnded) -> list[Check]:
    """What the rungs say beyond the gates' own checks, and memory over time; ``last`` ended the climb.

    Of the first two rungs only the bare replay is no gate's: the others repeat the gates 2, 4 and 6.
    """
    if last.number < 3:
        return [] if trial.target is None else _replay_checks(trial.target, trial.policy)
    return [*_last_rung_checks(last), *_recorded_failures(trial, last), *_memory_over_time(trial)]


def _recorded_failures(trial: JudgedTrial, last: RungEnded) -> list[Check]:
    """The traffic mix, where a rung below it fails that only binds the use: it is served in turns."""
    later = [rung for rung in rungs_of(trial.view) if rung.number > last.number and not rung.bound_to]
    ended = [_ended(rung, trial) for rung in later]
    counted = {GateStatus.FAIL}
    if last.status is GateStatus.FAIL:
        counted.add(GateStatus.UNKNOWN)
    return [check for each in ended if each.status in counted for check in _last_rung_checks(each)]


def _memory_over_time(trial: JudgedTrial) -> list[Check]:
    rung = trial.view.rungs.get(Phase.MEMORY)
    checks = memory_checks(rung, trial.policy, required=True)
    return checks if rung is None else [*checks, *_end_checks(rung)]


def _last_rung_checks(last: RungEnded) -> list[Check]:
    sentence = f"rung {last.number}, {last.name}: {last.reason}"
    if last.status is GateStatus.PASS:
        return [holds("every rung that applies holds")]
    if last.status is GateStatus.UNKNOWN:
        return [undecided(last.code or Reason.NOT_TRIED, sentence)]
    if RUNGS[last.number - 1].bound_to:
        return [holds(f"the rungs below {last.number} hold")]
    return [fails(last.code or Reason.NO_GAIN, sentence)]


def ladder_conditions(trial: JudgedTrial, last: RungEnded) -> tuple[str, ...]:
    """What a graph is bound to because a rung from the third on does not hold or has no meaning."""
    found = []
    if trial.view.target is not None and trial.view.target.method == "own":
        found.append(f"serial use only: {OWN_SERIAL}")
    rung = RUNGS[last.number - 1]
    if last.status is GateStatus.FAIL and rung.bound_to:
        found.append(one_line(f"{rung.bound_to}: rung {rung.number}, {rung.name}, fails: {last.reason}"))
    return tuple(found)


def _ended(rung: Rung, trial: JudgedTrial) -> RungEnded:
    check = rung.judge(trial)
    return RungEnded(
        number=rung.number, name=rung.name, status=check.status, reason=check.sentence, code=check.code
    )


# --- one shape ------------------------------------------------------------------------------------


def _fixed_input(trial: JudgedTrial) -> Check:
    if trial.target is None:
        return not_tried(trial.view, trial.view.name)
    return joined([*segment_checks(trial.target), *_replay_checks(trial.target, trial.policy)])


def _replay_checks(target: ShapeTrial, policy: Policy) -> list[Check]:
    """Whether a bare replay gains too little; rung 2 judges the whole request where none was timed."""
    fixed, _fresh = rung_gains(target)
    if isinstance(fixed, NotMeasured) or not too_small(fixed, policy.min_gain):
        return []
    gain = f"a bare replay gains {percent(1 - fixed.ratio)}, at most {percent(1 - fixed.low)}"
    return [fails(Reason.NO_GAIN, f"{gain}; the minimum is {percent(policy.min_gain)}")]


def _fresh_inputs(trial: JudgedTrial) -> Check:
    if trial.target is None:
        return not_tried(trial.view, trial.view.name)
    return joined(trial.checks(trial.target))


def _all_shapes(trial: JudgedTrial) -> Check:
    others = trial.view.others
    if not others:
        return holds(f"only shape {trial.view.name} was asked for")
    left_out = {shape.shape: why for shape in others if (why := trial.exclusion(shape))}
    if not left_out:
        return holds(f"all {len(others) + 1} shapes hold")
    if len(left_out) < len(others):
        return holds(f"{', '.join(left_out)} excluded, the other shapes hold")
    if not any(shape.records for shape in others):
        return undecided(Reason.NOT_TRIED, "no other shape was tried")
    if not any(trial.refused(shape) for shape in others):
        open_case = f"whether any shape but {trial.view.name} holds is open"
        return undecided(Reason.UNMEASURABLE, f"{open_case}: {next(iter(left_out.values()))}")
    return fails(Reason.NO_GAIN, f"no shape but {trial.view.name} holds")


# --- rungs with workers of their own --------------------------------------------------------------


def _own_worker(trial: JudgedTrial, phase: Phase, judged: Callable[[ShapeTrial], list[Check]]) -> Check:
    """The findings and the end of a rung's worker, and what ``judged`` says of its records."""
    rung = trial.view.rungs.get(phase)
    if rung is None:
        ends = trial.view.ends
        died = f": a worker {worker_end(ends[-1])}" if ends else ""
        return undecided(Reason.NOT_TRIED, f"it was not tried{died}")
    return joined([*finding_checks(rung, frozenset(Phase)), *_end_checks(rung), *judged(rung)])


def _end_checks(trial: ShapeTrial) -> list[Check]:
    """A worker that crashed or hung in its rung speaks against the graph; one that got lost says nothing."""
    end = trial.end
    if end is not None and end.outcome == "finished":
        return []
    if end is not None and end.outcome in ("crashed", "timed_out"):
        return [fails(Reason.CRASH if end.outcome == "crashed" else Reason.HANG, ending(trial))]
    return [undecided(Reason.NOT_TRIED, f"its worker was not seen to finish: {ending(trial)}")]


def _instances(trial: JudgedTrial) -> Check:
    def judged(rung: ShapeTrial) -> list[Check]:
        return [instances_check(trial.instances, rung.shape, trial.policy)]

    return _own_worker(trial, Phase.INSTANCES, judged)


def _concurrency(trial: JudgedTrial) -> Check:
    def judged(rung: ShapeTrial) -> list[Check]:
        return [concurrency_check(trial.concurrency, rung.shape, trial.policy)]

    return _own_worker(trial, Phase.CONCURRENCY, judged)


def _traffic(trial: JudgedTrial) -> Check:
    def judged(rung: ShapeTrial) -> list[Check]:
        return [*_served_checks(trial, rung), traffic_check(trial.traffic, trial.policy)]

    return _own_worker(trial, Phase.TRAFFIC, judged)


def _served_checks(trial: JudgedTrial, rung: ShapeTrial) -> list[Check]:
    """Whether the mix was served by graphs of shapes that hold: under another policy it may not be."""
    served = dict.fromkeys(name for run in rung.of(TrafficRun) for name in run.captured)
    holding = trial.holding
    wrong = [name for name in served if name not in holding]
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
