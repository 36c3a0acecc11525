"""Which shapes to capture: the fewest that keep most of the gain under a request mix and memory budget; pure.

Without padding each captured shape serves its own requests. Where the application pads, a request may be
served by the graph of a larger shape, at that graph's time: that is a separate answer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cudagraph_gate.model import NotMeasured

KEEP: Final = 0.95
"""Share of the gain that must be kept: the last graphs cost as much memory as the first and bring little."""
EXACT_SHAPES: Final = 15
"""Up to so many shapes every subset is looked at (32 768 of them); above, see :func:`choose_shapes`."""
_SAME: Final = 1e-9
"""Relative difference of gains that is rounding."""

_Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ShapeCost:
    """What was measured of one shape."""

    name: str
    share: float
    """Of the requests."""
    normal_ns: int
    """Median of a request of the normal path."""
    graph_ns: int
    nbytes: int
    """Device memory of its graph."""
    value: Any = None
    """The shape itself: an int or a tuple of ints can be padded to a larger one."""

    @property
    def gain_ns(self) -> float:
        """What its own graph saves, per average request of the mix; negative where it loses."""
        return self.share * (self.normal_ns - self.graph_ns)


@dataclass(frozen=True)
class Choice:
    """A set of captured shapes."""

    shapes: tuple[str, ...]
    """By name, sorted."""
    served_by: Mapping[str, str]
    """Each shape that is served by a graph, and the captured shape whose graph it is."""
    gain_ns: float
    """Per average request of the mix."""
    kept: float | NotMeasured
    """Share of what graphs of all shapes that gain would save, each with its own."""
    nbytes: int
    exact: bool
    """Whether no smaller set does as well; else the search was a greedy one."""


@dataclass(frozen=True)
class Padding:
    """One shape's requests served by the graph of a larger one."""

    shape: str
    by: str
    gain_ns: float
    """Per average request of the mix; negative where padding costs more than the graph saves."""
    waste: float
    """Share of the padded work that is padding."""


def choose_shapes(shapes: Sequence[ShapeCost], budget_bytes: int, keep: float = KEEP) -> Choice:
    """The fewest shapes that keep ``keep`` of the gain within the budget; of equally many the best ones.

    Where no set within the budget keeps so much, the one that gains most. Exact up to ``EXACT_SHAPES``
    shapes that gain, and for any number where the budget holds them all. Above, greedy: it gains at least
    half of what the best set within the budget does (greedy by gain per byte or the largest gain alone,
    whichever is more: the knapsack bound), and may take more shapes than needed.
    """
    ordered = _ordered(shapes)
    own = [[cost.gain_ns if cost is other else 0.0 for other in ordered] for cost in ordered]
    return _Search(ordered, np.array(own, dtype=np.float64), budget_bytes, keep).best(padded=False)


def choose_buckets(shapes: Sequence[ShapeCost], budget_bytes: int, keep: float = KEEP) -> Choice:
    """The same if the application pads: a captured shape also serves smaller ones where that gains.

    Its kept share is of the gain without padding, so it can be above 1 by measurement noise. Above
    ``EXACT_SHAPES`` greedy: at least (1 - 1/e)/2 of the best gain (Khuller, Moss, Naor 1999).
    """
    ordered = _ordered(shapes)
    padded = [[_served_gain(cost, by) for by in ordered] for cost in ordered]
    return _Search(ordered, np.array(padded, dtype=np.float64), budget_bytes, keep).best(padded=True)


def paddings(shapes: Sequence[ShapeCost]) -> tuple[Padding, ...]:
    """Every pair of a shape and a larger one that could serve it."""
    ordered = _ordered(shapes)
    pairs = ((cost, by) for cost in ordered for by in ordered if _fits(cost.value, by.value))
    return tuple(
        Padding(cost.name, by.name, _padded_gain(cost, by), _waste(cost.value, by.value))
        for cost, by in pairs
    )


def _ordered(shapes: Sequence[ShapeCost]) -> list[ShapeCost]:
    """By name: the answer must not depend on the order that shapes were measured in."""
    return sorted(shapes, key=lambda cost: cost.name)


def _served_gain(cost: ShapeCost, by: ShapeCost) -> float:
    if cost is by:
        return cost.gain_ns
    return _padded_gain(cost, by) if _fits(cost.value, by.value) else 0.0


def _padded_gain(cost: ShapeCost, by: ShapeCost) -> float:
    return cost.share * (cost.normal_ns - by.graph_ns)


def _dimensions(value: Any) -> tuple[int, ...] | None:
    sizes = value if isinstance(value, tuple) else (value,)
    whole = all(isinstance(size, int) and not isinstance(size, bool) for size in sizes)
    return sizes if whole and sizes else None


