"""What keeps the GPU from doing more: the largest part of its idle time, or the GPU itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.causes import CAUSES, CausedPieces
from cudagraph_gate.diagnosis.gap_histogram import EDGES_NS, buckets_of, histogram
from cudagraph_gate.diagnosis.gaps import late_starts, longest_launch_gap_ns
from cudagraph_gate.diagnosis.idle import IdleOfDevice
from cudagraph_gate.diagnosis.submission import ints
from cudagraph_gate.model import (
    SUBMISSION_CAUSES,
    Cause,
    DeviceIdle,
    HostWork,
    IdleGaps,
    Limiter,
    NotMeasured,
    Requests,
)
from cudagraph_gate.timeline.intervals import Int64, blocks, int64

FULLY_BUSY_SHARE: Final = 0.95
"""From this busy share on, what is left is within the run-to-run noise of GPU-bound workloads (about 5 %)."""
FEWEST_OPERATIONS: Final = 2
"""One operation alone has nothing before or after it to tell what the device waits for."""
SHORT: Final = 0
AFTER_WAIT: Final = 1
LONG: Final = 2
"""What a gap says of the submission time in it: the host is slow to submit; it had waited for the device and
so could not have submitted earlier; it did something else."""


@dataclass(frozen=True)
class Limits:
    """The limiter of a device and how much of the time each candidate takes."""

    limiter: Limiter
    parts_ns: dict[Limiter, int]
    """Idle time by limiter, at least 0 each; empty where idle is not measurable."""
    whole_ns: int
    """The time that ``busy_share`` and the parts are parts of."""
    busy_share: float
    requests_only: bool
    """Time outside requests is left out."""
    place: int = 0
    """Of the device in the diagnosis."""

    @property
    def share(self) -> float:
        """The limiter's part of the whole; 0 where the GPU itself is the limiter."""
        return self.parts_ns.get(self.limiter, 0) / max(self.whole_ns, 1)


def most_telling(found: Sequence[Limits], devices: Sequence[DeviceIdle]) -> Limits:
    """Of several devices the one that a summary speaks of. Raises ValueError for none.

    That with the most submission idle where submission is the limiter, else the busiest.
    """
    launch_bound = [one for one in found if one.limiter is Limiter.SUBMISSION]
    if launch_bound:
        return max(launch_bound, key=lambda one: one.parts_ns[Limiter.SUBMISSION])
    return max(found, key=lambda one: devices[one.place].busy_ns)


def limits_of(
    device: IdleOfDevice,
    marked: pd.DataFrame,
    requests: Requests | NotMeasured,
    *,
    requests_only: bool,
    place: int = 0,
) -> Limits:
    """Judge one device. ``marked`` are the ranges that mark requests (``Timeline.requests``)."""
    summary, caused = device.summary, device.pieces
    parts = {} if caused is None else _parts(summary, caused, marked)
    whole_ns = summary.window_ns
    busy_share = summary.busy_ns / max(whole_ns, 1)
    if requests_only and not isinstance(requests, NotMeasured):
        whole_ns -= parts.pop(Limiter.NO_REQUEST, 0)
        busy_share = requests.busy_ns / max(requests.wall.p50, 1)
    return Limits(
        limiter=_limiter(parts, busy_share) if summary.operations >= FEWEST_OPERATIONS else Limiter.UNKNOWN,
        parts_ns=parts,
        whole_ns=whole_ns,
        busy_share=busy_share,
        requests_only=requests_only,
        place=place,
    )


def _limiter(parts: dict[Limiter, int], busy_share: float) -> Limiter:
    if not parts:
        return Limiter.UNKNOWN
    if busy_share >= FULLY_BUSY_SHARE:
        return Limiter.GPU
    largest = max(parts, key=lambda limiter: parts[limiter])
    return largest if parts[largest] else Limiter.UNKNOWN


def _parts(summary: DeviceIdle, caused: CausedPieces, marked: pd.DataFrame) -> dict[Limiter, int]:
    table = _by_gap(caused, summary.causes, int64(ints(marked, "start_ns")))
    waiting_ns = _waiting(table, summary.host_work)
    wasted = table[:, [CAUSES.index(cause) for cause in SUBMISSION_CAUSES]].sum(axis=1)
    total = dict(zip(CAUSES, table.sum(axis=0).tolist(), strict=True))
    return {
        Limiter.SUBMISSION: int(wasted[SHORT]),
        Limiter.NO_REQUEST: total[Cause.NO_REQUEST],
        Limiter.HOST_WAIT: waiting_ns,
        Limiter.HOST_WORK: int(wasted[LONG]),
        Limiter.SYNC: total[Cause.SYNC] + int(wasted[AFTER_WAIT]),
        Limiter.DEPENDENCY: total[Cause.DEPENDENCY] + total[Cause.GRAPH_GAP],
        Limiter.PROFILER: total[Cause.PROFILER],
        Limiter.UNKNOWN: total[Cause.UNKNOWN] + total[Cause.RAMP],
    }


