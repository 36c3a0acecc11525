"""Gate 6, comparison: the graph path is right, faster beyond noise, and costs nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from cudagraph_gate.evidence import DIAGNOSIS_FILE, PILOT_LOG
from cudagraph_gate.gates.check import Check, Gate, ending, fails, finding_checks, holds, undecided
from cudagraph_gate.gates.clocks import at_fair_clocks, view_clocks
from cudagraph_gate.gates.gain import GainAnswer, gain_check, judge_gain, tail_check
from cudagraph_gate.gates.latency import PathComparison, QuantilePair, compare_paths
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.segment import MIN_REQUESTS, not_tried
from cudagraph_gate.gates.trial_view import Evidence, ShapeTrial, TrialView, before
from cudagraph_gate.gates.whole_request import whole_request_checks
from cudagraph_gate.gates.wording import duration, size
from cudagraph_gate.model import GateResult, GateStatus, NotMeasured, Reason
from cudagraph_gate.records import Comparison, Phase
from cudagraph_gate.stats import MOST_FURTHER_BLOCKS, further_blocks

GATE = Gate(6, "comparison", (PILOT_LOG, DIAGNOSIS_FILE))
PHASES: Final = frozenset({Phase.TRAJECTORY, Phase.NORMAL_AGAIN, Phase.TIMING})
"""Phases whose findings speak of the comparison."""
PLAUSIBLE_FACTOR: Final = 1.5
"""Saving more than the GPU was idle means that work is missing; the half allows for two runs' clocks."""


def comparison_gate(
    evidence: Evidence, trial: TrialView, policy: Policy, more: Sequence[Check] = ()
) -> GateResult:
    """Judge both paths of the target shape against each other; ``more`` is what else speaks of them."""
    threshold = _threshold(policy)
    target = trial.target
    if target is None or not target.records:
        return GATE.result([not_tried(trial, trial.name)], {}, threshold)
    paths = compare_paths(target)
    measured = _measured(target, paths, policy)
    checks = [*comparison_checks(target, policy, paths), *more]
    if isinstance(paths, PathComparison):
        checks += _plausibility_checks(evidence, paths)
    return GATE.result(checks, measured, threshold)


def comparison_checks(trial: ShapeTrial, policy: Policy, paths: PathComparison | NotMeasured) -> list[Check]:
    """What the trial of one shape says of its outputs, latency, CPU time and memory."""
    checks = finding_checks(trial, PHASES)
    checks += correctness_checks(trial)
    checks += whole_request_checks(trial, policy)
    if isinstance(paths, NotMeasured):
        checks.append(undecided(Reason.UNMEASURABLE, paths.reason))
    else:
        gain = at_fair_clocks(trial, _gain_check(paths, policy))
        checks += [
            gain,
            *_tail_checks(paths, policy),
            *_stall_checks(paths, policy),
            _cpu_check(paths, policy),
        ]
    checks.append(_memory_check(trial, policy))
    if trial.completed:
        return checks
    # One answer for all that is missing: it has one reason.
    found = [check for check in checks if check.status is not GateStatus.UNKNOWN]
    return [*found, undecided(Reason.NOT_TRIED, f"not everything was compared: {ending(trial)}")]


# --- outputs and state ----------------------------------------------------------------------------


def correctness_checks(trial: ShapeTrial) -> list[Check]:
    """Every comparison that failed, and whether enough were made."""
    checks = [_comparison_check(comparison) for comparison in trial.comparisons if not comparison.equal]
    compared = _requests(trial, "outputs")
    if compared < MIN_REQUESTS:
        few = f"outputs of {compared} requests compared, {MIN_REQUESTS} are needed"
        checks.append(undecided(Reason.NOT_TRIED, few))
    elif not checks:
        checks.append(holds(f"outputs of {compared} requests agree"))
    if not _requests(trial, "normal_again"):
        checks.append(undecided(Reason.NOT_TRIED, "the normal path was not compared again after the graph"))
    return checks


