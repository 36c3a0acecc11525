"""Which host call submitted which operation, and where: the join that every analysis here starts from."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.intervals import Bools, Int64, Window, int64
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

GRAPH_LAUNCH: Final = "GraphLaunch"
"""Part of the name of every API call that launches a graph, in the driver and in the runtime API."""


def ints(frame: pd.DataFrame, name: str) -> Int64:
    """A column as int64."""
    return frame[name].to_numpy(dtype=np.int64)


def flags(frame: pd.DataFrame, name: str) -> Bools:
    """A column as booleans."""
    return frame[name].to_numpy(dtype=np.bool_)


def operations_with_submission(timeline: Timeline) -> pd.DataFrame:
    """The operations with the derived columns of this module, in order of start, ties by correlation.

    Where nested calls (runtime and driver API) carry the same correlation, the outermost one counts.
    """
    operations, calls = timeline.operations, timeline.calls
    operations = operations.sort_values(["start_ns", "correlation"], kind="stable", ignore_index=True)
    row = _call_rows(operations, calls)
    known = row != NO_ROW
    queued, submitted = ints(operations, "queued_ns"), ints(operations, "submitted_ns")
    begin = _where_known(known, ints(calls, "start_ns"), row, np.where(queued != 0, queued, submitted))
    finish = _where_known(known, ints(calls, "end_ns"), row, np.where(submitted != 0, submitted, queued))
    thread = _where_known(known, ints(calls, "thread"), row, np.zeros(len(row), dtype=np.int64))
    return operations.assign(
        **{CALL_ROW: row, BEGIN_NS: begin, FINISH_NS: np.maximum(begin, finish), SUBMITTER: thread}
    )


def submission_known(operations: pd.DataFrame) -> Bools:
    """Whether a submission call or a stamp tells when the operation was submitted."""
    stamped = (ints(operations, "queued_ns") != 0) | (ints(operations, "submitted_ns") != 0)
    return np.asarray((ints(operations, CALL_ROW) != NO_ROW) | stamped, dtype=np.bool_)


def launch_keys(*frames: pd.DataFrame) -> list[Int64]:
    """For each frame, one key a row that is equal where process and correlation are equal."""
    process = np.concatenate([ints(frame, "process") for frame in frames])
    correlation = np.concatenate([ints(frame, "correlation") for frame in frames])
    process_codes = int64(np.unique(process, return_inverse=True)[1])
    names, codes = np.unique(correlation, return_inverse=True)
    keys = process_codes * len(names) + codes
    return np.split(keys, np.cumsum([len(frame) for frame in frames])[:-1])


def touches(starts: Int64, ends: Int64, window: Window) -> Bools:
    """Whether each interval shares time with the window; one of no length counts where it lies."""
    long = (starts < ends) & (starts < window[1]) & (ends > window[0])
    point = (starts == ends) & (starts >= window[0]) & (starts <= window[1])
    return np.asarray(long | point, dtype=np.bool_)


def outermost(calls: pd.DataFrame) -> pd.DataFrame:
    """Calls that lie inside no other call of the same thread, in time order within each thread."""
    ordered = calls.sort_values(
        ["process", "thread", "start_ns", "end_ns"], ascending=[True, True, True, False]
    )
    if ordered.empty:
        return ordered
    reach = ordered.groupby(["process", "thread"], sort=False)["end_ns"].cummax().to_numpy(dtype=np.int64)
    same = ordered[["process", "thread"]].to_numpy(dtype=np.int64)
    first = np.append(True, (same[1:] != same[:-1]).any(axis=1))
    after = np.append(True, ints(ordered, "start_ns")[1:] >= reach[:-1])
    kept: pd.DataFrame = ordered[first | after]
    return kept


def _call_rows(operations: pd.DataFrame, calls: pd.DataFrame) -> Int64:
    wanted, given = launch_keys(operations, calls)
    order = np.lexsort((-ints(calls, "end_ns"), ints(calls, "start_ns"), given))
    order = order[ints(calls, "correlation")[order] != 0]
    keys, first = np.unique(given[order], return_index=True)
    if not len(keys):
        return np.full(len(operations), NO_ROW, dtype=np.int64)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return int64(np.where(keys[place] == wanted, order[first[place]], NO_ROW))


def _where_known(known: Bools, values: Int64, row: Int64, otherwise: Int64) -> Int64:
    result = otherwise.copy()
    result[known] = values[row[known]]
    return int64(result)
