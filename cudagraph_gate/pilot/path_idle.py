"""Some requests of both paths under the light recorder: how long the device is idle, what is launched.

After all timing: a recorder slows the process down for as long as it lives. Each path is recorded for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.errors import NoDeviceError
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.pilot.graph_path import GraphPath
from cudagraph_gate.pilot.measure import Request, graph_request, normal_request
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import PathIdle, PathName
from cudagraph_gate.timeline.busy import busy_ns, graph_launches, window_ns
from cudagraph_gate.timeline.recorder import Recorder, open_recorder
from cudagraph_gate.timeline.table import MEMSET, Timeline

RECORDED_REQUESTS: Final = 10
"""Idle is judged from their sum: the work of one request is the same in all of them."""
WARM_UP_REQUESTS: Final = 3
"""The first requests after switching a recorder on pay for its buffers (0.15 s on the H200)."""
MARKER_BYTES: Final = 12_304
"""A memset of this size, which no program is likely to make, parts what is recorded; 16 x a prime."""
MARKERS: Final = 2
HARMLESS: Final = "ranges were open when the recording ended"
"""The one problem of a recording that says nothing about its operations."""


@dataclass(frozen=True)
class PathOperations:
    """What one path was recorded to do."""

    one: pd.DataFrame
    """Operations of a single request."""
    several: pd.DataFrame
    """Operations of ``RECORDED_REQUESTS`` consecutive requests, each synchronised."""


def record_paths(
    session: Session, graph: GraphPath | None, input_sets: Sequence[Inputs], log: TrialLog
) -> pd.DataFrame | NotMeasured:
    """Record the normal path, then the graph path if there is one, and log a ``PathIdle`` for each.

    Returns the operations of one normal request. Raises what a request raises.
    """
    try:
        recorder: Recorder | NotMeasured = open_recorder(session.device, "light")
    except NoDeviceError as error:
        recorder = NotMeasured(reason=str(error))
    with session.blaming_user():
        normal = record_path(session, recorder, normal_request(session), input_sets)
    log.append(path_idle(log, "normal", normal))
    if graph is not None:
        replayed = record_path(session, recorder, graph_request(session, graph), input_sets)
        log.append(path_idle(log, "graph", replayed))
    return normal if isinstance(normal, NotMeasured) else normal.one


def record_path(
    session: Session, recorder: Recorder | NotMeasured, request: Request, input_sets: Sequence[Inputs]
) -> PathOperations | NotMeasured:
    """Warm-up requests, one, and several of a path in one recording.

    Not measured where nothing can be recorded or records were lost.
    """
    if isinstance(recorder, NotMeasured):
        return recorder
    device = session.device
    marker = device.empty((MARKER_BYTES,), np.uint8)
    device.synchronize()
    try:
        recorder.start()
    except NoDeviceError as error:
        return NotMeasured(reason=str(error))
    try:
        for number, count in enumerate((WARM_UP_REQUESTS, 1, RECORDED_REQUESTS)):
            if number:
                device.fill(marker, 0)
                device.synchronize()
            for index in range(count):
                request(input_sets[index % len(input_sets)])
            device.synchronize()
    finally:
        timeline = recorder.stop()
    return _parted(timeline)


def _parted(timeline: Timeline) -> PathOperations | NotMeasured:
    if timeline.meta.dropped_records:
        return NotMeasured(reason=f"the recorder lost {timeline.meta.dropped_records} records")
    problems = [problem for problem in timeline.meta.problems if not problem.endswith(HARMLESS)]
    if problems:
        return NotMeasured(reason=problems[0])
    operations = timeline.operations
    markers = operations[(operations["kind"] == MEMSET) & (operations["bytes"] == MARKER_BYTES)]
    if len(markers) != MARKERS:
        found = f"{len(markers)} memsets of {MARKER_BYTES} bytes"
        return NotMeasured(reason=f"requests can't be told apart: {found} are recorded instead of {MARKERS}")
    (first_ns, second_ns) = sorted(int(start) for start in markers["start_ns"])
    starts = operations["start_ns"]
    return PathOperations(
        one=operations[(starts > first_ns) & (starts < second_ns)].reset_index(drop=True),
        several=operations[starts > second_ns].reset_index(drop=True),
    )


def path_idle(log: TrialLog, path: PathName, recorded: PathOperations | NotMeasured) -> PathIdle:
    """The record of one path; where nothing was recorded it counts no request."""
    if isinstance(recorded, NotMeasured):
        return PathIdle(
            shape=log.shape,
            method=log.method,
            path=path,
            requests=0,
            window_ns=0,
            busy_ns=recorded,
            operations=0,
            graph_launches=recorded,
        )
    several = recorded.several
    return PathIdle(
        shape=log.shape,
        method=log.method,
        path=path,
        requests=RECORDED_REQUESTS,
        window_ns=window_ns(several),
        busy_ns=busy_ns(several),
        operations=len(several),
        graph_launches=graph_launches(several),
        graph_operations=int((several["graph"] != 0).sum()),
    )
