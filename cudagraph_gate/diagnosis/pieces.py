"""The pieces of idle time as rows, for pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from cudagraph_gate.diagnosis.causes import CAUSES, CausedPieces
from cudagraph_gate.diagnosis.idle import idle_of_devices
from cudagraph_gate.diagnosis.submission import operations_with_submission
from cudagraph_gate.model import DeviceIdle
from cudagraph_gate.timeline.families import constant
from cudagraph_gate.timeline.intervals import Window
from cudagraph_gate.timeline.perfetto import IDLE_COLUMNS
from cudagraph_gate.timeline.table import Timeline, frame
from cudagraph_gate.timeline.texts import coded


def idle_pieces(timeline: Timeline, window: Window | None = None) -> pd.DataFrame:
    """Every piece of idle time in ``window`` (by default the timeline's) with its cause, in order of start.

    Device by device; the columns are those of ``timeline.perfetto.IDLE_COLUMNS``. A device whose idle is not
    measurable has no rows.
    """
    devices = idle_of_devices(timeline, operations_with_submission(timeline), window or timeline.window())
    parts = [_rows(device.summary, device.pieces) for device in devices if device.pieces is not None]
    if not parts:
        return frame(IDLE_COLUMNS)
    values = {name: np.concatenate([part[name] for part in parts]) for name in IDLE_COLUMNS}
    causes = coded(values["cause"], [str(cause) for cause in CAUSES])
    return frame(IDLE_COLUMNS, values | {"cause": causes})


def _rows(device: DeviceIdle, found: CausedPieces) -> dict[str, npt.NDArray[Any]]:
    """The columns of one device; causes by their code."""
    order = np.argsort(found.pieces.starts, kind="stable")
    return {
        "process": constant(device.process, "int32", len(order)),
        "device": constant(device.device, "int32", len(order)),
        "cause": found.causes[order],
        "start_ns": found.pieces.starts[order],
        "end_ns": found.pieces.ends[order],
    }
