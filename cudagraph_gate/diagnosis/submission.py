"""Which host call submitted which operation, and where: the join that every analysis here starts from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from cudagraph_gate.timeline.families import call_order, constant, operation_order
from cudagraph_gate.timeline.intervals import Bools, Codes, Int64, Window, blocks, int64, reach_before, taken
from cudagraph_gate.timeline.table import Timeline

CALL_ROW: Final = "call_row"
"""Row of the submission call in the calls frame; NO_ROW if it is not known."""
BEGIN_NS: Final = "submission_begin_ns"
"""Start of the submission call, else the ``queued`` stamp, else the ``submitted`` stamp, else 0."""
FINISH_NS: Final = "submission_finish_ns"
"""End of the submission call, else the ``submitted`` stamp, else the ``queued`` stamp, else 0."""
SUBMITTER: Final = "submitting_thread"
"""Thread of the submission call; 0 if it is not known."""
NO_ROW: Final = -1

TABLE_SPAN: Final = 8
"""Calls are looked up in a table of correlations where it has at most so many places (of 4 bytes) a row.
Recorders count correlations up, so it nearly always has, and a table is many times faster than a sort."""
LOW: Final = 2**16
"""Correlations that begin at so much or less are keys as they are: so many places of a table cost nothing."""
LARGEST_KEY: Final = 2**62
"""Beyond it a key made of process and correlation would not fit 64 bits with its sign."""


def ints(frame: pd.DataFrame, name: str) -> Int64:
    """A column as int64."""
    return frame[name].to_numpy(dtype=np.int64)


def flags(frame: pd.DataFrame, name: str) -> Bools:
    """A column as booleans."""
    return frame[name].to_numpy(dtype=np.bool_)


def chosen(frame: pd.DataFrame, mask: Bools) -> pd.DataFrame:
    """The rows that ``mask`` selects; the frame itself, not a copy, where that is all of them."""
    kept: pd.DataFrame = frame if mask.all() else frame[mask]
    return kept


def distinct(values: npt.NDArray[Any]) -> Int64:
    """The values that occur, in order; cheap where there is only one."""
    if len(values) and values.min() == values.max():
        return int64(values[:1])
    return int64(np.sort(pd.unique(values)))


def group_codes(frame: pd.DataFrame, names: Sequence[str]) -> Codes:
    """One small number a row, in the order of the columns' values and equal where they are all equal."""
    codes: Codes = constant(0, "int16", len(frame))
    for name in names:
        values = distinct(frame[name].to_numpy())
        if len(values) > 1:
            found = _places(values, frame[name].to_numpy())
            if codes.any():
                pairs = codes * np.int64(len(values)) + found
                found = np.asarray(pd.factorize(pairs, sort=True)[0], dtype=np.int64)
            codes = found
    return codes


def _places(values: Int64, column: npt.NDArray[Any]) -> Codes:
    """The place of each value of a column in ``values``, which are in order and hold it."""
    places: Codes = np.empty(len(column), dtype="int16" if len(values) < 2**15 else "int64")
    for part in blocks(len(column)):
        places[part] = np.searchsorted(values, column[part])
    return places


def operations_with_submission(timeline: Timeline) -> pd.DataFrame:
    """The operations with the derived columns of this module, in order of start, ties by correlation.

    Where nested calls (runtime and driver API) carry the same correlation, the outermost one counts. Columns
    are shared with the timeline where its operations are in that order already, as :func:`load` gives them.
    """
    operations, calls = timeline.operations, timeline.calls
    order = operation_order(operations)
    if order is not None:
        operations = operations.take(order)
    row = _call_rows(operations, calls)
    columns = {str(name): operations[name].array for name in operations.columns}
    return pd.DataFrame(columns | _submission(operations, calls, row), copy=False)


def _submission(operations: pd.DataFrame, calls: pd.DataFrame, row: Codes) -> dict[str, npt.NDArray[Any]]:
    known = np.asarray(row != NO_ROW, dtype=np.bool_)
    if known.all() and len(known):
        begin, finish = taken(ints(calls, "start_ns"), row), taken(ints(calls, "end_ns"), row)
    else:
        queued, submitted = ints(operations, "queued_ns"), ints(operations, "submitted_ns")
        begin = _stamp(queued, submitted)
        finish = np.maximum(begin, _stamp(submitted, queued))
        if known.any():
            begin = _where_known(known, ints(calls, "start_ns"), row, begin)
            finish = _where_known(known, ints(calls, "end_ns"), row, finish)
    return {
        CALL_ROW: row,
        BEGIN_NS: begin,
        FINISH_NS: finish if (begin <= finish).all() else np.maximum(begin, finish),
        SUBMITTER: _submitters(calls, row, known),
    }


def _stamp(wanted: Int64, otherwise: Int64) -> Int64:
    there = wanted != 0
    return wanted if there.all() else int64(np.where(there, wanted, otherwise))


