"""Cut idle intervals into pieces, so that each idle nanosecond gets exactly one cause.

The rules and their order are those of ``docs/definitions.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.intervals import Bools, Int64, Intervals, Pieces, pieces_of, split, union
from cudagraph_gate.diagnosis.submission import flags, ints
from cudagraph_gate.model import Cause

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

    def inside_calls(self, thread: int, *, blocking: bool) -> Intervals:
        """Time inside (non-)blocking calls of a thread; thread 0, which is not known, matches all."""
        chosen = self.calls_of(thread)
        chosen = chosen[flags(chosen, "blocking") == blocking]
        return union(ints(chosen, "start_ns"), ints(chosen, "end_ns"))

    def calls_of(self, thread: int) -> pd.DataFrame:
        """The calls of a thread, as far as threads are known."""
        return _of_thread(self.calls, thread)

    def ranges_of(self, thread: int) -> pd.DataFrame:
        """The user ranges of a thread, as far as threads are known."""
        return _of_thread(self.ranges, thread)


def _of_thread(frame: pd.DataFrame, thread: int) -> pd.DataFrame:
    threads = ints(frame, "thread")
    return frame if thread == 0 else frame[(threads == thread) | (threads == 0)]


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
    causes: Int64

    def by_interval(self, count: int) -> Int64:
        """ns by idle interval (row) and cause (column)."""
        table = np.zeros((count, len(CAUSES)), dtype=np.int64)
        np.add.at(table, (self.pieces.owners, self.causes), self.pieces.ends - self.pieces.starts)
        return table

    def of(self, causes: tuple[Cause, ...]) -> Intervals:
        """The time that has one of ``causes``."""
        chosen = self.pieces.kept(np.isin(self.causes, [CAUSES.index(cause) for cause in causes]))
        return union(chosen.starts, chosen.ends)


def attribute(idle: Intervals, enders: Enders, host: Host) -> CausedPieces:
    """Give each nanosecond of ``idle`` its cause."""
    cuts = list(_cuts(idle, enders, host))
    pieces = Pieces(
        np.concatenate([piece.starts for piece, _ in cuts]),
        np.concatenate([piece.ends for piece, _ in cuts]),
        np.concatenate([piece.owners for piece, _ in cuts]),
    )
    codes = [np.full(len(piece.starts), CAUSES.index(cause), dtype=np.int64) for piece, cause in cuts]
    return CausedPieces(pieces, np.concatenate(codes))


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
        chosen = mask[left.owners]
        yield left.kept(chosen), cause
        left = left.kept(~chosen)
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
    for thread in np.unique(threads):
        rest = left.kept(threads == thread)
        blocked, rest = split(rest, host.inside_calls(int(thread), blocking=True))
        yield blocked, Cause.SYNC
        in_calls, rest = split(rest, host.inside_calls(int(thread), blocking=False))
        yield in_calls, Cause.HOST_API
        yield rest, Cause.HOST_WORK
