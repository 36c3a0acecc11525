"""When a graph has paid back what it costs once: in requests, and in minutes at the traffic's rate; pure.

Counted from the cold start on, requests one after the other. Loading, building and the cold first request
are the same for both paths and cancel out. The graph path then spends its *one-time cost* before its first
graph request, while the normal path already serves:

- warm-up: its calls run on the example inputs and serve no request, so that the whole of it counts. An
  application that warms up with requests that it serves anyway pays less;
- capture, instantiate, upload, each as measured;
- the first replay, as far as it takes longer than a steady one.

A path of the workload's own has one figure for all of these: building it and calling it until it has its
graphs. What single steady replays took far beyond the others is added: something was still being made.
Break-even is the one-time cost over what a request saves (P50 against P50), rounded up: from that
request on, the graph path has served as many requests in less time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from cudagraph_gate.gates.check import ending
from cudagraph_gate.gates.latency import compare_paths, saved_per_request
from cudagraph_gate.gates.trial_view import ShapeTrial, TrialView
from cudagraph_gate.gates.wording import percent
from cudagraph_gate.model import Measured, NotMeasured
from cudagraph_gate.records import Cost, Phase, TrafficRun
from cudagraph_gate.stats import faster

NS_PER_S: Final = 1_000_000_000
S_PER_MINUTE: Final = 60


@dataclass(frozen=True)
class BreakEven:
    """When the one-time cost is paid back."""

    once_ns: int
    """The one-time cost."""
    calls: int
    """Requests until then."""
    worst_calls: Measured
    """At the pessimistic end of the gain; not measured where that end may be no gain at all."""


def break_even(trial: ShapeTrial) -> BreakEven | NotMeasured:
    """When a graph of ``trial`` has paid for itself, or why that is never or not known."""
    saved = saved_per_request(trial)
    if isinstance(saved, NotMeasured):
        return saved
    if saved <= 0:
        return NotMeasured(reason="never breaks even: a request saves nothing")
    once = one_time_cost(trial)
    if isinstance(once, NotMeasured):
        return once
    surely = _surely_saved(trial)
    worst = surely if isinstance(surely, NotMeasured) else math.ceil(once / surely)
    return BreakEven(once, -(-once // saved), worst)


def one_time_cost(trial: ShapeTrial) -> Measured:
    """What the graph path costs before its first steady request, in ns, as the module defines it.

    A log without a warm-up leaves that part out.
    """
    stalled = sum(cost.stalled_ns for cost in trial.of(Cost))
    if trial.method == "own":
        made = cost_of(trial, Phase.CAPTURE)
        return made if isinstance(made, NotMeasured) else made + stalled
    parts = (Phase.CAPTURE, Phase.INSTANTIATE, Phase.UPLOAD, Phase.FIRST_REPLAY, Phase.STEADY_REPLAY)
    costs: list[int] = []
    for phase in parts:
        cost = cost_of(trial, phase)
        if isinstance(cost, NotMeasured):
            return cost
        costs.append(cost)
    capture, instantiate, upload, first, steady = costs
    warm_up = cost_of(trial, Phase.WARM_UP)
    warming = 0 if isinstance(warm_up, NotMeasured) else warm_up
    return warming + capture + instantiate + upload + max(0, first - steady) + stalled


def cost_of(trial: ShapeTrial, phase: Phase) -> Measured:
    """Host time of one phase, in ns, or why it has none."""
    cost = trial.costs.get(phase)
    if cost is not None:
        return cost
    reason = "the trial went past it" if trial.completed else ending(trial)
    return NotMeasured(reason=f"no record of it, {reason}")


def _surely_saved(trial: ShapeTrial) -> float | NotMeasured:
    """ns that a request saves at the pessimistic end of the gain; a gain inside the noise is none."""
    paths = compare_paths(trial)
    if isinstance(paths, NotMeasured):
        return paths
    ratio = paths.p50.ratio
    if faster(ratio, paths.noise):
        # Never more than the medians themselves say: the ratio is rounded elsewhere.
        return min(paths.p50.normal_ns * (1 - ratio.high), float(paths.saved_ns))
    interval = f"{percent(1 - ratio.high)} to {percent(1 - ratio.low)}"
    noise = f"noise floor {percent(paths.noise.upper)}"
    return NotMeasured(reason=f"whether a request saves anything is unsure ({interval}, {noise})")


# --- traffic --------------------------------------------------------------------------------------


def request_rate(trial: TrialView, shape: str) -> float | NotMeasured:
    """Requests of ``shape`` a second at the recorded arrival times."""
    rung = trial.rungs.get(Phase.TRAFFIC)
    declared = [run for run in rung.of(TrafficRun) if run.declared] if rung is not None else []
    if not declared:
        return NotMeasured(reason="no arrival times were given, so the rate of requests is not known")
    run = declared[0]
    own = sum(run.shapes[index] == shape for index in run.requests)
    if not own:
        return NotMeasured(reason=f"no request of the mix has shape {shape}")
    gaps, span_ns = len(run.arrivals_ns) - 1, run.arrivals_ns[-1] - run.arrivals_ns[0]
    if span_ns <= 0:
        return NotMeasured(reason="all requests of the mix arrive at once: they have no rate")
    return own / len(run.requests) * gaps * NS_PER_S / span_ns


def minutes(calls: Measured, rate: float | NotMeasured) -> float | NotMeasured:
    """How long so many requests take to arrive at ``rate`` a second."""
    if isinstance(calls, NotMeasured):
        return calls
    return rate if isinstance(rate, NotMeasured) else calls / rate / S_PER_MINUTE