def _fits(value: Any, larger: Any) -> bool:
    """Whether one shape can be padded to another: as many dimensions, none smaller, not all equal."""
    small, large = _dimensions(value), _dimensions(larger)
    if small is None or large is None or len(small) != len(large) or small == large:
        return False
    return all(size <= limit for size, limit in zip(small, large, strict=True))


def _waste(value: Any, larger: Any) -> float:
    whole = math.prod(_dimensions(larger) or ())
    return 1 - math.prod(_dimensions(value) or ()) / whole if whole else 0.0


class _Search:
    """Finds the set; ``gains[i, j]`` is what shape i saves when it is served by the graph of j."""

    def __init__(self, shapes: list[ShapeCost], gains: _Array, budget_bytes: int, keep: float) -> None:
        self._shapes = shapes
        self._gains = gains
        self._budget = budget_bytes
        self._total = math.fsum(max(0.0, cost.gain_ns) for cost in shapes)
        self._wanted = keep * self._total * (1 - _SAME)
        self._candidates = [
            index for index, cost in enumerate(shapes) if cost.gain_ns > 0 and cost.nbytes <= budget_bytes
        ]

    def best(self, *, padded: bool) -> Choice:
        if len(self._candidates) <= EXACT_SHAPES:
            return self._choice(self._smallest(), exact=True)
        # Graphs that serve one shape each and all fit: taking the largest gains first is exact.
        all_fit = self._nbytes(self._candidates) <= self._budget
        return self._choice(self._greedy(), exact=all_fit and not padded)

    def _value(self, chosen: Sequence[int]) -> float:
        return float(self._values(np.array([chosen], dtype=np.intp))[0]) if chosen else 0.0

    def _values(self, sets: npt.NDArray[np.intp]) -> _Array:
        """Gain of each row of ``sets``: every shape takes the best graph of the set, or none."""
        return np.asarray(self._gains[:, sets].max(axis=2).clip(min=0.0).sum(axis=0))

    def _nbytes(self, chosen: Sequence[int]) -> int:
        return sum(self._shapes[index].nbytes for index in chosen)

    def _smallest(self) -> tuple[int, ...]:
        """Every subset by size: the first size at which one keeps enough, else the one that gains most."""
        best: tuple[int, ...] = ()
        for size in range(1, len(self._candidates) + 1):
            found = self._best_of_size(size)
            if found and self._value(found) > self._value(best) * (1 + _SAME):
                best = found
            if self._value(best) >= self._wanted:
                break
        return best

    def _best_of_size(self, size: int) -> tuple[int, ...]:
        sets = [
            chosen
            for chosen in itertools.combinations(self._candidates, size)
            if self._nbytes(chosen) <= self._budget
        ]
        if not sets:
            return ()
        values = self._values(np.array(sets, dtype=np.intp))
        near = np.flatnonzero(values >= np.max(values) * (1 - _SAME))
        return min((sets[index] for index in near), key=lambda chosen: (self._nbytes(chosen), chosen))

    def _greedy(self) -> tuple[int, ...]:
        tried = [self._grown(per_byte=False), self._grown(per_byte=True)]
        enough = [chosen for chosen in tried if self._value(chosen) >= self._wanted]
        if enough:
            return min(enough, key=lambda chosen: (len(chosen), -self._value(chosen)))
        return max(tried, key=self._value)

    def _grown(self, *, per_byte: bool) -> tuple[int, ...]:
        """Add what gains most, or most per byte, beyond what is chosen, while it fits and is needed."""
        chosen: list[int] = []
        have = 0.0
        while have < self._wanted:
            left = self._budget - self._nbytes(chosen)
            scores = {}
            for index in self._candidates:
                nbytes = self._shapes[index].nbytes
                if index in chosen or nbytes > left:
                    continue
                further = self._value([*chosen, index]) - have
                if further > _SAME * self._total:
                    scores[index] = further / max(1, nbytes) if per_byte else further
            if not scores:
                break
            chosen.append(max(scores, key=lambda index: scores[index]))
            have = self._value(chosen)
        return tuple(sorted(chosen))

    def _choice(self, chosen: Sequence[int], *, exact: bool) -> Choice:
        gain_ns = self._value(chosen)
        nothing = NotMeasured(reason="no shape gains from a graph")
        return Choice(
            shapes=tuple(self._shapes[index].name for index in sorted(chosen)),
            served_by=self._served_by(chosen),
            gain_ns=gain_ns,
            kept=gain_ns / self._total if self._total > 0 else nothing,
            nbytes=self._nbytes(chosen),
            exact=exact,
        )

    def _served_by(self, chosen: Sequence[int]) -> dict[str, str]:
        served = {}
        for index, cost in enumerate(self._shapes):
            best = max(chosen, key=lambda by: (self._gains[index, by], by == index, -by), default=None)
            if best is not None and self._gains[index, best] > 0:
                served[cost.name] = self._shapes[best].name
        return served
