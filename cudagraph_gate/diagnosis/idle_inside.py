"""Idle time by cause inside given intervals: user ranges, requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cudagraph_gate.diagnosis.causes import CAUSES
from cudagraph_gate.diagnosis.idle import IdleOfDevice
from cudagraph_gate.diagnosis.intervals import Int64, overlap_ns
from cudagraph_gate.model import SUBMISSION_CAUSES, IdleCauses, NotMeasured

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
    if device.pieces is None:
        return table
    for column, cause in enumerate(CAUSES):
        if device.summary.causes[cause]:
            table[:, column] = overlap_ns(device.pieces.of((cause,)), starts, ends)
    return table


def by_cause(totals_ns: Int64) -> IdleCauses:
    """``totals_ns`` has one value for each of ``CAUSES``; those that are 0 are left out."""
    pairs = zip(CAUSES, totals_ns.tolist(), strict=True)
    return IdleCauses(by_cause={cause: total for cause, total in pairs if total})
