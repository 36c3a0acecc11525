"""Half-open intervals [start, end) on one clock, as int64 arrays: union, complement, clip, overlap, cut.

Everything is vectorised: a call on n intervals costs O(n log n) in NumPy and no Python loop over them,
and O(n) where the starts are already in order, as those of a saved timeline are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Codes = npt.NDArray[np.signedinteger[Any]]
"""Small numbers: rows, positions, causes. Narrower than 64 bit where there may be tens of millions."""
Bools = npt.NDArray[np.bool_]
Window = tuple[int, int]

EARLIEST: Final = int(np.iinfo(np.int64).min)
LATEST: Final = int(np.iinfo(np.int64).max)
BLOCK: Final = 2**17
"""Rows worked on in one go where a result is much smaller than what it is made of: arrays of 1 MB lie in the
cache and their memory is used again, while those of whole timelines come zeroed from the system each time."""
SEARCHED: Final = 2**12
"""Values in order that are searched together: what lies between the first and the last fits the cache."""


@dataclass(frozen=True)
class Intervals:
    """Disjoint, non-empty intervals in time order, none touching the next."""

    starts: Int64
    ends: Int64

    @property
    def length_ns(self) -> int:
        """Sum of the lengths."""
        return _length_ns(self.starts, self.ends)

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True)
class Pieces:
    """Parts of other intervals: ``owners`` is the index of the interval that each was cut from."""

    starts: Int64
    ends: Int64
    owners: Codes

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def length_ns(self) -> int:
        """Sum of the lengths."""
        return _length_ns(self.starts, self.ends)

    def kept(self, mask: Bools) -> Pieces:
        """The pieces that ``mask`` selects."""
        if mask.all():
            return self
        return Pieces(self.starts[mask], self.ends[mask], self.owners[mask])

    def within(self, lower: Int64, upper: Int64) -> Pieces:
        """What lies between ``lower`` and ``upper`` (one bound for each piece)."""
        starts, ends = np.maximum(self.starts, lower), np.minimum(self.ends, upper)
        return Pieces(starts, ends, self.owners).kept(starts < ends)


def int64(values: npt.ArrayLike) -> Int64:
    """An int64 array of ``values``."""
    return np.asarray(values, dtype=np.int64)


def blocks(count: int) -> Iterator[slice]:
    """The rows ``0 .. count - 1`` in parts of ``BLOCK``."""
    return (slice(first, min(first + BLOCK, count)) for first in range(0, count, BLOCK))


def _length_ns(starts: Int64, ends: Int64) -> int:
    return sum(int((ends[part] - starts[part]).sum()) for part in blocks(len(starts)))


def in_order(values: Codes) -> bool:
    """Whether the values never fall."""
    return bool((values[1:] >= values[:-1]).all())


def taken(values: npt.NDArray[Any], rows: Codes) -> npt.NDArray[Any]:
    """``values[rows]``, without a copy where that is all of them in order."""
    is_whole = len(rows) == len(values) and bool((rows[1:] > rows[:-1]).all())
    return values if is_whole else values[rows]


def places_in(ordered: Int64, wanted: Int64, side: Literal["left", "right"]) -> Int64:
    """``np.searchsorted`` for values that are in order too: each few of them are searched in a small part."""
    found = np.empty(len(wanted), dtype=np.int64)
    for first in range(0, len(wanted), SEARCHED):
        few = wanted[first : first + SEARCHED]
        low = int(np.searchsorted(ordered, few[0], side=side))
        high = int(np.searchsorted(ordered, few[-1], side=side))
        found[first : first + SEARCHED] = np.searchsorted(ordered[low:high], few, side=side)
        found[first : first + SEARCHED] += low
    return found


def union(starts: Int64, ends: Int64) -> Intervals:
    """The union of intervals in any order; empty and reversed ones are left out."""
    real = starts < ends
    if not real.all():
        starts, ends = starts[real], ends[real]
    if not len(starts):
        return Intervals(starts, ends)
    if not in_order(starts):
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    apart = starts[1:] > reach[:-1]
    if apart.all():
        return Intervals(starts, ends)
    return Intervals(starts[np.append(True, apart)], reach[np.append(apart, True)])


def clip(intervals: Intervals, window: Window) -> Intervals:
    """The part of ``intervals`` inside ``window``; shares their memory where no interval is cut."""
    first = int(np.searchsorted(intervals.ends, window[0], side="right"))
    beyond = max(first, int(np.searchsorted(intervals.starts, window[1], side="left")))
    starts, ends = intervals.starts[first:beyond], intervals.ends[first:beyond]
    if len(starts) and starts[0] < window[0]:
        starts = np.maximum(starts, window[0])
    if len(ends) and ends[-1] > window[1]:
        ends = np.minimum(ends, window[1])
    return Intervals(starts, ends)


def complement(intervals: Intervals, window: Window) -> Intervals:
    """The part of ``window`` outside ``intervals``; shares their memory where they fill its borders."""
    inside = clip(intervals, window)
    if not len(inside):
        whole = int64([window] if window[0] < window[1] else np.zeros((0, 2)))
        return Intervals(whole[:, 0], whole[:, 1])
    starts, ends = inside.ends[:-1], inside.starts[1:]
    if inside.starts[0] > window[0]:
        starts, ends = np.append(int64(window[0]), starts), np.append(inside.starts[0], ends)
    if inside.ends[-1] < window[1]:
        starts, ends = np.append(starts, inside.ends[-1]), np.append(ends, int64(window[1]))
    return Intervals(starts, ends)


def overlap_ns(intervals: Intervals, starts: Int64, ends: Int64) -> Int64:
    """For each [start, end): how much of it ``intervals`` cover."""
    if not len(intervals):
        return np.zeros(len(starts), dtype=np.int64)
    total = np.zeros(len(intervals) + 1, dtype=np.int64)
    np.cumsum(intervals.ends - intervals.starts, out=total[1:])
    covered = _covered_before(intervals, total, ends) - _covered_before(intervals, total, starts)
    return np.where(starts < ends, covered, 0)


def _covered_before(intervals: Intervals, total: Int64, times: Int64) -> Int64:
    """``total`` is the sum of the lengths before each interval, and of all."""
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
    return Pieces(intervals.starts, intervals.ends, np.arange(len(intervals), dtype=np.int32))


def split(pieces: Pieces, cover: Intervals) -> tuple[Pieces, Pieces]:
    """Cut ``pieces`` at the borders of ``cover``: what it covers, and the rest, each in the pieces' order."""
    if len(pieces):
        cover = clip(cover, (int(np.min(pieces.starts)), int(np.max(pieces.ends))))
    if not len(cover) or not len(pieces):
        return pieces.kept(np.zeros(len(pieces), dtype=np.bool_)), pieces
    first = np.searchsorted(cover.ends, pieces.starts, side="right")
    beyond = np.searchsorted(cover.starts, pieces.ends, side="left")
    count = np.maximum(beyond - first, 0)
    rows, index = expand(int64(first), int64(count))
    covered = _rows(pieces, rows).within(cover.starts[index], cover.ends[index])
    # A piece that k intervals touch leaves k + 1 gaps: before the first, between, after the last.
    rows, index = expand(int64(first), int64(count + 1))
    opens = np.append(np.int64(EARLIEST), cover.ends)[index]
    closes = np.append(cover.starts, np.int64(LATEST))[index]
    return covered, _rows(pieces, rows).within(opens, closes)


def _rows(pieces: Pieces, rows: Int64) -> Pieces:
    return Pieces(pieces.starts[rows], pieces.ends[rows], pieces.owners[rows])


def reach_before(groups: Codes, ends: Int64) -> Int64:
    """For each row, the latest of ``ends`` of the earlier rows of its group; EARLIEST for a group's first.

    Groups are small and not negative. Loops over the groups: streams or threads, of which there are few.
    """
    reach = np.full(len(ends), EARLIEST, dtype=np.int64)
    if len(groups) and int(np.min(groups)) == int(np.max(groups)):
        np.maximum.accumulate(ends[:-1], out=reach[1:])
        return reach
    if not len(groups):
        return reach
    reached = np.full(int(np.max(groups)) + 1, EARLIEST, dtype=np.int64)
    for part in blocks(len(groups)):
        own = groups[part]
        order = np.argsort(own, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(own[order])) + 1):
            group = own[rows[0]]
            so_far = np.maximum.accumulate(np.append(reached[group], ends[part][rows]))
            reach[part][rows] = so_far[:-1]
            reached[group] = so_far[-1]
    return reach


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
