"""Statistics of request latencies: percentiles, and ratios with bootstrap intervals over blocks.

Requests of one block share the state of the machine (clocks, caches, neighbours), so single requests are
not independent. Whole blocks are resampled instead (block bootstrap), which keeps an interval honest. Blocks
that were measured beside each other are resampled together, so that a slow drift, which moves both, cancels.
How often this finds a gain, and finds one where there is none: ``docs/measurements/decision_rates.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cudagraph_gate.model import Distribution, NotMeasured

RESAMPLES: Final = 1000
"""Bootstrap resamples: enough that the ends of a 95 % interval move by less than its width's tenth."""
CONFIDENCE: Final = 0.95
"""Coverage of every interval, two-sided."""
MIN_BLOCKS: Final = 4
"""Blocks per path below which there is no interval: fewer have too few distinct resamples."""

MOST_FURTHER_BLOCKS: Final = 1_000
"""Most further blocks per path that are asked for: minutes of measuring; beyond it the gain is too close."""

_CELLS: Final = 1_000_000
"""Values that the bootstrap looks at together: bounds its memory to tens of MiB."""

Blocks = Sequence[Sequence[int]]
"""Latencies in ns, one inner sequence a block."""
_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class QuantileRatio:
    """One quantile of the graph path over the same quantile of the normal path; below 1 is faster."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class NoiseFloor:
    """How far normal against normal is from 1, as a share: what a gain must exceed to be one."""

    value: float
    upper: float
    """Farther end of the bootstrap interval from 1."""


def distribution(sample_ns: Sequence[int] | npt.NDArray[np.int64]) -> Distribution:
    """Percentiles of ``sample_ns``, linearly interpolated and rounded to whole ns.

    With fewer than 20 values P95, and with fewer than 100 values P99, lie between the two largest ones and
    say little: ask :func:`enough_requests` before deciding on them. Raises ValueError for an empty sample.
    """
    if len(sample_ns) == 0:
        raise ValueError("no percentiles of an empty sample")
    values: npt.NDArray[np.int64] = np.asarray(sample_ns, dtype=np.int64)
    p50, p95, p99 = (round(float(value)) for value in np.quantile(values, (0.50, 0.95, 0.99)))
    return Distribution(
        count=len(values),
        p50=p50,
        p95=p95,
        p99=p99,
        minimum=int(np.min(values)),
        maximum=int(np.max(values)),
    )


def quantile_ns(blocks: Blocks, quantile: float) -> int:
    """One quantile over all requests of ``blocks``, in ns. Raises ValueError when there is no request."""
    values = [latency for block in blocks for latency in block]
    if not values:
        raise ValueError("no quantile of no requests")
    return round(float(np.quantile(values, quantile)))


def compare_blocks(
    normal: Blocks, graph: Blocks, quantile: float, seed: int, *, paired: bool = False
) -> QuantileRatio:
    """The graph path's quantile over the normal path's, with its 95 % interval.

    Each path's blocks are resampled with replacement, as many as there are; ``seed`` makes it repeatable.
    With ``paired``, blocks at the same position were neighbours in time and are drawn together; blocks of
    unequal number are drawn apart all the same.
    Raises ValueError when a path has no request, or when the normal path's quantile is zero.
    """
    ours, theirs = _arrays(graph), _arrays(normal)
    base = float(np.quantile(np.concatenate(theirs), quantile))
    if base <= 0:
        raise ValueError("no ratio to a quantile of zero")
    random = np.random.default_rng(seed)
    picks = _picks(random, len(ours))
    others = picks if paired and len(ours) == len(theirs) else _picks(random, len(theirs))
    ratios = _resampled(ours, quantile, picks) / np.maximum(_resampled(theirs, quantile, others), 1.0)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, (tail, 1 - tail))
    ratio = float(np.quantile(np.concatenate(ours), quantile)) / base
    # A quantile between few values can lie outside its own resamples: the interval always holds the ratio.
    return QuantileRatio(ratio=ratio, low=min(float(low), ratio), high=max(float(high), ratio))


def noise_floor(
    half_a: Blocks, half_b: Blocks, quantile: float, seed: int, *, paired: bool = False
) -> NoiseFloor:
    """How much two random halves of the same path differ (A/A); ``paired`` as in :func:`compare_blocks`.

    Raises ValueError when a half is empty.
    """
    same = compare_blocks(half_a, half_b, quantile, seed, paired=paired)
    return NoiseFloor(value=abs(same.ratio - 1), upper=max(abs(same.low - 1), abs(same.high - 1)))


def faster(ratio: QuantileRatio, noise: NoiseFloor) -> bool:
    """Whether the graph path is faster: its whole interval is below 1, by more than the noise floor.

    How much faster it must be to be worth it is the policy's question.
    """
    return 1 - ratio.high > max(0.0, noise.upper)


def further_blocks(ratio: QuantileRatio, noise: NoiseFloor, min_gain: float, blocks: int) -> int:
    """Further blocks per path until a gain like this one is told from the noise and from ``min_gain``.

    After ``blocks`` blocks per path. With n blocks, the interval's half-widths and the noise floor shrink
    as 1/sqrt(n). With the shrinking factor x, a gain g = 1 - ``ratio`` above the minimum is clear once
    g - (high - ratio) / x is above both ``min_gain`` and the noise floor / x; one below it is clearly too
    small once g + (ratio - low) / x is under it. ``MOST_FURTHER_BLOCKS`` stands for so many or more.
    """
    gain = 1 - ratio.ratio
    above, below = ratio.high - ratio.ratio, ratio.ratio - ratio.low
    distance = abs(gain - min_gain)
    if distance == 0:
        return MOST_FURTHER_BLOCKS
    shrink = below / distance if gain < min_gain else above / distance
    if gain > max(0.0, min_gain):
        shrink = max(shrink, (above + noise.upper) / gain)
    needed = min(blocks * shrink**2, blocks + MOST_FURTHER_BLOCKS)
    return max(1, math.ceil(needed) - blocks)


def requests_needed(quantile: float) -> int:
    """Requests per path from which on at least one is expected beyond ``quantile``: 100 for P99."""
    return math.ceil(round(1 / (1 - quantile), 6))


def enough_requests(count: int, quantile: float) -> NotMeasured | None:
    """The reason why ``count`` requests per path are too few for ``quantile``, or None."""
    needed = requests_needed(quantile)
    if count >= needed:
        return None
    return NotMeasured(reason=f"P{quantile * 100:g} needs {needed} requests per path, there are {count}")


def _arrays(blocks: Blocks) -> list[_Array]:
    arrays = [np.asarray(block, dtype=np.int64) for block in blocks if len(block)]
    if not arrays:
        raise ValueError("no requests in any block")
    return arrays


def _picks(random: np.random.Generator, blocks: int) -> _Array:
    """Which blocks make up each resample: one row a resample."""
    return random.integers(blocks, size=(RESAMPLES, blocks))


def _resampled(blocks: list[_Array], quantile: float, picks: _Array) -> _Array:
    """The quantile of each resample of whole blocks.

    All values are sorted once; a resample only says how often each block, and so each value, counts.
    """
    values = np.concatenate(blocks)
    owner = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    order = np.argsort(values, kind="stable")
    counts = np.stack(
        [np.count_nonzero(picks == block, axis=1) for block in range(len(blocks))], axis=1
    ).astype(np.int32)
    rows = max(1, _CELLS // len(values))
    chunks = (counts[start : start + rows, owner[order]] for start in range(0, RESAMPLES, rows))
    return np.concatenate([_counted_quantile(values[order], chunk, quantile) for chunk in chunks])


def _counted_quantile(values: _Array, counts: _Array, quantile: float) -> _Array:
    """Interpolated quantile of sorted ``values``, each counted as often as a row of ``counts`` says."""
    below = np.cumsum(counts, axis=1, dtype=np.int32)
    position = quantile * (below[:, -1] - 1)
    rank = np.floor(position)
    lower = values[np.count_nonzero(below <= rank[:, None], axis=1)]
    upper = values[np.count_nonzero(below <= np.ceil(position)[:, None], axis=1)]
    return np.asarray(lower + (upper - lower) * (position - rank))