def _waiting(table: Int64, split: HostWork | NotMeasured) -> int:
    """Take the waiting part of host work out of ``table``, from the long gaps first: waits are long."""
    if isinstance(split, NotMeasured):
        return 0
    left_ns, host_work = split.waiting_ns, CAUSES.index(Cause.HOST_WORK)
    for kind in (LONG, SHORT, AFTER_WAIT):
        taken_ns = min(left_ns, int(table[kind, host_work]))
        table[kind, host_work] -= taken_ns
        left_ns -= taken_ns
    return split.waiting_ns - left_ns


def _by_gap(caused: CausedPieces, causes: dict[Cause, int], request_starts: Int64) -> Int64:
    """Idle ns by kind of gap (row) and cause (column); ``causes`` are the sums of the columns.

    Late starts stand with what is unknown.
    """
    pieces, idle = caused.pieces, caused.idle
    kind = np.full(len(idle), SHORT, dtype=np.int8)
    kind[_after_wait(caused, request_starts)] = AFTER_WAIT
    longest_ns = longest_launch_gap_ns(caused)
    for part in blocks(len(idle)):
        kind[part][idle.ends[part] - idle.starts[part] > longest_ns] = LONG
    table = np.zeros(3 * len(CAUSES), dtype=np.int64)
    # Nearly all gaps are short, so only the others are added up.
    for part in blocks(len(pieces)):
        rows = np.flatnonzero(kind[pieces.owners[part]] != SHORT) + part.start
        cells = kind[pieces.owners[rows]] * len(CAUSES) + caused.causes[rows]
        np.add.at(table, cells, pieces.ends[rows] - pieces.starts[rows])
    found = table.reshape(3, len(CAUSES))
    found[SHORT] = int64([causes[cause] for cause in CAUSES]) - found.sum(axis=0)
    late = late_starts(caused)
    late_ns = np.zeros(3, dtype=np.int64)
    np.add.at(late_ns, kind[pieces.owners[late]], pieces.ends[late] - pieces.starts[late])
    found[:, CAUSES.index(Cause.LAUNCH_LATENCY)] -= late_ns
    found[:, CAUSES.index(Cause.UNKNOWN)] += late_ns
    return found


def _after_wait(caused: CausedPieces, request_starts: Int64) -> Int64:
    """The gaps at whose start the host was in a blocking call, and that lie within one request.

    The wait that ends a request delays no submission: the next request was not there yet.
    """
    pieces, idle = caused.pieces, caused.idle
    sync = np.flatnonzero(caused.causes == CAUSES.index(Cause.SYNC))
    gaps = pieces.owners[sync]
    gaps = gaps[pieces.starts[sync] == idle.starts[gaps]]
    first = np.searchsorted(request_starts, idle.starts[gaps])
    return int64(gaps[np.searchsorted(request_starts, idle.ends[gaps]) <= first])


def idle_gaps_of(device: IdleOfDevice) -> IdleGaps | NotMeasured:
    """How the idle time of a device is spread over gaps of different length."""
    if isinstance(device.summary.idle_ns, NotMeasured):
        return device.summary.idle_ns
    if device.pieces is None or not len(device.pieces.idle):
        return NotMeasured(reason="the device was never idle in the window")
    lengths = device.pieces.interval_lengths_ns()
    found, idle_ns = histogram(lengths), np.zeros(len(EDGES_NS), dtype=np.int64)
    for part in blocks(len(lengths)):
        np.add.at(idle_ns, buckets_of(lengths[part]), lengths[part])
    first, longest_ns = EDGES_NS.index(found.lower_ns[0]), longest_launch_gap_ns(device.pieces)
    return IdleGaps(
        count=len(lengths),
        median_ns=round(device.pieces.median_gap_ns),
        longest_ns=int(np.max(lengths)),
        long_ns=longest_ns,
        short_ns=int(lengths[lengths <= longest_ns].sum()),
        histogram=found,
        idle_ns=tuple(idle_ns[first : first + len(found.counts)].tolist()),
    )
