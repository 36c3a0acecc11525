"""Find the period of a sequence that nobody marked, and the places where its unit begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from cudagraph_gate.diagnosis.segment_hashing import ODD, UInt64, mixed
from cudagraph_gate.timeline.intervals import Bools, Int64, int64

GRAM: Final = 8
"""Tokens compared together in the search: so many in a row seldom agree by chance, and one inserted
operation spoils only eight places."""
SAMPLES: Final = (1 << 17, 1 << 20)
"""Tokens looked at, from the middle where warm-up is over; the larger part only if the smaller has no period.

A period of more than a third of it is not found: no iteration of that length needs a graph."""
CANDIDATES: Final = 16
"""Distances tried of each kind: real periods come with many equal distances, so they are among the first."""
SAME_COVERAGE: Final = 0.005
"""Periods whose coverage is this close explain the sequence equally well: the smallest is the unit."""
MIN_COVERAGE: Final = 0.3
"""Share of the places that must agree with those one period before: half the sequence may be warm-up or
other work, and some of the rest inserted operations."""
STEADY_SHARE: Final = 0.7
"""Of the places that repeat at all, so many do after just one period; with fewer its length varies, and the
lag that fits best may be that of several units."""
MIN_REPEATS: Final = 3
"""Twice can be chance."""
ANCHOR_GRAMS: Final = (1, 2, 4, 8, 16, 32, 64)
"""Lengths tried for the mark of a unit's beginning, the shortest first: it is the least likely broken."""
ANCHOR_SPREAD: Final = 0.25
"""A mark may come so much (share of the period) too early or late: inserted and missing operations."""
ANCHOR_SHARE: Final = 0.8
"""Share of a mark's distances that must be one period."""


@dataclass(frozen=True)
class Period:
    """The unit's length in tokens, and the places where it begins, in order."""

    length: int
    places: Int64


def find_period(codes: Int64, gaps_ns: Callable[[slice], Int64], shortest: int = 1) -> Period | None:
    """The period of ``codes`` (negative ones are borders that equal nothing), None if there is none.

    A unit begins where the submission gap before it is largest; ``gaps_ns`` gives those of a part.
    A unit of fewer than ``shortest`` tokens is taken so many times. Costs O(n) beyond the sampled part.
    """
    for sample in SAMPLES:
        low = max((len(codes) - sample) // 2, 0)
        part = slice(low, min(low + sample, len(codes)))
        length = _length(codes[part])
        if 0 < length < shortest:
            return Period(shortest, _in_step(codes, shortest))
        if length:
            return Period(length, _places(codes, codes[part], gaps_ns(part), length))
        if sample >= len(codes):
            break
    return None


def grams(codes: Int64, length: int) -> UInt64:
    """Hash of each ``length`` neighbouring codes."""
    count = len(codes) - length + 1
    hashes = np.zeros(max(count, 0), dtype=np.uint64)
    for place in range(length if count > 0 else 0):
        hashes *= ODD
        hashes += codes[place : place + count].view(np.uint64)
    return mixed(hashes)


def _length(codes: Int64) -> int:
    size = min(GRAM, max(len(codes) // 4, 1))
    hashes = grams(codes, size)
    distances, _ = _distances(_classes(hashes))
    candidates = [p for p in _candidates(distances) if p * MIN_REPEATS <= len(codes)]
    coverage = {p: float(np.mean(hashes[p:] == hashes[:-p])) for p in candidates if p < len(hashes)}
    best = max(coverage.values(), default=0.0)
    exact = min((p for p, covered in coverage.items() if covered >= best - SAME_COVERAGE), default=0)
    exact = int(exact) if best >= MIN_COVERAGE else 0
    is_steady = best * len(hashes) >= STEADY_SHARE * len(distances)
    return exact if exact and is_steady else _rough_length(codes) or exact


def _classes(hashes: UInt64) -> Int64:
    return int64(np.unique(hashes, return_inverse=True)[1])


def _distances(classes: Int64) -> tuple[Int64, Int64]:
    """Distances to the previous place of the same class, and the class of each."""
    order = np.argsort(classes, kind="stable")
    same = classes[order[1:]] == classes[order[:-1]]
    return int64(np.diff(order)[same]), int64(classes[order[1:]][same])


def _candidates(distances: Int64) -> Int64:
    values, counts = np.unique(distances, return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[:CANDIDATES]
    # An outer loop shows at few places but spans many: weighing by distance finds it.
    spanning = np.argsort(-counts * values, kind="stable")[:CANDIDATES]
    return int64(values[np.union1d(frequent, spanning)])


def _rough_length(codes: Int64) -> int:
    """Where each unit has another length, no lag fits exactly: the commonest distance within a spread."""
    distances, _ = _distances(_classes(grams(codes, min(2, len(codes)))))
    if not len(distances):
        return 0
    ordered = np.sort(distances)
    beyond = np.searchsorted(ordered, ordered * (1 + ANCHOR_SPREAD), side="right")
    held = beyond - np.arange(len(ordered))
    best = int(np.argmax(held))
    length = int(ordered[best + held[best] // 2])
    enough = held[best] >= MIN_COVERAGE * len(codes) and length * MIN_REPEATS <= len(codes)
    return length if enough else 0


def _places(codes: Int64, sample: Int64, gaps_ns: Int64, length: int) -> Int64:
    for size in ANCHOR_GRAMS:
        place = _anchor(sample, gaps_ns, length, size)
        if place is not None:
            return _occurrences(codes, sample[place : place + size])
    return _in_step(codes, length)


def _anchor(codes: Int64, gaps_ns: Int64, length: int, size: int) -> int | None:
    """A place whose ``size`` codes come once a period, with the largest gaps before them; None if none do.

    A gap of -1 is not known.
    """
    if size >= len(codes):
        return None
    names, first, classes = np.unique(grams(codes, size), return_index=True, return_inverse=True)
    distances, owner = _distances(int64(classes))
    near = np.abs(distances - length) <= ANCHOR_SPREAD * length
    total = np.bincount(owner, minlength=len(names))
    fitting = np.bincount(owner[near], minlength=len(names))
    fit = (total >= MIN_REPEATS - 1) & (fitting >= ANCHOR_SHARE * total) & (codes[first] >= 0)
    if not fit.any():
        return None
    fit &= total >= 0.5 * np.max(total[fit])
    # The mean of logarithms, so that one long pause does not outweigh a gap that comes every time.
    known = gaps_ns[: len(classes)] >= 0
    summed = np.bincount(classes[known], np.log1p(gaps_ns[: len(classes)][known]), minlength=len(names))
    weight = summed / np.maximum(np.bincount(classes[known], minlength=len(names)), 1)
    # Equal gaps: the mark that comes first begins the unit.
    ranked = np.lexsort((first, -np.round(weight, 6), ~fit))
    return int(first[ranked[0]])


def _occurrences(codes: Int64, wanted: Int64) -> Int64:
    count = len(codes) - len(wanted) + 1
    found: Bools = np.ones(count, dtype=np.bool_)
    for place, code in enumerate(wanted):
        found &= codes[place : place + count] == code
    return int64(np.flatnonzero(found))


def _in_step(codes: Int64, length: int) -> Int64:
    """Without a mark: every period from the start of the longest stretch that repeats exactly."""
    same = np.concatenate([[False], codes[length:] == codes[:-length], [False]])
    borders = np.flatnonzero(same[1:] != same[:-1])
    starts, ends = borders[::2], borders[1::2]
    if not len(starts):
        return starts
    longest = int(np.argmax(ends - starts))
    return np.arange(starts[longest], ends[longest] + length, length, dtype=np.int64)
