"""Launch phases, as Nsight Systems cuts the way of a kernel: the call, the queue, the kernel."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.submission import CALL_ROW, NO_ROW, ints
from cudagraph_gate.model import Distribution, LaunchPhases, NotMeasured
from cudagraph_gate.stats import distribution
from cudagraph_gate.timeline.intervals import Codes, Int64, taken
from cudagraph_gate.timeline.table import KERNEL


def phases_of(submitted: pd.DataFrame, calls: pd.DataFrame, level: str) -> LaunchPhases | NotMeasured:
    """Phases of the launches among ``submitted``: operations with a known call, in order of start.

    A launch that started several operations counts once, by the first to start: for a graph launch that is
    its first node. A light recording knows stamps, but neither the start nor the end of a call.
    """
    is_launch = (submitted["kind"] == KERNEL).to_numpy() | (ints(submitted, "graph") != 0)
    rows = np.flatnonzero(is_launch).astype(np.int32)
    if not len(rows):
        return NotMeasured(reason=f"no launch call is recorded in the window (level {level})")
    call, kernel = _first_of_call(taken(submitted[CALL_ROW].to_numpy(), rows), rows, len(calls))
    starts, returned = taken(ints(submitted, "start_ns"), kernel), taken(ints(calls, "end_ns"), call)
    waited = starts - returned
    waited = waited if (waited >= 0).all() else waited[waited >= 0]
    return LaunchPhases(
        launches=len(call),
        api=distribution(returned - taken(ints(calls, "start_ns"), call)),
        queue=_queue(waited),
        queued=len(waited),
        kernel=distribution(taken(ints(submitted, "end_ns"), kernel) - starts),
    )


def _first_of_call(call: Codes, rows: Codes, count: int) -> tuple[Codes, Codes]:
    """Each call once, with the first of its rows. Written from the last on, the first row is what stays."""
    if (call[1:] > call[:-1]).all():
        return call, rows
    first = np.full(count, NO_ROW, dtype=np.int32)
    first[call[::-1]] = rows[::-1]
    called = np.flatnonzero(first != NO_ROW).astype(np.int32)
    return called, first[called]


def _queue(waited: Int64) -> Distribution | NotMeasured:
    if not len(waited):
        return NotMeasured(reason="every kernel started before its launch call returned")
    return distribution(waited)
