"""Idle time by cause inside given intervals: user ranges, requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cudagraph_gate.diagnosis.causes import CAUSES, CausedPieces
from cudagraph_gate.diagnosis.idle import IdleOfDevice
from cudagraph_gate.model import SUBMISSION_CAUSES, IdleCauses, NotMeasured
from cudagraph_gate.timeline.intervals import Int64, int64

NO_DEVICE: Final = NotMeasured(reason="no device of the process was busy in the window")


def most_wasted(devices: Sequence[IdleOfDevice], process: int) -> IdleOfDevice | NotMeasured:
    """The device of ``process`` that was idle for submission longest in the window."""
    own = [device for device in devices if device.summary.process == process]
    if not own:
        return NO_DEVICE
    for device in own:
        if isinstance(device.summary.idle_ns, NotMeasured):
            return device.summary.idle_ns
    return max(own, key=_wasted_ns)


def _wasted_ns(device: IdleOfDevice) -> int:
    return sum(device.summary.causes[cause] for cause in SUBMISSION_CAUSES)


def idle_inside(device: IdleOfDevice, starts: Int64, ends: Int64) -> Int64:
    """ns of each interval (row) by cause (column, in the order of ``CAUSES``); intervals may overlap."""
    table = np.zeros((len(starts), len(CAUSES)), dtype=np.int64)
    if device.pieces is None or not len(device.pieces.causes):
        return table
    in_time = _InTime(device.pieces)
    at_start, at_end = in_time.reached(starts), in_time.reached(np.maximum(starts, ends))
    for column, cause in enumerate(CAUSES):
        if device.summary.causes[cause]:
            before = in_time.before(at_start, column)
            table[:, column] = in_time.before(at_end, column) - before
    return table


class _InTime:
    """The pieces of all causes one after the other: a moment is looked up once for all causes."""

    def __init__(self, pieces: CausedPieces) -> None:
        order = np.argsort(pieces.pieces.starts, kind="stable")
        self._starts, self._ends = pieces.pieces.starts[order], pieces.pieces.ends[order]
        self._causes = pieces.causes[order]

    def reached(self, times: Int64) -> tuple[Int64, Int64]:
        """For each moment the piece that began last (-1 if none did), and what is left of it in ns."""
        last = int64(np.searchsorted(self._starts, times, side="right")) - 1
        left = np.where(last < 0, 0, np.maximum(self._ends[last] - times, 0))
        return last, int64(left)

    def before(self, moments: tuple[Int64, Int64], cause: int) -> Int64:
        """ns of one cause before each moment."""
        last, left = moments
        own = self._causes == cause
        total = np.append(0, np.cumsum(np.where(own, self._ends - self._starts, 0)))
        return int64(total[last + 1] - np.where(own[last], left, 0))


def by_cause(totals_ns: Int64) -> IdleCauses:
    """``totals_ns`` has one value for each of ``CAUSES``; those that are 0 are left out."""
    pairs = zip(CAUSES, totals_ns.tolist(), strict=True)
    return IdleCauses(by_cause={cause: total for cause, total in pairs if total})
