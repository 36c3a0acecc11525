"""Half-open intervals [start, end) on one clock, as int64 arrays: union, complement, clip, overlap, cut.

Everything is vectorised: a call on n intervals costs O(n log n) in NumPy and no Python loop over them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Window = tuple[int, int]

EARLIEST: Final = int(np.iinfo(np.int64).min)
LATEST: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Intervals:
    """Disjoint, non-empty intervals in time order, none touching the next."""

    starts: Int64
    ends: Int64

    @property
    def length_ns(self) -> int:
        """Sum of the lengths."""
        return int((self.ends - self.starts).sum())

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True)
class Pieces:
    """Parts of other intervals: ``owners`` is the index of the interval that each was cut from."""

    starts: Int64
    ends: Int64
    owners: Int64

    def kept(self, mask: Bools) -> Pieces:
        """The pieces that ``mask`` selects."""
        return Pieces(self.starts[mask], self.ends[mask], self.owners[mask])

    def within(self, lower: Int64, upper: Int64) -> Pieces:
        """What lies between ``lower`` and ``upper`` (one bound for each piece)."""
        starts, ends = np.maximum(self.starts, lower), np.minimum(self.ends, upper)
        return Pieces(starts, ends, self.owners).kept(starts < ends)


def int64(values: npt.ArrayLike) -> Int64:
    """An int64 array of ``values``."""
    return np.asarray(values, dtype=np.int64)


def union(starts: Int64, ends: Int64) -> Intervals:
    """The union of intervals in any order; empty and reversed ones are left out."""
    real = starts < ends
    starts, ends = starts[real], ends[real]
    if not len(starts):
        return Intervals(starts, ends)
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    first = np.append(True, starts[1:] > reach[:-1])
    last = np.append(first[1:], True)
    return Intervals(starts[first], reach[last])


def clip(intervals: Intervals, window: Window) -> Intervals:
    """The part of ``intervals`` inside ``window``."""
    starts, ends = np.maximum(intervals.starts, window[0]), np.minimum(intervals.ends, window[1])
    inside = starts < ends
    return Intervals(starts[inside], ends[inside])


def complement(intervals: Intervals, window: Window) -> Intervals:
    """The part of ``window`` outside ``intervals``."""
    inside = clip(intervals, window)
    starts, ends = np.append(int64(window[0]), inside.ends), np.append(inside.starts, int64(window[1]))
    gap = starts < ends
    return Intervals(starts[gap], ends[gap])


def overlap_ns(intervals: Intervals, starts: Int64, ends: Int64) -> Int64:
    """For each [start, end): how much of it ``intervals`` cover."""
    covered = _covered_before(intervals, ends) - _covered_before(intervals, starts)
    return np.where(starts < ends, covered, 0)


def _covered_before(intervals: Intervals, times: Int64) -> Int64:
    if not len(intervals):
        return np.zeros(len(times), dtype=np.int64)
    total = np.append(int64(0), np.cumsum(intervals.ends - intervals.starts))
    begun = np.searchsorted(intervals.starts, times, side="right")
    last = np.maximum(begun - 1, 0)
    beyond = np.where(begun > 0, np.maximum(intervals.ends[last] - times, 0), 0)
    return int64(total[begun] - beyond)


def expand(first: Int64, count: Int64) -> tuple[Int64, Int64]:
    """All pairs (row, index) with ``first[row] <= index < first[row] + count[row]``, row by row."""
    rows = np.repeat(np.arange(len(first), dtype=np.int64), count)
    offsets = np.arange(len(rows), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
    return rows, int64(first[rows] + offsets)


def pieces_of(intervals: Intervals) -> Pieces:
    """Each interval as one whole piece."""
    return Pieces(intervals.starts, intervals.ends, np.arange(len(intervals), dtype=np.int64))


def split(pieces: Pieces, cover: Intervals) -> tuple[Pieces, Pieces]:
    """Cut ``pieces`` at the borders of ``cover``: what it covers, and the rest."""
    if not len(cover) or not len(pieces.starts):
        return pieces.kept(np.zeros(len(pieces.starts), dtype=np.bool_)), pieces
    span = (int(np.min(pieces.starts)), int(np.max(pieces.ends)))
    return _covered(pieces, cover), _covered(pieces, complement(cover, span))


def _covered(pieces: Pieces, cover: Intervals) -> Pieces:
    first = np.searchsorted(cover.ends, pieces.starts, side="right")
    beyond = np.searchsorted(cover.starts, pieces.ends, side="left")
    rows, index = expand(int64(first), int64(np.maximum(beyond - first, 0)))
    whole = Pieces(pieces.starts[rows], pieces.ends[rows], pieces.owners[rows])
    return whole.within(cover.starts[index], cover.ends[index])


def grouped_union_ns(groups: Int64, starts: Int64, ends: Int64, count: int) -> Int64:
    """The length of the union within each group ``0 .. count - 1``."""
    if not len(groups):
        return np.zeros(count, dtype=np.int64)
    # Each group is moved to a time span of its own, so that one union serves them all.
    base = np.full(count, LATEST, dtype=np.int64)
    np.minimum.at(base, groups, starts)
    relative_ends = np.maximum(ends, starts) - base[groups]
    span = int(np.max(relative_ends)) + 1
    moved = union(starts - base[groups] + groups * span, relative_ends + groups * span)
    lengths = np.zeros(count, dtype=np.int64)
    np.add.at(lengths, moved.starts // span, moved.ends - moved.starts)
    return lengths
