"""The recorded requests: what one of them runs, and whether all run the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.causes import CAUSES
from cudagraph_gate.diagnosis.idle import IdleOfDevice, why_not_measurable
from cudagraph_gate.diagnosis.idle_inside import NO_DEVICE, by_cause, idle_inside, most_wasted
from cudagraph_gate.diagnosis.submission import (
    BEGIN_NS,
    flags,
    ints,
    launch_keys,
    outermost,
    submission_known,
)
from cudagraph_gate.model import SUBMISSION_CAUSES, IdleCauses, Measured, NotMeasured, Requests
from cudagraph_gate.stats import distribution
from cudagraph_gate.timeline.intervals import (
    Bools,
    Int64,
    Window,
    expand,
    grouped_union_ns,
    int64,
    overlap_ns,
)
from cudagraph_gate.timeline.table import KERNEL, Timeline

SHAPE_COLUMNS: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
SIGNATURE_COLUMNS: Final = ("kind", "name", *SHAPE_COLUMNS, "bytes", "stream")
"""Two operations with equal values here are the same step of a request's sequence."""


@dataclass(frozen=True)
class _Members:
    """Operations by the request that submitted them; ``request`` and ``row`` are pairs."""

    request: Int64
    row: Int64


def overlapping(marked: pd.DataFrame) -> bool:
    """Whether any two of the requests (in time order) share time."""
    reach = np.maximum.accumulate(ints(marked, "end_ns"))
    return bool((ints(marked, "start_ns")[1:] < reach[:-1]).any())


def requests_of(
    timeline: Timeline, operations: pd.DataFrame, window: Window, devices: Sequence[IdleOfDevice]
) -> Requests | NotMeasured:
    """Medians over the requests that lie whole in ``window``.

    ``operations`` come from ``operations_with_submission``.
    """
    marked = timeline.requests()
    if marked.empty:
        return NotMeasured(reason="no request is marked in the timeline")
    starts, ends = ints(marked, "start_ns"), ints(marked, "end_ns")
    marked = marked[(starts >= window[0]) & (ends <= window[1])].reset_index(drop=True)
    members = _members(marked, operations)
    if marked.empty or not len(members.row):
        return NotMeasured(reason="no marked request of the window submitted a GPU operation")
    own = operations.iloc[members.row]
    count = len(marked)
    differing = _differing(members.request, own, count)
    return Requests(
        count=count,
        wall=distribution(ints(marked, "end_ns") - ints(marked, "start_ns")),
        busy_ns=_median(grouped_union_ns(members.request, ints(own, "start_ns"), ints(own, "end_ns"), count)),
        operations=_median(np.bincount(members.request, minlength=count)),
        submissions=_median(_submissions(members.request, own, count)),
        blocking_calls=_median(_blocking_calls(timeline, marked, members, own)),
        kernels=_kernels(members.request, own, count),
        stable=differing == 0,
        unstable_share=differing / count,
        submission_idle_ns=_submission_idle_ns(timeline, marked, devices),
        idle=_idle(marked, devices),
    )


def _median(values: Int64) -> int:
    return round(float(np.median(values)))


def _members(marked: pd.DataFrame, operations: pd.DataFrame) -> _Members:
    """An operation belongs to a request of its process by the time of its submission, else of its start."""
    moments = np.where(submission_known(operations), ints(operations, BEGIN_NS), ints(operations, "start_ns"))
    request, row = [int64([])], [int64([])]
    for process in np.unique(ints(marked, "process")):
        own_requests = np.flatnonzero(ints(marked, "process") == process)
        own_rows = np.flatnonzero(ints(operations, "process") == process)
        own_rows = own_rows[np.argsort(moments[own_rows], kind="stable")]
        inside = _places_inside(moments[own_rows], marked.iloc[own_requests])
        request.append(own_requests[inside[0]])
        row.append(own_rows[inside[1]])
    return _Members(np.concatenate(request), np.concatenate(row))


def _places_inside(moments: Int64, marked: pd.DataFrame) -> tuple[Int64, Int64]:
    """Pairs (request, place in the sorted ``moments``) with the moment in the request.

    The end is left out: on a coarse or virtual clock the next request may begin at that very moment.
    """
    first = np.searchsorted(moments, ints(marked, "start_ns"), side="left")
    beyond = np.searchsorted(moments, ints(marked, "end_ns"), side="left")
    return expand(int64(first), int64(beyond - first))


def _submissions(request: Int64, own: pd.DataFrame, count: int) -> Int64:
    """Distinct correlations; an operation without one counts for itself."""
    (keys,) = launch_keys(own)
    alone = ints(own, "correlation") == 0
    keys = np.where(alone, -1 - np.arange(len(keys)), keys)
    pairs = np.unique(np.stack([request, keys]), axis=1)
    return int64(np.bincount(pairs[0], minlength=count))


