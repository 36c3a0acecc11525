"""Cut idle intervals into pieces, so that each idle nanosecond gets exactly one cause.

The rules and their order are those of ``docs/definitions.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from cudagraph_gate.diagnosis.submission import distinct, flags, ints
from cudagraph_gate.model import Cause
from cudagraph_gate.timeline.intervals import (
    Bools,
    Codes,
    Int64,
    Intervals,
    Pieces,
    pieces_of,
    split,
    union,
)

CAUSES: Final = tuple(Cause)
"""Every cause; its position here is its code in arrays."""

Cut = tuple[Pieces, Cause]


@dataclass(frozen=True)
class Host:
    """What the host side of one process says about idle time."""

    calls: pd.DataFrame
    ranges: pd.DataFrame
    overheads: Intervals
    requests: Intervals | None
    """Union of the requests of every process; None where none is marked."""

    _inside: dict[tuple[int, bool], Intervals] = field(default_factory=dict, repr=False, compare=False)
    """Answers of ``inside_calls``, which is asked once for each part of a long timeline."""

    def inside_calls(self, thread: int, *, blocking: bool) -> Intervals:
        """Time inside (non-)blocking calls of a thread; thread 0, which is not known, matches all."""
        if (thread, blocking) not in self._inside:
            mask = of_thread(self.calls, thread) & (flags(self.calls, "blocking") == blocking)
            starts, ends = ints(self.calls, "start_ns"), ints(self.calls, "end_ns")
            all_of_them = bool(mask.all())
            inside = union(starts, ends) if all_of_them else union(starts[mask], ends[mask])
            self._inside[thread, blocking] = inside
        return self._inside[thread, blocking]


def of_thread(frame: pd.DataFrame, thread: int) -> Bools:
    """The rows of a thread, and those of no known thread; thread 0 matches all."""
    threads = ints(frame, "thread")
    return np.asarray((threads == thread) | (threads == 0) | (thread == 0), dtype=np.bool_)


@dataclass(frozen=True)
class Enders:
    """For each idle interval, what is known of the operation that ends it; times are absolute."""

    ramp: Bools
    """Before the first or after the last operation of the window."""
    graph_gap: Bools
    """The operation before the gap belongs to the same graph launch."""
    known: Bools
    """Its submission is known, so the three fields below mean something."""
    begin: Int64
    finish: Int64
    blocking: Bools
    thread: Int64
    stream_free: Bools
    """Its stream had run dry before the idle interval began."""


@dataclass(frozen=True)
class CausedPieces:
    """The pieces of all idle intervals with the code of their cause, an index into ``CAUSES``."""

    pieces: Pieces
    causes: Codes
    threads: Int64
    """For each idle interval (``pieces.owners``) the submitting thread of its end; 0 if it is not known."""
    idle: Intervals
    """The idle intervals, which the pieces fill."""
    cadence_ns: float = 0.0
    """Median time between submissions to the device; 0 where submissions are not known."""

    @cached_property
    def median_gap_ns(self) -> float:
        """Median length of the idle intervals; 0 where there is none."""
        return float(np.median(self.interval_lengths_ns())) if len(self.idle) else 0.0

    def interval_lengths_ns(self) -> Int64:
        """Length of each idle interval."""
        return self.idle.ends - self.idle.starts

    def by_interval(self, count: int) -> Int64:
        """ns by idle interval (row) and cause (column)."""
        table = np.zeros((count, len(CAUSES)), dtype=np.int64)
        np.add.at(table, (self.pieces.owners, self.causes), self.pieces.ends - self.pieces.starts)
        return table

    def totals(self) -> Int64:
        """ns by cause, exact: one sum for each run of pieces with the same cause."""
        table = np.zeros(len(CAUSES), dtype=np.int64)
        if len(self.causes):
            first = np.append(0, np.flatnonzero(np.diff(self.causes)) + 1)
            sums = np.add.reduceat(self.pieces.ends - self.pieces.starts, first)
            np.add.at(table, self.causes[first], sums)
        return table

    def of(self, causes: tuple[Cause, ...]) -> Intervals:
        """The time that has one of ``causes``."""
        wanted = np.array([cause in causes for cause in CAUSES])
        kept = self.pieces.kept(wanted[self.causes])
        return union(kept.starts, kept.ends)


def attribute(idle: Intervals, enders: Enders, host: Host) -> CausedPieces:
    """Give each nanosecond of ``idle`` its cause."""
    found = CausedPiecesUnderWay()
    found.add_all(idle, enders, host)
    return found.finished(enders.thread, idle)


class CausedPiecesUnderWay:
    """Collects pieces in arrays that grow by doubling: memory that is not yet written to costs nothing.

    The pieces are the largest thing of a diagnosis: parts kept apart and joined at the end would need twice
    the memory.
    """

    def __init__(self, room: int = 1024) -> None:
        self._columns = [np.empty(room, dtype=dtype) for dtype in ("int64", "int64", "int32", "int8")]
        self._count = 0
        self.totals = dict.fromkeys(CAUSES, 0)
        """ns by cause."""

    def add_all(self, idle: Intervals, enders: Enders, host: Host, first_owner: int = 0) -> None:
        """Give each nanosecond of ``idle`` its cause; the intervals count from ``first_owner``."""
        for pieces, cause in _cuts(idle, enders, host):
            self._add(pieces, cause, first_owner)

    def _add(self, pieces: Pieces, cause: Cause, first_owner: int) -> None:
        end = self._count + len(pieces)
        if end > len(self._columns[0]):
            self._columns = [self._grown(column, 2 * end) for column in self._columns]
        starts, ends, owners, causes = (column[self._count : end] for column in self._columns)
        starts[:], ends[:], causes[:] = pieces.starts, pieces.ends, CAUSES.index(cause)
        np.add(pieces.owners, np.int32(first_owner), out=owners)
        self.totals[cause] += pieces.length_ns
        self._count = end

    def finished(self, threads: Int64, idle: Intervals) -> CausedPieces:
        """Everything taken in: the pieces of ``idle``."""
        starts, ends, owners, causes = (column[: self._count] for column in self._columns)
        return CausedPieces(Pieces(starts, ends, owners), causes, threads, idle)

    def _grown(self, column: npt.NDArray[Any], room: int) -> npt.NDArray[Any]:
        grown = np.empty(room, dtype=column.dtype)
        grown[: self._count] = column[: self._count]
        return grown


def _cuts(idle: Intervals, enders: Enders, host: Host) -> Iterator[Cut]:
    left = pieces_of(idle)
    if host.requests is not None:
        left, outside = split(left, host.requests)
        yield outside, Cause.NO_REQUEST
    recording, left = split(left, host.overheads)
    yield recording, Cause.PROFILER
    for mask, cause in (
        (enders.ramp, Cause.RAMP),
        (enders.graph_gap, Cause.GRAPH_GAP),
        (~enders.known, Cause.UNKNOWN),
    ):
        fitting = mask[left.owners]
        yield left.kept(fitting), cause
        left = left.kept(~fitting)
    yield from _around_submission(left, idle, enders, host)


def _around_submission(left: Pieces, idle: Intervals, enders: Enders, host: Host) -> Iterator[Cut]:
    begin, finish = enders.begin[left.owners], enders.finish[left.owners]
    yield from _before_submission(left.within(left.starts, begin), enders, host)
    during = left.within(begin, finish)
    blocking = enders.blocking[during.owners]
    yield during.kept(blocking), Cause.SYNC
    yield during.kept(~blocking), Cause.HOST_API
    after = left.within(finish, left.ends)
    submitted_before = enders.finish[after.owners] <= idle.starts[after.owners]
    waiting = submitted_before & enders.stream_free[after.owners]
    yield after.kept(waiting), Cause.DEPENDENCY
    yield after.kept(~waiting), Cause.LAUNCH_LATENCY


def _before_submission(left: Pieces, enders: Enders, host: Host) -> Iterator[Cut]:
    threads = enders.thread[left.owners]
    for thread in distinct(threads):
        rest = left.kept(threads == thread)
        blocked, rest = split(rest, host.inside_calls(int(thread), blocking=True))
        yield blocked, Cause.SYNC
        in_calls, rest = split(rest, host.inside_calls(int(thread), blocking=False))
        yield in_calls, Cause.HOST_API
        yield rest, Cause.HOST_WORK
