"""Gate 7: graphs were turned off in the middle of traffic, and the normal path is what it was before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from cudagraph_gate.gates.check import Check, fails, holds, undecided
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.scenarios import Attacked, left_out, scenario_check
from cudagraph_gate.gates.wording import duration, percent, size
from cudagraph_gate.model import DRILL, SCENARIO_BY_NAME, GateStatus, Measured, NotMeasured, Reason
from cudagraph_gate.records import DrillRun
from cudagraph_gate.stats import (
    NoiseFloor,
    QuantileRatio,
    compare_blocks,
    enough_requests,
    noise_floor,
    quantile_ns,
)

SLACK_BYTES: Final = 32 * 1024**2
"""What a process may keep of turned-off graphs: the driver hands out 2 MiB at a time, and keeps some."""
NOISY: Final = 0.20
"""Where the normal path before differs so much from itself, that after it says nothing."""
QUANTILES: Final = {"p50": 0.50, "p95": 0.95}
SEED: Final = 7


@dataclass(frozen=True)
class Before:
    """One quantile of the normal path after the drill over the same before."""

    before_ns: int
    after_ns: int
    ratio: QuantileRatio
    noise: NoiseFloor

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a gate's measured ones."""
        return {
            "before_ns": self.before_ns,
            "after_ns": self.after_ns,
            "ratio": self.ratio.ratio,
            "low": self.ratio.low,
            "high": self.ratio.high,
            "noise_floor": self.noise.upper,
        }


@dataclass(frozen=True)
class Drilled:
    """The drill's blocks by stretch."""

    runs: Sequence[DrillRun]

    def of(self, stretch: str) -> list[DrillRun]:
        """The blocks of one stretch, in their order."""
        return [run for run in self.runs if run.stretch == stretch]

    @property
    def sent(self) -> int:
        """Requests of all stretches."""
        return sum(run.sent for run in self.runs)

    @property
    def lost(self) -> int:
        """Requests that were never answered."""
        return self.sent - sum(run.answered for run in self.runs)

    @property
    def in_flight(self) -> int:
        """Requests by graphs that were going on while graphs were turned off."""
        return sum(run.in_flight for run in self.of("switch"))

    @cached_property
    def latency(self) -> dict[str, Before | NotMeasured]:
        """By quantile: after over before."""
        before, after = ([run.latencies_ns for run in self.of(each)] for each in ("before", "after"))
        return {name: _quantile(before, after, quantile) for name, quantile in QUANTILES.items()}

    def grown(self, figure: str) -> Measured:
        """Bytes of one memory figure after the drill beyond those before it."""
        found = []
        for stretch in ("before", "after"):
            blocks = self.of(stretch)
            value: Measured = (
                getattr(blocks[-1], figure) if blocks else NotMeasured(reason=f"no block {stretch} the drill")
            )
            if isinstance(value, NotMeasured):
                return value
            found.append(value)
        return found[1] - found[0]


def _quantile(
    before: list[tuple[int, ...]], after: list[tuple[int, ...]], quantile: float
) -> Before | NotMeasured:
    counts = [sum(map(len, blocks)) for blocks in (before, after)]
    if len(before) < 2 or not after or min(counts) == 0:
        return NotMeasured(reason="too few blocks were timed")
    few = enough_requests(min(counts), quantile)
    if few is not None:
        return few
    return Before(
        before_ns=quantile_ns(before, quantile),
        after_ns=quantile_ns(after, quantile),
        ratio=compare_blocks(before, after, quantile, SEED),
        noise=noise_floor(before[::2], before[1::2], quantile, SEED),
    )


def drill_checks(attacked: Attacked | None, policy: Policy) -> list[Check]:
    """Whether the drill ended as it must, nothing was lost, and latency and memory are as before."""
    if attacked is None:
        return [undecided(Reason.NOT_TRIED, "the drill was not tried")]
    whole = scenario_check(attacked, SCENARIO_BY_NAME[DRILL])
    if whole.status is not GateStatus.PASS or left_out(attacked, DRILL):
        return [whole]
    drilled = drilled_runs(attacked)
    return [
        *_request_checks(drilled),
        *(_latency_check(name.upper(), found, policy) for name, found in drilled.latency.items()),
        _memory_check(drilled),
    ]


def drilled_runs(attacked: Attacked) -> Drilled:
    """What the drill recorded."""
    return Drilled([run for part in attacked.of(DRILL) for run in part.runs])


