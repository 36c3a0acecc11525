"""The timed blocks of one shape as numbers: both paths' quantiles and ratios, throughput, CPU time, the copy.

A path's blocks and the other's at the same position were measured in one round, beside each other; so are
the halves of the normal path, whose blocks come from neighbouring rounds. Both are therefore compared paired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from cudagraph_gate.gates.check import ending
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.model import Measured, NotMeasured
from cudagraph_gate.records import Block, PathName
from cudagraph_gate.stats import (
    MIN_BLOCKS,
    Blocks,
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
NS_PER_S: Final = 1_000_000_000
_PAIRS_KEPT: Final = 256
"""Comparisons that are remembered: a verdict asks for those of each shape several times."""

_Latencies = tuple[tuple[int, ...], ...]
"""One inner tuple a block, in the order of their measurement."""


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
    normal_process_cpu_ns: Measured
    """CPU time of all threads of the process per request."""
    graph_process_cpu_ns: Measured
    normal_per_s: float
    """Throughput: requests a second, one after the other."""
    graph_per_s: float
    time_ratio_but_one: float
    """As :attr:`time_ratio`, without the longest block of each path."""
    replay_ns: Measured
    """Median of a replay without the copy of its inputs."""
    copy_in_ns: Measured
    """Median of the copy of the inputs alone."""
    blocks: int
    """Timed blocks of the path that has fewer."""

    @property
    def noise(self) -> NoiseFloor:
        """The noise floor of the median."""
        return self.p50.noise

    @property
    def time_ratio(self) -> float:
        """Time per request of all blocks, graph over normal."""
        return self.normal_per_s / self.graph_per_s

    @property
    def saved_ns(self) -> int:
        """What the median request saves; negative when the graph is slower."""
        return self.p50.normal_ns - self.p50.graph_ns


def saved_per_request(trial: ShapeTrial) -> int | NotMeasured:
    """What the median request saves on the graph path, in ns, without an interval."""
    absent = _too_few(trial, "normal", "graph")
    if absent is not None:
        return absent
    return quantile_ns(_latencies(trial.blocks("normal")), 0.5) - quantile_ns(
        _latencies(trial.blocks("graph")), 0.5
    )


def rung_gains(trial: ShapeTrial) -> tuple[QuantileRatio | NotMeasured, QuantileRatio | NotMeasured]:
    """P50 of a bare replay, and of a whole graph request, each over the normal path's.

    The first, on inputs that stay the same, is for rung 1, the second, on fresh ones, for rung 2. An own
    graph path has no bare replay.
    """
    return _rung_gain(trial, "replay"), _rung_gain(trial, "graph")


def _rung_gain(trial: ShapeTrial, path: PathName) -> QuantileRatio | NotMeasured:
    absent = _too_few(trial, "normal", path)
    if absent is not None:
        return absent
    normal = _latencies(trial.blocks("normal"))
    if quantile_ns(normal, 0.5) <= 0:
        return _TOO_COARSE
    return _ratio(normal, _latencies(trial.blocks(path)), 0.5)


def compare_paths(trial: ShapeTrial) -> PathComparison | NotMeasured:
    """Compare the timed blocks of both paths, or say which ones are missing."""
    absent = _too_few(trial, "normal", "graph")
    if absent is not None:
        return absent
    normal, graph = trial.blocks("normal"), trial.blocks("graph")
    halves = [_latencies([block for block in normal if block.half == half]) for half in ("a", "b")]
    if not all(halves):
        return NotMeasured(reason=f"shape {trial.shape} has no A/A blocks for the noise floor")
    if not all(quantile_ns(each, 0.5) > 0 for each in (_latencies(normal), *halves)):
        return _TOO_COARSE
    return PathComparison(
        p50=_pair(normal, graph, QUANTILES["p50"]),
        p95=_tail(normal, graph, QUANTILES["p95"]),
        p99=_tail(normal, graph, QUANTILES["p99"]),
        normal_cpu_ns=_cpu_per_request(normal),
        graph_cpu_ns=_cpu_per_request(graph),
        normal_process_cpu_ns=_process_cpu_per_request(normal),
        graph_process_cpu_ns=_process_cpu_per_request(graph),
        normal_per_s=_throughput(normal),
        graph_per_s=_throughput(graph),
        time_ratio_but_one=_throughput(_but_longest(normal)) / _throughput(_but_longest(graph)),
        replay_ns=_median(trial.blocks("replay"), "the bare replay was not timed"),
        copy_in_ns=_median(trial.blocks("copy_in"), "the copy was not timed"),
        blocks=min(len(normal), len(graph)),
    )


_TOO_COARSE: Final = NotMeasured(reason="the normal path's latency is zero: the clock is too coarse")


def _too_few(trial: ShapeTrial, *paths: PathName) -> NotMeasured | None:
    for path in paths:
        count = len(trial.blocks(path))
        if count < MIN_BLOCKS:
            timed = f"{count} timed blocks of the {path} path, {MIN_BLOCKS} are needed"
            return NotMeasured(reason=timed if trial.completed else f"{timed}; {ending(trial)}")
    return None


def _latencies(blocks: Sequence[Block]) -> _Latencies:
    return tuple(block.latencies_ns for block in sorted(blocks, key=lambda block: block.order))


def _pair(normal: Sequence[Block], graph: Sequence[Block], quantile: float) -> QuantilePair:
    one, other = (_latencies([block for block in normal if block.half == half]) for half in ("a", "b"))
    return QuantilePair(
        noise=_noise(one, other, quantile),
        normal_ns=quantile_ns(_latencies(normal), quantile),
        graph_ns=quantile_ns(_latencies(graph), quantile),
        ratio=_ratio(_latencies(normal), _latencies(graph), quantile),
    )


@lru_cache(_PAIRS_KEPT)
def _ratio(normal: _Latencies, graph: _Latencies, quantile: float) -> QuantileRatio:
    return compare_blocks(normal, graph, quantile, BOOTSTRAP_SEED, paired=True)


@lru_cache(_PAIRS_KEPT)
def _noise(one: _Latencies, other: _Latencies, quantile: float) -> NoiseFloor:
    return noise_floor(one, other, quantile, BOOTSTRAP_SEED, paired=True)


def _tail(normal: Sequence[Block], graph: Sequence[Block], quantile: float) -> QuantilePair | NotMeasured:
    fewest = min(_requests(normal), _requests(graph))
    return enough_requests(fewest, quantile) or _pair(normal, graph, quantile)


def _requests(blocks: Sequence[Block]) -> int:
    return sum(len(block.latencies_ns) for block in blocks)


def _cpu_per_request(blocks: Sequence[Block]) -> float:
    return sum(block.cpu_ns for block in blocks) / _requests(blocks)


def _process_cpu_per_request(blocks: Sequence[Block]) -> Measured:
    total = 0
    for block in blocks:
        if isinstance(block.process_cpu_ns, NotMeasured):
            return block.process_cpu_ns
        total += block.process_cpu_ns
    return round(total / _requests(blocks))


def pair_of(
    normal: Blocks,
    graph: Blocks,
    quantile: float,
    *,
    paired: bool = False,
    halves: tuple[Blocks, Blocks] | None = None,
) -> QuantilePair | NotMeasured:
    """One quantile of both paths from blocks in the order of their measurement.

    ``halves`` of the normal path give the noise: without them its even blocks and its odd ones. ``paired``
    as in :func:`compare_blocks`. Not measured with too few blocks, or where a path takes no time.
    """
    for name, blocks in (("normal", normal), ("graph", graph)):
        if len(blocks) < MIN_BLOCKS:
            return NotMeasured(reason=f"{len(blocks)} blocks of the {name} path, {MIN_BLOCKS} are needed")
    one, other = halves or (normal[0::2], normal[1::2])
    if not all(quantile_ns(blocks, quantile) > 0 for blocks in (normal, one, other, graph)):
        return NotMeasured(reason="a path takes no time: the clock is too coarse")
    return QuantilePair(
        normal_ns=quantile_ns(normal, quantile),
        graph_ns=quantile_ns(graph, quantile),
        ratio=compare_blocks(normal, graph, quantile, BOOTSTRAP_SEED, paired=paired),
        noise=noise_floor(one, other, quantile, BOOTSTRAP_SEED, paired=paired),
    )


def _throughput(blocks: Sequence[Block]) -> float:
    """Requests over the time that they took, without what lay between them."""
    spent_ns = sum(sum(block.latencies_ns) for block in blocks)
    return _requests(blocks) * NS_PER_S / max(1, spent_ns)


def _but_longest(blocks: Sequence[Block]) -> Sequence[Block]:
    longest = max(blocks, key=lambda block: sum(block.latencies_ns) / max(1, len(block.latencies_ns)))
    return [block for block in blocks if block is not longest]


def _median(blocks: Sequence[Block], absent: str) -> Measured:
    return quantile_ns(_latencies(blocks), 0.5) if blocks else NotMeasured(reason=absent)
