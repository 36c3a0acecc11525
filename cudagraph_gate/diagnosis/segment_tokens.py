"""Operations in the order in which one host thread submitted them, one token a submission.

A graph launch, or any other call that ran several operations, is one token: its operations count together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.segment_hashing import ALL_COLUMNS, UInt64, grouped, mixed, operation_hashes
from cudagraph_gate.diagnosis.submission import (
    BEGIN_NS,
    CALL_ROW,
    FINISH_NS,
    NO_ROW,
    SUBMITTER,
    flags,
    ints,
    submission_known,
    touches,
)
from cudagraph_gate.timeline.api_names import is_graph_launch
from cudagraph_gate.timeline.intervals import Bools, Int64, Window, int64, taken
from cudagraph_gate.timeline.table import GRAPH, Timeline


@dataclass(frozen=True)
class Lane:
    """What one thread submitted to one device, in order. All but ``rows`` and ``first`` have a place a token.

    Thread 0 holds the operations whose thread is not known, and only those: none is given to a thread that
    may not have submitted it.
    """

    process: int
    device: int
    thread: int
    rows: Int64
    """Rows of the operations frame, in order of submission."""
    first: Int64
    """Place in ``rows`` of each token's first operation, and the number of rows at the end."""
    codes: Int64
    """Equal for tokens of equal kinds and names; small and not negative."""
    begin_ns: Int64
    """When it was submitted, else when it started."""
    moment_ns: Int64
    """The same, never before the token before it."""
    end_ns: Int64
    """End of its last operation."""
    is_graph: Bools
    blocking: Bools
    """Whether the call that submitted it waits for the device."""
    is_submission_known: bool
    """Whether every operation's submission is known."""

    def __len__(self) -> int:
        return len(self.codes)

    def operations_in(self, first: Int64, beyond: Int64) -> Int64:
        """Number of operations in each slice [first, beyond) of tokens."""
        return int64(self.first[beyond] - self.first[first])

    def gaps_ns(self, operations: pd.DataFrame, tokens: Int64) -> Int64:
        """For each of ``tokens``, end of the submission before it to its own start; -1 for the first."""
        before = np.maximum(tokens - 1, 0)
        rows = self.rows[self.first[before]]
        finish = np.maximum(ints(operations, FINISH_NS)[rows], self.begin_ns[before])
        return np.where(tokens > 0, np.maximum(self.begin_ns[tokens] - finish, 0), -1)


def lanes_of(
    timeline: Timeline, operations: pd.DataFrame, window: Window, process: int, device: int
) -> Iterator[Lane]:
    """The lanes of one device of one process; operations that share no time with ``window`` are left out."""
    chosen = (operations["process"].to_numpy() == process) & (operations["device"].to_numpy() == device)
    chosen &= touches(ints(operations, "start_ns"), ints(operations, "end_ns"), window)
    rows = int64(np.flatnonzero(chosen))
    thread = taken(ints(operations, SUBMITTER), rows)
    if len(rows) and (thread == thread[0]).all():
        yield _lane(timeline, operations, rows, (process, device, int(thread[0])))
        return
    codes, threads = pd.factorize(thread)
    for code in np.argsort(threads, kind="stable"):
        where = (process, device, int(threads[code]))
        yield _lane(timeline, operations, int64(rows[codes == code]), where)


def token_hashes(operations: pd.DataFrame, lane: Lane) -> UInt64:
    """For each token, a hash of all that is compared: kinds, names, launch shapes, sizes, streams."""
    return grouped(operation_hashes(operations, lane.rows, ALL_COLUMNS), lane.first)