def _requests(trial: ShapeTrial, subject: str) -> int:
    return len({comparison.request for comparison in trial.comparisons if comparison.subject == subject})


def _comparison_check(comparison: Comparison) -> Check:
    what = {
        "outputs": "outputs differ from the normal path",
        "state": "state differs from the normal path",
        "normal_again": "the normal path differs after the graph",
        "normal_repeat": "the normal path does not repeat itself",
    }[comparison.subject]
    detail = f", {comparison.detail}" if comparison.detail else ""
    error = _error_text(comparison)
    sentence = f"request {comparison.request}: {what}{detail} ({error})"
    if comparison.subject == "normal_repeat":
        return undecided(Reason.UNMEASURABLE, sentence)
    wrong = Reason.STATE_MUTATION if comparison.subject == "state" else Reason.WRONG_OUTPUT
    return fails(wrong, sentence)


def _error_text(comparison: Comparison) -> str:
    if isinstance(comparison.max_abs_error, NotMeasured):
        return comparison.max_abs_error.reason
    return f"error {comparison.max_abs_error:.3g}, tolerance {comparison.tolerance:.3g}"


# --- latency and CPU time -------------------------------------------------------------------------


def _gain_check(paths: PathComparison, policy: Policy) -> Check:
    return gain_check(
        "P50",
        paths.p50,
        policy,
        cause=lambda gain: _copy_note(paths, gain),
        outlook=f", {_further_text(paths, policy)}",
    )


def _further(paths: PathComparison, policy: Policy) -> int:
    return further_blocks(paths.p50.ratio, paths.noise, policy.min_gain, paths.blocks)


def _further_text(paths: PathComparison, policy: Policy) -> str:
    further = _further(paths, policy)
    if further >= MOST_FURTHER_BLOCKS:
        return f"and {further} further blocks of each path would not tell"
    return f"about {further} further blocks of each path would tell"


def _copy_note(paths: PathComparison, gain: float) -> str:
    """Names the copy of the inputs where the graph would gain enough without it."""
    copy = paths.copy_in_ns
    if isinstance(copy, NotMeasured) or paths.p50.graph_ns - copy >= paths.p50.normal_ns * (1 - gain):
        return ""
    return f"; copying the inputs into static buffers takes {duration(copy)} of it"


def _tail_checks(paths: PathComparison, policy: Policy) -> Iterable[Check]:
    if isinstance(paths.p95, NotMeasured):
        yield undecided(Reason.UNMEASURABLE, paths.p95.reason)
    else:
        yield tail_check("P95", paths.p95, policy)
    if isinstance(paths.p99, QuantilePair):
        yield tail_check("P99", paths.p99, policy)


def _stall_checks(paths: PathComparison, policy: Policy) -> Iterable[Check]:
    """An alarm where requests take longer on average though most do not: stalls too rare for a quantile."""
    limit = 1 + policy.max_tail_regression + paths.noise.upper
    if paths.time_ratio <= limit:
        return
    seen = (
        f"all timed requests together take {paths.time_ratio:.2f} times as long by the graph, "
        f"the limit is {limit:.2f}: some stall"
    )
    if paths.time_ratio_but_one > limit:
        yield fails(Reason.REGRESS, seen)
    else:
        yield undecided(Reason.UNMEASURABLE, f"{seen}, in one block of {paths.blocks}")


def _cpu_check(paths: PathComparison, policy: Policy) -> Check:
    allowed = paths.normal_cpu_ns * (1 + policy.max_cpu_regression)
    seen = (
        f"CPU time per request {duration(paths.normal_cpu_ns)} normal, {duration(paths.graph_cpu_ns)} graph"
    )
    if paths.graph_cpu_ns <= allowed:
        return holds("CPU time within limits")
    if paths.normal_cpu_ns <= 0:
        return undecided(Reason.UNMEASURABLE, f"{seen}: the normal path's is too short for the clock")
    return fails(Reason.REGRESS, f"{seen}, the limit is {duration(allowed)}")


