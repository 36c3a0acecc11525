"""What the user's own NVTX ranges hold: wall time, GPU time and submitted operations of each name."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.intervals import Int64, Window, overlap_ns, union
from cudagraph_gate.diagnosis.submission import BEGIN_NS, ints, submission_known, touches
from cudagraph_gate.model import RangeSummary
from cudagraph_gate.timeline.table import REQUEST_DOMAIN, Timeline

MOST_RANGES: Final = 50
"""Names kept, longest wall time first: annotated frameworks have thousands, a person reads the first few."""


def ranges_of(timeline: Timeline, operations: pd.DataFrame, window: Window) -> tuple[RangeSummary, ...]:
    """User ranges that share time with ``window``, by domain and name, longest wall time first.

    A range counts whole, also where it reaches beyond the window. Nested ranges each count their own time.
    """
    ranges = timeline.ranges[timeline.ranges["domain"] != REQUEST_DOMAIN]
    ranges = ranges[touches(ints(ranges, "start_ns"), ints(ranges, "end_ns"), window)]
    measured = [
        _measure(group, operations[operations["process"] == process])
        for process, group in ranges.groupby("process", sort=True)
    ]
    if not measured:
        return ()
    names = pd.concat(measured).groupby(["domain", "name"], sort=True)
    totals = names.sum().assign(count=names.size()).reset_index()
    longest = totals.sort_values("wall_ns", ascending=False, kind="stable").head(MOST_RANGES)
    return tuple(
        RangeSummary(name=str(row["name"]), domain=str(row["domain"]), **_whole_numbers(row))
        for row in longest.to_dict("records")
    )


def _whole_numbers(row: dict[Hashable, Any]) -> dict[str, int]:
    return {name: int(row[name]) for name in ("count", "wall_ns", "busy_ns", "operations")}


def _measure(ranges: pd.DataFrame, operations: pd.DataFrame) -> pd.DataFrame:
    """Wall, busy and operations of each range of one process."""
    starts, ends = ints(ranges, "start_ns"), ints(ranges, "end_ns")
    busy = union(ints(operations, "start_ns"), ints(operations, "end_ns"))
    submitted = np.sort(ints(operations, BEGIN_NS)[submission_known(operations)])
    return pd.DataFrame(
        {
            "domain": ranges["domain"].astype(str).to_numpy(),
            "name": ranges["name"].astype(str).to_numpy(),
            "wall_ns": ends - starts,
            "busy_ns": overlap_ns(busy, starts, ends),
            "operations": _count_inside(submitted, starts, ends),
        }
    )


def _count_inside(moments: Int64, starts: Int64, ends: Int64) -> Int64:
    first = np.searchsorted(moments, starts, side="left")
    beyond = np.searchsorted(moments, ends, side="right")
    return np.asarray(beyond - first, dtype=np.int64)
