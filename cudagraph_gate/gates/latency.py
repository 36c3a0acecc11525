"""The timed blocks of one shape as numbers: both paths' quantiles, their ratios, CPU time, the copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from cudagraph_gate.gates.check import ending
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.records import Block, PathName
from cudagraph_gate.stats import (
    MIN_BLOCKS,
    NoiseFloor,
    QuantileRatio,
    compare_blocks,
    enough_requests,
    noise_floor,
    quantile_ns,
)

QUANTILES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
BOOTSTRAP_SEED: Final = 0
"""Fixed, so that the same log always gives the same verdict."""


@dataclass(frozen=True)
class QuantilePair:
    """One quantile of both paths, in ns, and their ratio."""

    normal_ns: int
    graph_ns: int
    ratio: QuantileRatio
    noise: NoiseFloor
    """Of this quantile: normal against normal."""

    def as_dict(self) -> dict[str, Any]:
        """For a gate's measured values."""
        interval = {"ratio": self.ratio.ratio, "low": self.ratio.low, "high": self.ratio.high}
        return {"normal_ns": self.normal_ns, "graph_ns": self.graph_ns, **interval}


@dataclass(frozen=True)
class PathComparison:
    """Normal against graph, from the timed blocks of one shape."""

    p50: QuantilePair
    p95: QuantilePair | NotMeasured
    p99: QuantilePair | NotMeasured
    normal_cpu_ns: float
    """CPU time of the submitting thread per request."""
    graph_cpu_ns: float
    copy_in_ns: int | NotMeasured
    """Median of the copy of the inputs alone."""

    @property
    def noise(self) -> NoiseFloor:
        """The noise floor of the median."""
        return self.p50.noise

    @property
    def saved_ns(self) -> int:
        """What the median request saves; negative when the graph is slower."""
        return self.p50.normal_ns - self.p50.graph_ns


def saved_per_request(trial: ShapeTrial) -> int | NotMeasured:
    """What the median request saves on the graph path, in ns, without an interval."""
    absent = _too_few(trial)
    if absent is not None:
        return absent
    return quantile_ns(_latencies(trial.blocks("normal")), 0.5) - quantile_ns(
        _latencies(trial.blocks("graph")), 0.5
    )


def compare_paths(trial: ShapeTrial) -> PathComparison | NotMeasured:
    """Compare the timed blocks of both paths, or say which ones are missing."""
    absent = _too_few(trial)
    if absent is not None:
        return absent
    normal, graph = trial.blocks("normal"), trial.blocks("graph")
    halves = [[block for block in normal if block.half == half] for half in ("a", "b")]
    if not all(halves):
        return NotMeasured(reason=f"shape {trial.shape} has no A/A blocks for the noise floor")
    if quantile_ns(_latencies(normal), 0.5) <= 0 or not all(
        quantile_ns(_latencies(half), 0.5) for half in halves
    ):
        return NotMeasured(reason="the normal path's latency is zero: the clock is too coarse")
    copies = trial.blocks("copy_in")
    return PathComparison(
        p50=_pair(normal, graph, QUANTILES["p50"]),
        p95=_tail(normal, graph, QUANTILES["p95"]),
        p99=_tail(normal, graph, QUANTILES["p99"]),
        normal_cpu_ns=_cpu_per_request(normal),
        graph_cpu_ns=_cpu_per_request(graph),
        copy_in_ns=quantile_ns(_latencies(copies), 0.5)
        if copies
        else NotMeasured(reason="the copy was not timed"),
    )


def _too_few(trial: ShapeTrial) -> NotMeasured | None:
    paths: tuple[PathName, ...] = ("normal", "graph")
    for path in paths:
        count = len(trial.blocks(path))
        if count < MIN_BLOCKS:
            timed = f"{count} timed blocks of the {path} path, {MIN_BLOCKS} are needed"
            return NotMeasured(reason=timed if trial.completed else f"{timed}; {ending(trial)}")
    return None


def _latencies(blocks: Sequence[Block]) -> list[tuple[int, ...]]:
    return [block.latencies_ns for block in blocks]


def _pair(normal: Sequence[Block], graph: Sequence[Block], quantile: float) -> QuantilePair:
    one, other = ([block for block in normal if block.half == half] for half in ("a", "b"))
    return QuantilePair(
        noise=noise_floor(_latencies(one), _latencies(other), quantile, BOOTSTRAP_SEED),
        normal_ns=quantile_ns(_latencies(normal), quantile),
        graph_ns=quantile_ns(_latencies(graph), quantile),
        ratio=compare_blocks(_latencies(normal), _latencies(graph), quantile, BOOTSTRAP_SEED),
    )


def _tail(normal: Sequence[Block], graph: Sequence[Block], quantile: float) -> QuantilePair | NotMeasured:
    fewest = min(_requests(normal), _requests(graph))
    return enough_requests(fewest, quantile) or _pair(normal, graph, quantile)


def _requests(blocks: Sequence[Block]) -> int:
    return sum(len(block.latencies_ns) for block in blocks)


def _cpu_per_request(blocks: Sequence[Block]) -> float:
    return sum(block.cpu_ns for block in blocks) / _requests(blocks)