def _plausibility_checks(evidence: Evidence, paths: PathComparison) -> Iterable[Check]:
    """An alarm where the graph saves more than the GPU was idle: then it left work out."""
    requests = evidence.diagnosis.requests if evidence.diagnosis else None
    if requests is None or isinstance(requests, NotMeasured):
        return
    idle_ns = max(0, paths.p50.normal_ns - requests.busy_ns)
    allowed_ns = max(PLAUSIBLE_FACTOR * idle_ns, paths.noise.upper * paths.p50.normal_ns)
    if paths.saved_ns > allowed_ns:
        yield fails(
            Reason.ESCAPED_WORK,
            f"faster than the GPU work takes: a graph request takes {duration(paths.p50.graph_ns)}, "
            f"the work of a normal one keeps the GPU busy for {duration(requests.busy_ns)}",
        )


# --- memory ---------------------------------------------------------------------------------------


def memory_growth(trial: ShapeTrial) -> int | NotMeasured:
    """Device-wide bytes that are gone from before the capture to the last steady replay."""
    earlier = [point for point in trial.memory if before(point.phase, Phase.CAPTURE)]
    steady = [point for point in trial.memory if point.phase is Phase.STEADY_REPLAY]
    if not earlier or not steady:
        when = "before the capture" if not earlier else "after steady replays"
        return NotMeasured(reason=f"free memory {when} is not recorded")
    return earlier[-1].device_free_bytes - steady[-1].device_free_bytes


def _memory_check(trial: ShapeTrial, policy: Policy) -> Check:
    growth = memory_growth(trial)
    if isinstance(growth, NotMeasured):
        return undecided(Reason.UNMEASURABLE, growth.reason)
    if growth > policy.max_memory_bytes:
        limit = size(policy.max_memory_bytes)
        return fails(Reason.MEMORY, f"the graph takes {size(growth)} of device memory, the limit is {limit}")
    return holds("memory within limits")


# --- what the gate reports ------------------------------------------------------------------------


def _threshold(policy: Policy) -> dict[str, Any]:
    return {
        "min_requests": MIN_REQUESTS,
        "min_gain": policy.min_gain,
        "max_tail_regression": policy.max_tail_regression,
        "max_cpu_regression": policy.max_cpu_regression,
        "max_memory_bytes": policy.max_memory_bytes,
    }


def _measured(trial: ShapeTrial, paths: PathComparison | NotMeasured, policy: Policy) -> dict[str, Any]:
    measured: dict[str, Any] = {
        "compared_requests": _requests(trial, "outputs"),
        "failed_comparisons": sum(not comparison.equal for comparison in trial.comparisons),
        "memory_growth_bytes": memory_growth(trial),
    }
    if isinstance(paths, NotMeasured):
        return measured | {"latency": paths}
    tails = {"p95": paths.p95, "p99": paths.p99}
    measured |= {"p50": paths.p50.as_dict()}
    measured |= {
        name: pair.as_dict() if isinstance(pair, QuantilePair) else pair for name, pair in tails.items()
    }
    if judge_gain(paths.p50.ratio, paths.noise, policy.min_gain) is GainAnswer.UNSURE:
        measured["further_blocks"] = _further(paths, policy)
    return measured | {
        "gain": 1 - paths.p50.ratio.ratio,
        "noise_floor": paths.noise.value,
        "noise_floor_upper": paths.noise.upper,
        "normal_per_s": paths.normal_per_s,
        "graph_per_s": paths.graph_per_s,
        "normal_cpu_ns": round(paths.normal_cpu_ns),
        "graph_cpu_ns": round(paths.graph_cpu_ns),
        "normal_process_cpu_ns": paths.normal_process_cpu_ns,
        "graph_process_cpu_ns": paths.graph_process_cpu_ns,
        "replay_ns": paths.replay_ns,
        "copy_in_ns": paths.copy_in_ns,
        "clocks": msgspec.to_builtins(view_clocks(trial).as_dict()),
    }
