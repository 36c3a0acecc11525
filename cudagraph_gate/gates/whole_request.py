"""The whole business request: what is left of the step's gain from end to end; pure.

A gain that vanishes there binds the verdict, with the number: the graph is right and fast, and nobody outside
would notice it. Requests that get slower, or other results, refuse the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cudagraph_gate.gates.check import Check, ending, fails, finding_checks, holds, undecided
from cudagraph_gate.gates.gain import GainAnswer, gain_text, judge_gain, tail_check
from cudagraph_gate.gates.latency import PathComparison, QuantilePair, compare_paths
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.trial_view import ShapeTrial, TrialView
from cudagraph_gate.gates.wording import one_line, percent
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.records import Block, Phase, PhaseStarted, StepShare, WholeRequests

PHASES: Final = frozenset({Phase.WHOLE_REQUEST})
"""Phases whose findings speak of whole requests."""
_NO_SHARE: Final = NotMeasured(reason="the share of the step was not measured")


@dataclass(frozen=True)
class WholeRequest:
    """Both paths from end to end, and what of a request the graph can touch."""

    paths: PathComparison
    step_share: float | NotMeasured
    """Time in the normal step over the time of the requests, from requests of their own."""
    step_calls: float
    """Calls of the step in a request."""
    refused_share: float
    """Share of the graph path's calls that the normal step served, since the graph refused their inputs."""
    refusal: str
    """Why it refused the first of them."""

    @property
    def gain(self) -> float:
        """Share of the median request that the graph saves; negative when it is slower."""
        return 1 - self.paths.p50.ratio.ratio


def view_whole_request(trial: ShapeTrial) -> WholeRequest | NotMeasured | None:
    """What was recorded of whole requests, or why there is too little; None where none were to be timed.

    That is so in older logs, without the workload's ``request``, and where the trial ended before.
    """
    timed = trial.of(WholeRequests)
    if not timed and not any(start.phase is Phase.WHOLE_REQUEST for start in trial.of(PhaseStarted)):
        return None
    if not timed:
        return NotMeasured(reason=f"no whole request was timed: {ending(trial)}")
    paths = compare_paths(_as_blocks(trial))
    if isinstance(paths, NotMeasured):
        return NotMeasured(reason=f"whole requests: {paths.reason}")
    by_graph = [block for block in timed if block.path == "graph"]
    calls = sum(block.step_calls for block in by_graph)
    return WholeRequest(
        paths=paths,
        step_share=_step_share(trial),
        step_calls=calls / sum(len(block.latencies_ns) for block in by_graph),
        refused_share=sum(block.refused_calls for block in by_graph) / max(1, calls),
        refusal=next((block.refusal for block in by_graph if block.refusal), ""),
    )


def _as_blocks(trial: ShapeTrial) -> ShapeTrial:
    """The trial with its whole requests in the place of the step's blocks: both are compared alike."""
    others = tuple(record for record in trial.records if not isinstance(record, Block))
    blocks = tuple(
        Block(
            shape=timed.shape,
            method=timed.method,
            path=timed.path,
            order=timed.order,
            half=timed.half,
            latencies_ns=timed.latencies_ns,
            cpu_ns=timed.cpu_ns,
            process_cpu_ns=timed.process_cpu_ns,
        )
        for timed in trial.of(WholeRequests)
    )
    return ShapeTrial(trial.shape, (*blocks, *others), trial.method)


def _step_share(trial: ShapeTrial) -> float | NotMeasured:
    found = trial.of(StepShare)
    return found[-1].step_ns / found[-1].request_ns if found and found[-1].request_ns else _NO_SHARE


# --- checks and conditions ------------------------------------------------------------------------


def whole_request_checks(trial: ShapeTrial | None, policy: Policy) -> list[Check]:
    """What refuses the graph, or leaves it undecided; none where no whole request was to be timed."""
    view = None if trial is None else view_whole_request(trial)
    if trial is None or view is None:
        return []
    found = finding_checks(trial, PHASES)
    if isinstance(view, NotMeasured):
        return found or [undecided(Reason.UNMEASURABLE, view.reason)]
    return [*found, _median_check(view, policy), *_refusing(_tail_checks(view, policy))]