def _blocking_calls(timeline: Timeline, marked: pd.DataFrame, members: _Members, own: pd.DataFrame) -> Int64:
    """Blocking calls that start in each request, without the one that ends it."""
    calls = timeline.calls
    calls = outermost(calls[flags(calls, "blocking")]).sort_values("start_ns", kind="stable")
    totals = np.zeros(len(marked), dtype=np.int64)
    last_submission = _last_submission(members, own, len(marked))
    for process in np.unique(ints(marked, "process")):
        own_requests = np.flatnonzero(ints(marked, "process") == process)
        begun = ints(calls, "start_ns")[ints(calls, "process") == process]
        inside = _places_inside(begun, marked.iloc[own_requests])
        totals += np.bincount(own_requests[inside[0]], minlength=len(marked))
        # Pairs come in time order, so the last one that is written is the last call of its request.
        last_call = np.full(len(marked), -1, dtype=np.int64)
        last_call[own_requests[inside[0]]] = begun[inside[1]]
        totals -= (last_call >= 0) & (last_call >= last_submission)
    return totals


def _last_submission(members: _Members, own: pd.DataFrame, count: int) -> Int64:
    """Time of each request's last known submission; 0 if none is known."""
    last = np.zeros(count, dtype=np.int64)
    known = submission_known(own)
    np.maximum.at(last, members.request[known], ints(own, BEGIN_NS)[known])
    return last


def _kernels(request: Int64, own: pd.DataFrame, count: int) -> dict[str, int]:
    """Median launches of each kernel name; names that most requests do not run are left out."""
    kernels = own["kind"].to_numpy() == KERNEL
    names = own["name"].astype(str).to_numpy()[kernels]
    counts = pd.Series(request[kernels]).groupby([names, request[kernels]]).size()
    medians = {}
    for name, found in counts.groupby(level=0, sort=True):
        launches = np.zeros(count, dtype=np.int64)
        launches[: len(found)] = found.to_numpy()
        medians[str(name)] = _median(launches)
    return {name: median for name, median in medians.items() if median > 0}


def _differing(request: Int64, own: pd.DataFrame, count: int) -> int:
    """Requests whose sequence of operations is not the commonest one."""
    order = np.lexsort((*_place_on_stream(own), request))
    codes = _signature_codes(own)[order]
    borders = np.searchsorted(request[order], np.arange(count + 1))
    sequences = Counter(codes[first:beyond].tobytes() for first, beyond in pairwise(borders))
    return count - sequences.most_common(1)[0][1]


def _place_on_stream(own: pd.DataFrame) -> tuple[Int64, ...]:
    """Sort keys, the last one first: stream by stream in order of submission.

    A stream runs in order of submission, so starts tell it even where no call is recorded; the nodes of a
    graph launch may run in any order, so they follow their node numbers.
    """
    starts, in_graph = ints(own, "start_ns"), ints(own, "graph") != 0
    (launch,) = launch_keys(own)
    launch = np.unique(launch, return_inverse=True)[1]
    launched = np.full(len(own), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(launched, launch, starts)
    moment = np.where(in_graph, launched[launch], starts)
    return starts, ints(own, "node"), moment, ints(own, "stream"), ints(own, "context")


def _signature_codes(own: pd.DataFrame) -> Int64:
    combined = np.zeros(len(own), dtype=np.int64)
    for name in SIGNATURE_COLUMNS:
        codes = _codes(own, name)
        # Renumbered at each step, so that the product stays far below 2**63.
        combined = int64(np.unique(combined * (int(np.max(codes)) + 1) + codes, return_inverse=True)[1])
    return combined


def _codes(own: pd.DataFrame, name: str) -> Int64:
    column = own[name]
    is_category = isinstance(column.dtype, pd.CategoricalDtype)
    values = int64(column.cat.codes if is_category else column)
    return int64(np.unique(values, return_inverse=True)[1])


def _submission_idle_ns(
    timeline: Timeline, marked: pd.DataFrame, devices: Sequence[IdleOfDevice]
) -> Measured:
    """Median idle that submission caused in a request; with several devices that of the worst one."""
    worst = np.zeros(len(marked), dtype=np.int64)
    processes = ints(marked, "process")
    for process in np.unique(processes):
        reason = why_not_measurable(timeline, int(process))
        if reason is not None:
            return reason
        for device in devices:
            if device.summary.process == process:
                worst = np.maximum(worst, _wasted(device, marked, processes == process))
    return _median(worst)


def _wasted(device: IdleOfDevice, marked: pd.DataFrame, chosen: Bools) -> Int64:
    if device.pieces is None:
        return np.zeros(len(marked), dtype=np.int64)
    wasted = device.pieces.of(SUBMISSION_CAUSES)
    return np.where(chosen, overlap_ns(wasted, ints(marked, "start_ns"), ints(marked, "end_ns")), 0)


def _idle(marked: pd.DataFrame, devices: Sequence[IdleOfDevice]) -> IdleCauses | NotMeasured:
    """Idle by cause, summed over the requests; each process has the device that was idle longest in it."""
    total = np.zeros(len(CAUSES), dtype=np.int64)
    processes = ints(marked, "process")
    for process in np.unique(processes):
        device = most_wasted(devices, int(process))
        if device == NO_DEVICE:
            continue
        if isinstance(device, NotMeasured):
            return device
        own = marked[processes == process]
        total += idle_inside(device, ints(own, "start_ns"), ints(own, "end_ns")).sum(axis=0)
    return by_cause(total)
