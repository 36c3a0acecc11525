"""Launch phases, as Nsight Systems cuts the way of a kernel: the call, the queue, the kernel."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.intervals import Int64
from cudagraph_gate.diagnosis.submission import CALL_ROW, NO_ROW, ints
from cudagraph_gate.model import Distribution, LaunchPhases, NotMeasured
from cudagraph_gate.stats import distribution
from cudagraph_gate.timeline.table import KERNEL


def phases_of(submitted: pd.DataFrame, calls: pd.DataFrame, level: str) -> LaunchPhases | NotMeasured:
    """Phases of the launches among ``submitted``: operations with a known call, in order of start.

    A launch that started several operations counts once, by the first to start: for a graph launch that is
    its first node. A light recording knows stamps, but neither the start nor the end of a call.
    """
    rows = np.flatnonzero((submitted["kind"] == KERNEL).to_numpy() | (ints(submitted, "graph") != 0))
    if not len(rows):
        return NotMeasured(reason=f"no launch call is recorded in the window (level {level})")
    call, kernel = _first_of_call(ints(submitted, CALL_ROW)[rows], rows, len(calls))
    starts, returned = ints(submitted, "start_ns")[kernel], ints(calls, "end_ns")[call]
    queued = starts >= returned
    return LaunchPhases(
        launches=len(call),
        api=distribution(returned - ints(calls, "start_ns")[call]),
        queue=_queue((starts - returned)[queued]),
        queued=int(queued.sum()),
        kernel=distribution(ints(submitted, "end_ns")[kernel] - starts),
    )


def _first_of_call(call: Int64, rows: Int64, count: int) -> tuple[Int64, Int64]:
    """Each call once, with the first of its rows. Written from the last on, the first row is what stays."""
    first = np.full(count, NO_ROW, dtype=np.int64)
    first[call[::-1]] = rows[::-1]
    called = np.flatnonzero(first != NO_ROW)
    return called, first[called]


def _queue(waited: Int64) -> Distribution | NotMeasured:
    if not len(waited):
        return NotMeasured(reason="every kernel started before its launch call returned")
    return distribution(waited)