def _request_checks(drilled: Drilled) -> list[Check]:
    checks = []
    if not drilled.of("graph") or not drilled.of("switch"):
        checks.append(undecided(Reason.NOT_TRIED, "graphs were not turned off"))
    if drilled.lost:
        lost = f"{drilled.lost} of {drilled.sent} requests of the drill were never answered"
        checks.append(fails(Reason.WRONG_OUTPUT, lost))
    for run in drilled.runs:
        if run.wrong:
            seen = f"{run.wrong} of {run.answered} requests are wrong ({run.stretch}): {run.detail}"
            checks.append(fails(Reason.WRONG_OUTPUT, seen))
    if not sum(run.graph_served for run in drilled.of("graph")):
        checks.append(undecided(Reason.NO_GRAPH_USED, "no request of the drill was served by a graph"))
    if sum(run.graph_served for run in drilled.of("after")):
        checks.append(fails(Reason.LIFETIME, "graphs served requests after they had been turned off"))
    if not drilled.in_flight:
        none = "no request was in flight while graphs were turned off"
        checks.append(undecided(Reason.UNMEASURABLE, none))
    return checks or [holds(f"{drilled.sent} requests answered, {drilled.in_flight} in flight at the switch")]


def _latency_check(name: str, found: Before | NotMeasured, policy: Policy) -> Check:
    if isinstance(found, NotMeasured):
        return undecided(Reason.UNMEASURABLE, f"{name} after the drill: {found.reason}")
    limit, noise = 1 + policy.max_tail_regression, found.noise.upper
    seen = (
        f"{name} of the normal path {duration(found.before_ns)} before and {duration(found.after_ns)} after "
        f"the drill, ratio {found.ratio.ratio:.3f} ({found.ratio.low:.3f} to {found.ratio.high:.3f})"
    )
    if found.ratio.low > max(limit, 1 + noise):
        return fails(Reason.REGRESS, f"{seen}; the limit is {limit:.3f}")
    if noise > NOISY:
        return undecided(Reason.UNMEASURABLE, f"{seen}: before the drill it differs by {percent(noise)}")
    as_noise = found.ratio.low <= 1 and found.ratio.ratio <= 1 + noise
    if found.ratio.ratio > limit and not as_noise:
        return undecided(Reason.UNMEASURABLE, f"{seen}, not clearly within the limit {limit:.3f}")
    return holds(f"{name} as before")


def _memory_check(drilled: Drilled) -> Check:
    occupied, outside = drilled.grown("occupied_bytes"), _outside(drilled)
    if isinstance(occupied, int) and occupied > SLACK_BYTES:
        return fails(
            Reason.MEMORY_GROWTH, f"{size(occupied)} of the allocator are not given back by the drill"
        )
    if isinstance(outside, NotMeasured):
        return undecided(Reason.UNMEASURABLE, f"memory after the drill: {outside.reason}")
    if outside <= SLACK_BYTES:
        return holds("memory as before")
    grown = f"{size(outside)} of device memory are not given back by the drill"
    if isinstance(occupied, NotMeasured):
        return fails(Reason.MEMORY_GROWTH, grown)
    return undecided(Reason.UNMEASURABLE, f"{grown}, and are not in the framework's allocator")


def _outside(drilled: Drilled) -> Measured:
    """Growth of the device's memory that no framework's allocator accounts for."""
    device, held = drilled.grown("device_used_bytes"), drilled.grown("allocator_bytes")
    if isinstance(device, NotMeasured) or isinstance(held, NotMeasured):
        return device
    return device - held


def measured_drill(attacked: Attacked | None) -> dict[str, Any]:
    """Plain values for the gate's ``measured``; empty where the drill was not run."""
    drilled = None if attacked is None else drilled_runs(attacked)
    if drilled is None or not drilled.runs:
        return {}
    return {
        "requests": drilled.sent,
        "lost": drilled.lost,
        "wrong": sum(run.wrong for run in drilled.runs),
        "threads": max(run.threads for run in drilled.runs),
        "in_flight": drilled.in_flight,
        **{
            name: found if isinstance(found, NotMeasured) else found.as_dict()
            for name, found in drilled.latency.items()
        },
        "device_grown_bytes": drilled.grown("device_used_bytes"),
        "allocator_grown_bytes": drilled.grown("allocator_bytes"),
        "occupied_grown_bytes": drilled.grown("occupied_bytes"),
    }
