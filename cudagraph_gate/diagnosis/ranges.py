"""What the user's own ranges hold: wall time, GPU time, submitted operations and idle time of each name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.causes import CAUSES
from cudagraph_gate.diagnosis.idle import IdleOfDevice
from cudagraph_gate.diagnosis.idle_inside import NO_DEVICE, by_cause, idle_inside, most_wasted
from cudagraph_gate.diagnosis.submission import (
    BEGIN_NS,
    CALL_ROW,
    ints,
    submission_known,
    touches,
)
from cudagraph_gate.model import IdleCauses, NotMeasured, RangeSummary
from cudagraph_gate.timeline.intervals import Bools, Int64, Window, int64, overlap_ns, union
from cudagraph_gate.timeline.table import REQUEST_DOMAIN, Timeline
from cudagraph_gate.timeline.texts import coded

RUNNING_NUMBER: Final = re.compile(r"#\d+$")
MOST_RANGES: Final = 50
"""Names kept, longest wall time first: annotated frameworks have thousands, a person reads the first few."""
RECORDERS_DOMAINS: Final = ("cpu_op", "os_runtime")
"""Ranges that a recorder adds by itself, around each operator or system call. They would crowd out those that
the user set, so they are shown only where there are no others."""
WORK: Final = ["correlation", "start_ns", "end_ns", CALL_ROW, BEGIN_NS, "queued_ns", "submitted_ns"]
"""The columns of operations that are read: copies of whole frames would double the memory."""


@dataclass(frozen=True)
class _Part:
    """The ranges of one process, with the place of their name among the names that are kept."""

    name: Int64
    starts: Int64
    ends: Int64

    def sums(self, values: Int64, names: int) -> Int64:
        """``values`` (one a range, or one row a range) added up by name."""
        totals = np.zeros((names, *values.shape[1:]), dtype=np.int64)
        np.add.at(totals, self.name, values)
        return totals


@dataclass
class _Totals:
    """Sums by name over all processes."""

    count: Int64
    wall_ns: Int64
    busy_ns: Int64
    operations: Int64
    submissions: Int64
    idle_ns: Int64
    """By name and cause."""
    measured: Bools
    """Whether a device was there whose idle time counts for the name."""
    unmeasured: dict[int, NotMeasured]
    """Names that have ranges in a process without a busy device, or whose idle time is not measurable."""


def ranges_of(
    timeline: Timeline, operations: pd.DataFrame, window: Window, devices: Sequence[IdleOfDevice]
) -> tuple[RangeSummary, ...]:
    """User ranges that share time with ``window``, by domain and name, longest wall time first.

    A range counts whole, also where it reaches beyond the window; only idle is known inside the window alone.
    Nested ranges each count their own time.
    """
    ranges = _shown(timeline.ranges, window)
    if ranges.empty:
        return ()
    codes, order = _names_by_wall_time(ranges)
    place = np.full(len(order), -1, dtype=np.int64)
    kept = order[:MOST_RANGES]
    place[kept] = np.arange(len(kept))
    totals = _totals(ranges, place[codes], operations, window, devices, len(kept))
    first = np.unique(codes, return_index=True)[1][kept]
    labels = ranges[["name", "domain"]].iloc[first].astype(str)
    return tuple(
        _summary(totals, row, name, domain)
        for row, (name, domain) in enumerate(labels.itertuples(index=False, name=None))
    )


def _shown(ranges: pd.DataFrame, window: Window) -> pd.DataFrame:
    touching = touches(ints(ranges, "start_ns"), ints(ranges, "end_ns"), window)
    ranges = ranges[touching & (ranges["domain"] != REQUEST_DOMAIN).to_numpy()]
    chosen: pd.DataFrame = ranges[~ranges["domain"].isin(RECORDERS_DOMAINS)]
    return _without_numbers(ranges if chosen.empty else chosen)


def _without_numbers(ranges: pd.DataFrame) -> pd.DataFrame:
    """``ProfilerStep#12`` is a ``ProfilerStep``: a name for each step would crowd out all others."""
    names = ranges["name"].cat
    plain = [RUNNING_NUMBER.sub("", str(name)) for name in names.categories]
    return ranges.assign(name=coded(names.codes.to_numpy(), plain))