def _median_check(view: WholeRequest, policy: Policy) -> Check:
    """Only slower ones refuse: no gain, or none to be told from the noise, is a condition."""
    if _answer(view, policy) is GainAnswer.SLOWER:
        return fails(Reason.REGRESS, f"whole requests are slower by the graph: {_seen(view)}")
    return holds("whole requests are not slower by the graph")


def _answer(view: WholeRequest, policy: Policy) -> GainAnswer:
    return judge_gain(view.paths.p50.ratio, view.paths.noise, policy.min_gain)


def _tail_checks(view: WholeRequest, policy: Policy) -> list[Check]:
    tails = {"P95": view.paths.p95, "P99": view.paths.p99}
    return [
        tail_check(f"whole request {name}", pair, policy)
        for name, pair in tails.items()
        if isinstance(pair, QuantilePair)
    ]


def _refusing(checks: list[Check]) -> list[Check]:
    return [check for check in checks if check.status is GateStatus.FAIL]


def whole_request_conditions(trial: TrialView, policy: Policy) -> tuple[str, ...]:
    """What a verdict is bound to because of whole requests, with the numbers; other shapes are named.

    No gain is left, or none is told from the noise; a tail is not told from its limit; the graph refuses the
    inputs of some calls.
    """
    own = () if trial.target is None else _conditions(trial.target, policy)
    others = tuple(
        f"shape {shape.shape}: {sentence}"
        for shape in trial.others
        for sentence in _conditions(shape, policy)
    )
    return tuple(one_line(sentence) for sentence in (*own, *others))


def _conditions(trial: ShapeTrial, policy: Policy) -> tuple[str, ...]:
    view = view_whole_request(trial)
    if view is None or isinstance(view, NotMeasured):
        return ()
    unclear = [check.sentence for check in _tail_checks(view, policy) if check.status is GateStatus.UNKNOWN]
    return tuple(filter(None, (_gain_condition(view, policy), *unclear, _refusal_condition(view))))


def _gain_condition(view: WholeRequest, policy: Policy) -> str:
    answer = _answer(view, policy)
    if answer is GainAnswer.TOO_SMALL:
        below = f"below the minimum {percent(policy.min_gain)}"
        return f"the gain vanishes in the whole request: {_seen(view)}, {below}"
    if answer is GainAnswer.UNSURE:
        needed = percent(max(policy.min_gain, view.paths.noise.upper))
        return f"the gain of the whole request is open: {_seen(view)}, not clearly beyond {needed}"
    return ""


def _seen(view: WholeRequest) -> str:
    share = view.step_share
    touched = "" if isinstance(share, NotMeasured) else f", the step is {percent(share)} of it"
    return gain_text("P50", view.paths.p50) + touched


def _refusal_condition(view: WholeRequest) -> str:
    if not view.refused_share:
        return ""
    share = percent(view.refused_share)
    return f"request gives the step inputs that the graph refuses in {share} of the calls ({view.refusal})"


# --- what the gate reports ------------------------------------------------------------------------


def measured_whole_request(trial: ShapeTrial | None) -> dict[str, Any]:
    """``whole_request`` with plain values for gate 6; empty where none were to be timed."""
    view = None if trial is None else view_whole_request(trial)
    if view is None:
        return {}
    if isinstance(view, NotMeasured):
        return {"whole_request": msgspec.to_builtins(view)}
    tails = {"p95": view.paths.p95, "p99": view.paths.p99}
    return {
        "whole_request": {
            "p50": view.paths.p50.as_dict(),
            **{
                name: pair.as_dict() if isinstance(pair, QuantilePair) else msgspec.to_builtins(pair)
                for name, pair in tails.items()
            },
            "gain": view.gain,
            "noise_floor_upper": view.paths.noise.upper,
            "step_share": msgspec.to_builtins(view.step_share),
            "step_calls_per_request": view.step_calls,
            "refused_share": view.refused_share,
        }
    }
