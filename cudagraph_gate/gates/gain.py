"""The rules for measured times: what is a gain, and what makes a tail too long. Every comparison uses these.

A gain is one only where its whole interval is beyond both the noise floor of its own figure (normal against
normal) and the policy's minimum. Two figures without an interval are never judged.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from cudagraph_gate.gates.check import Check, fails, holds, undecided
from cudagraph_gate.gates.latency import QuantilePair
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.wording import duration, percent
from cudagraph_gate.model import Reason
from cudagraph_gate.stats import NoiseFloor, QuantileRatio, faster


class GainAnswer(StrEnum):
    """What an interval says of a gain."""

    SLOWER = "slower"
    """The whole interval is slower, by more than the noise."""
    TOO_SMALL = "too_small"
    """The whole interval is below the minimum."""
    UNSURE = "unsure"
    """The minimum or the noise reaches into the interval."""
    ENOUGH = "enough"


def judge_gain(ratio: QuantileRatio, noise: NoiseFloor, min_gain: float) -> GainAnswer:
    """The one rule; ``ratio`` is graph over normal, so that the gain is 1 - ``ratio``."""
    if ratio.low > 1 + noise.upper:
        return GainAnswer.SLOWER
    if too_small(ratio, min_gain):
        return GainAnswer.TOO_SMALL
    if faster(ratio, noise) and 1 - ratio.high > min_gain:
        return GainAnswer.ENOUGH
    return GainAnswer.UNSURE


def too_small(ratio: QuantileRatio, min_gain: float) -> bool:
    """Whether even the optimistic end of the gain stays below the minimum."""
    return 1 - ratio.low < min_gain


def gain_text(name: str, pair: QuantilePair) -> str:
    """``P50 1.00 ms normal, 600 µs graph, gain 40.0 % (38.0 % to 42.0 %)``."""
    low, high = 1 - pair.ratio.high, 1 - pair.ratio.low
    return (
        f"{name} {duration(pair.normal_ns)} normal, {duration(pair.graph_ns)} graph, "
        f"gain {percent(1 - pair.ratio.ratio)} ({percent(low)} to {percent(high)})"
    )


def _nothing(_gain: float) -> str:
    return ""


def gain_check(
    name: str,
    pair: QuantilePair,
    policy: Policy,
    *,
    cause: Callable[[float], str] = _nothing,
    outlook: str = "",
) -> Check:
    """The rule put to one figure of both paths.

    ``cause`` is given a gain that was missed and may say what took it away; ``outlook`` is what would
    decide an open case.
    """
    seen = gain_text(name, pair)
    answer = judge_gain(pair.ratio, pair.noise, policy.min_gain)
    if answer is GainAnswer.SLOWER:
        return fails(Reason.REGRESS, f"the graph is slower: {seen}{cause(0.0)}")
    if answer is GainAnswer.TOO_SMALL:
        below = f"below the minimum {percent(policy.min_gain)}"
        return fails(Reason.NO_GAIN, f"{seen}, {below}{cause(policy.min_gain)}")
    if answer is GainAnswer.ENOUGH:
        return holds(seen)
    beyond = "the noise floor" if pair.noise.upper > policy.min_gain else "the minimum"
    needed = percent(max(policy.min_gain, pair.noise.upper))
    return undecided(Reason.UNMEASURABLE, f"{seen}: not clearly beyond {beyond} {needed}{outlook}")


def tail_check(name: str, pair: QuantilePair, policy: Policy) -> Check:
    """Whether a tail is longer by graphs than the policy allows."""
    limit = 1 + policy.max_tail_regression
    seen = (
        f"{name} {duration(pair.normal_ns)} normal, {duration(pair.graph_ns)} graph, "
        f"ratio {pair.ratio.ratio:.3f} ({pair.ratio.low:.3f} to {pair.ratio.high:.3f})"
    )
    if pair.ratio.low > max(limit, 1 + pair.noise.upper):
        return fails(Reason.REGRESS, f"{seen}, the limit is {limit:.3f}")
    if pair.ratio.ratio > limit:
        noise = f"noise floor {percent(pair.noise.upper)}"
        return undecided(Reason.UNMEASURABLE, f"{seen}, not clearly within the limit {limit:.3f} ({noise})")
    return holds(f"{name} within limits")