def _names_by_wall_time(ranges: pd.DataFrame) -> tuple[Int64, Int64]:
    """A code for each range's domain and name, and the codes, longest sum of durations first."""
    domain, name = _alphabetical(ranges["domain"]), _alphabetical(ranges["name"])
    codes = int64(np.unique(domain * (int(np.max(name)) + 1) + name, return_inverse=True)[1])
    wall_ns = np.zeros(int(np.max(codes)) + 1, dtype=np.int64)
    np.add.at(wall_ns, codes, ints(ranges, "end_ns") - ints(ranges, "start_ns"))
    return codes, int64(np.argsort(-wall_ns, kind="stable"))


def _alphabetical(column: pd.Series) -> Int64:
    """Codes in the order of the names, so that names of equal time come in the same order each time."""
    names = column.cat.categories.astype(str).to_numpy(dtype=object)
    rank = np.empty(len(names), dtype=np.int64)
    rank[np.argsort(names, kind="stable")] = np.arange(len(names))
    return rank[int64(column.cat.codes)]


def _totals(
    ranges: pd.DataFrame,
    place: Int64,
    operations: pd.DataFrame,
    window: Window,
    devices: Sequence[IdleOfDevice],
    names: int,
) -> _Totals:
    kept = place >= 0
    ranges, place = ranges[kept], place[kept]
    totals = _Totals(
        **{name: np.zeros(names, dtype=np.int64) for name in _COUNTED},
        idle_ns=np.zeros((names, len(CAUSES)), dtype=np.int64),
        measured=np.zeros(names, dtype=np.bool_),
        unmeasured={},
    )
    processes = ints(ranges, "process")
    for process in np.unique(processes):
        own = processes == process
        part = _Part(place[own], ints(ranges, "start_ns")[own], ints(ranges, "end_ns")[own])
        _add_work(totals, part, operations[WORK][ints(operations, "process") == process])
        _add_idle(totals, part, most_wasted(devices, int(process)), window)
    return totals


_COUNTED: Final = ("count", "wall_ns", "busy_ns", "operations", "submissions")


def _add_work(totals: _Totals, part: _Part, operations: pd.DataFrame) -> None:
    starts, ends, names = part.starts, part.ends, len(totals.count)
    busy = union(ints(operations, "start_ns"), ints(operations, "end_ns"))
    known = submission_known(operations)
    moments = ints(operations, BEGIN_NS)[known]
    totals.count += np.bincount(part.name, minlength=names)
    totals.wall_ns += part.sums(ends - starts, names)
    totals.busy_ns += part.sums(overlap_ns(busy, starts, ends), names)
    totals.operations += part.sums(_count_inside(np.sort(moments, kind="stable"), starts, ends), names)
    first = _first_of_launch(ints(operations, "correlation")[known])
    submitted = np.sort(moments[first], kind="stable")
    totals.submissions += part.sums(_count_inside(submitted, starts, ends), names)


def _first_of_launch(correlation: Int64) -> Bools:
    """One row of each correlation of a process; an operation without one is a submission of its own."""
    if (correlation[1:] > correlation[:-1]).all():
        return np.ones(len(correlation), dtype=np.bool_)
    order = np.argsort(correlation, kind="stable")
    first = np.zeros(len(correlation), dtype=np.bool_)
    first[order] = np.append(True, correlation[order][1:] != correlation[order][:-1])
    return np.asarray(first | (correlation == 0), dtype=np.bool_)


def _count_inside(moments: Int64, starts: Int64, ends: Int64) -> Int64:
    first = np.searchsorted(moments, starts, side="left")
    beyond = np.searchsorted(moments, ends, side="left")
    return int64(np.maximum(beyond - first, 0))


def _add_idle(totals: _Totals, part: _Part, device: IdleOfDevice | NotMeasured, window: Window) -> None:
    if isinstance(device, NotMeasured):
        totals.unmeasured |= dict.fromkeys(np.unique(part.name).tolist(), device)
        return
    starts, ends = np.maximum(part.starts, window[0]), np.minimum(part.ends, window[1])
    totals.idle_ns += part.sums(idle_inside(device, starts, ends), len(totals.count))
    totals.measured[part.name] = True


def _summary(totals: _Totals, row: int, name: str, domain: str) -> RangeSummary:
    idle: IdleCauses | NotMeasured = by_cause(totals.idle_ns[row])
    missing = totals.unmeasured.get(row)
    if missing is not None and (missing != NO_DEVICE or not totals.measured[row]):
        idle = missing
    return RangeSummary(
        name=name,
        domain=domain,
        count=int(totals.count[row]),
        wall_ns=int(totals.wall_ns[row]),
        busy_ns=int(totals.busy_ns[row]),
        operations=int(totals.operations[row]),
        submissions=int(totals.submissions[row]),
        idle=idle,
    )