def _submitters(calls: pd.DataFrame, row: Codes, known: Bools) -> Int64:
    """The submitting threads; one value that stands for all rows where there is only one."""
    threads = distinct(calls["thread"].to_numpy()) if known.any() else int64([0])
    if not known.any() or (len(threads) == 1 and known.all()):
        return int64(np.broadcast_to(threads, len(row)))
    return _where_known(known, ints(calls, "thread"), row, np.zeros(len(row), dtype=np.int64))


def started_early(timeline: Timeline, operations: pd.DataFrame) -> int:
    """How many operations start before the call that launched them, beyond the recorder's resolution."""
    called = ints(operations, CALL_ROW) != NO_ROW
    early = ints(operations, "start_ns") < ints(operations, BEGIN_NS) - timeline.meta.resolution_ns
    return int((called & early).sum())


def submission_known(operations: pd.DataFrame) -> Bools:
    """Whether a submission call or a stamp tells when the operation was submitted."""
    called: Bools = operations[CALL_ROW].to_numpy() != NO_ROW
    if called.all():
        return called
    stamped = (ints(operations, "queued_ns") != 0) | (ints(operations, "submitted_ns") != 0)
    return np.asarray(called | stamped, dtype=np.bool_)


def launch_keys(*frames: pd.DataFrame) -> list[Int64]:
    """For each frame, one key a row, at least 0, that is equal where process and correlation are equal."""
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        return [int64([]) for _ in frames]
    lowest = min(int(frame["correlation"].to_numpy().min()) for frame in filled)
    lowest = 0 if 0 <= lowest <= LOW else lowest
    span = max(int(frame["correlation"].to_numpy().max()) for frame in filled) - lowest + 1
    processes = distinct(np.concatenate([distinct(frame["process"].to_numpy()) for frame in filled]))
    if len(processes) * span > LARGEST_KEY:
        names = np.unique(np.concatenate([ints(frame, "correlation") for frame in filled]))
        return [_key(frame, processes, len(names), _place(frame, "correlation", names)) for frame in frames]
    return [_key(frame, processes, span, _above(ints(frame, "correlation"), lowest)) for frame in frames]


def _above(correlation: Int64, lowest: int) -> Int64:
    return correlation - lowest if lowest else correlation


def _key(frame: pd.DataFrame, processes: Int64, span: int, correlation: Int64) -> Int64:
    return correlation if len(processes) == 1 else _place(frame, "process", processes) * span + correlation


def _place(frame: pd.DataFrame, name: str, values: Int64) -> Int64:
    return int64(np.searchsorted(values, ints(frame, name)))


def touches(starts: Int64, ends: Int64, window: Window) -> Bools:
    """Whether each interval shares time with the window; one of no length counts where it lies."""
    found = np.empty(len(starts), dtype=np.bool_)
    for part in blocks(len(starts)):
        start, end = starts[part], ends[part]
        long = (start < end) & (start < window[1]) & (end > window[0])
        found[part] = long | ((start == end) & (start >= window[0]) & (start <= window[1]))
    return found


def outermost(calls: pd.DataFrame) -> pd.DataFrame:
    """Calls that lie inside no other call of the same thread, in time order within each thread."""
    threads, starts, ends = (
        group_codes(calls, ("process", "thread")),
        ints(calls, "start_ns"),
        ints(calls, "end_ns"),
    )
    order = int64(np.lexsort((-ends, starts, threads)))
    outside = starts[order] >= reach_before(threads[order], ends[order])
    kept: pd.DataFrame = calls.iloc[order[outside]]
    return kept


def _call_rows(operations: pd.DataFrame, calls: pd.DataFrame) -> Codes:
    """For each operation the row of its call: with its process and correlation the first, then longest."""
    numbered = ints(calls, "correlation") != 0
    if not numbered.any() or not len(operations):
        return np.broadcast_to(np.int32(NO_ROW), len(operations))
    wanted, given = launch_keys(operations, calls)
    order = call_order(calls)
    rows = np.arange(len(calls), dtype=np.int32) if order is None else order.astype(np.int32)
    if not numbered.all():
        rows = rows[numbered[rows]]
    given = given if len(rows) == len(given) and order is None else given[rows]
    return _first_rows(wanted, given, rows)


def _first_rows(wanted: Int64, given: Int64, rows: Codes) -> Codes:
    """For each wanted key the row of its first place in ``given``, else NO_ROW."""
    places = 1 + max(int(np.max(wanted)), int(np.max(given)))
    if places <= TABLE_SPAN * (len(wanted) + len(given)):
        table = np.full(places, NO_ROW, dtype=np.int32)
        table[given[::-1]] = rows[::-1]  # of equal keys the last one written stays: the first
        found: Codes = table[wanted]
        return found
    keys, first = np.unique(given, return_index=True)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, rows[first[place]], np.int32(NO_ROW))


def _where_known(known: Bools, values: Int64, row: Codes, otherwise: Int64) -> Int64:
    result = otherwise.copy()
    result[known] = values[row[known]]
    return result