def _lane(timeline: Timeline, operations: pd.DataFrame, rows: Int64, where: tuple[int, int, int]) -> Lane:
    known = bool(taken(submission_known(operations), rows).all())
    order = _order(operations, rows, known)
    rows = rows if order is None else rows[order]
    correlation = taken(ints(operations, "correlation"), rows)
    first = int64(np.append(np.flatnonzero(_opens(correlation)), len(rows)))
    has_several = len(first) <= len(rows)
    head = rows[first[:-1]] if has_several else rows
    begin = taken(ints(operations, BEGIN_NS if known else "start_ns"), head)
    ends = taken(ints(operations, "end_ns"), rows)
    call = taken(ints(operations, CALL_ROW), head)
    return Lane(
        process=where[0],
        device=where[1],
        thread=where[2],
        rows=rows,
        first=first,
        codes=_codes(operations, rows, first),
        begin_ns=begin,
        moment_ns=begin if (begin[1:] >= begin[:-1]).all() else np.maximum.accumulate(begin),
        end_ns=int64(np.maximum.reduceat(ends, first[:-1])) if has_several else ends,
        is_graph=_is_graph(timeline, operations, head, call),
        blocking=_of_call(flags(timeline.calls, "blocking"), call),
        is_submission_known=known,
    )


def _opens(correlation: Int64) -> Bools:
    """Whether each operation is the first of its token."""
    opens = np.ones(len(correlation), dtype=np.bool_)
    opens[1:] = (correlation[1:] != correlation[:-1]) | (correlation[1:] == 0)
    return opens


def _order(operations: pd.DataFrame, rows: Int64, known: bool) -> Int64 | None:
    """Order of submission: by call or stamp where all are known, else by correlation, else by start.

    None where the rows are in that order.
    """
    correlation = taken(ints(operations, "correlation"), rows)
    if known:
        key = taken(ints(operations, BEGIN_NS), rows)
    elif (correlation != 0).all():
        key = correlation
    else:
        # Starts order the frame already; what one launch ran stays together.
        key = _first_place(correlation)
    tied = (key[1:] == key[:-1]) & (correlation[1:] < correlation[:-1])
    if not ((key[1:] < key[:-1]) | tied).any():
        return None
    return int64(np.lexsort((correlation, key)))


def _first_place(correlation: Int64) -> Int64:
    """For each place the first one with the same correlation; 0 has none."""
    places = np.arange(len(correlation), dtype=np.int64)
    codes = int64(pd.factorize(correlation)[0])
    first = np.full(len(correlation), len(correlation), dtype=np.int64)
    np.minimum.at(first, codes, places)
    return np.where(correlation == 0, places, first[codes])


def _codes(operations: pd.DataFrame, rows: Int64, first: Int64) -> Int64:
    kind, name = operations["kind"].cat, operations["name"].cat
    names = len(name.categories) + 1
    codes = taken(kind.codes.to_numpy(), rows).astype(np.int64)
    codes += 1
    codes *= names
    codes += taken(name.codes.to_numpy(), rows)
    codes += 1
    if len(first) > len(rows):
        return codes
    several = np.diff(first) > 1
    sums = np.add.reduceat(mixed(codes.astype(np.uint64)), first[:-1])[several]
    tokens = codes[first[:-1]]
    tokens[several] = (len(kind.categories) + 1) * names + np.unique(sums, return_inverse=True)[1]
    return int64(tokens)


def _is_graph(timeline: Timeline, operations: pd.DataFrame, head: Int64, call: Int64) -> Bools:
    found = np.asarray(taken(ints(operations, "graph"), head) != 0, dtype=np.bool_)
    names = timeline.calls["name"].cat
    launches = np.array([is_graph_launch(str(name)) for name in names.categories] + [False], dtype=np.bool_)
    if launches.any():
        found |= _of_call(launches[names.codes.to_numpy()], call)
    kinds = operations["kind"].cat
    if GRAPH in kinds.categories:
        found |= kinds.codes.to_numpy()[head] == kinds.categories.get_loc(GRAPH)
    return found


def _of_call(values: Bools, call: Int64) -> Bools:
    """Value of each token's call; false where no call is known."""
    if not values.any():
        return np.zeros(len(call), dtype=np.bool_)
    return np.asarray(values[call] & (call != NO_ROW), dtype=np.bool_)
