"""What a timeline means: pure functions from a timeline to a diagnosis, by ``docs/definitions.md``."""

from __future__ import annotations

import numpy as np

from cudagraph_gate.diagnosis.conclusion import conclude
from cudagraph_gate.diagnosis.idle import idle_of_devices
from cudagraph_gate.diagnosis.intervals import Window
from cudagraph_gate.diagnosis.launches import launches_of
from cudagraph_gate.diagnosis.prediction import predict
from cudagraph_gate.diagnosis.ranges import ranges_of
from cudagraph_gate.diagnosis.requests import requests_of
from cudagraph_gate.diagnosis.submission import operations_with_submission, submission_known
from cudagraph_gate.model import Diagnosis, NotMeasured, ProfileTimes
from cudagraph_gate.timeline.table import Timeline, TimelineMeta

__all__ = ["diagnose"]


def diagnose(
    timeline: Timeline, times: ProfileTimes | NotMeasured, *, window: Window | None = None
) -> Diagnosis:
    """Analyse a timeline.

    ``window`` (start and end in ns on the timeline's clock) is by default the first request's start to the
    last one's end, or where no request is marked the first to the last GPU operation. Raises ValueError for
    a window that ends before it starts.
    """
    window = window or _window(timeline)
    if window[1] < window[0]:
        raise ValueError(f"the window ends before it starts: {window}")
    operations = operations_with_submission(timeline)
    devices = idle_of_devices(timeline, operations, window)
    summaries = tuple(device.summary for device in devices)
    launches = launches_of(timeline, operations, window)
    requests = requests_of(timeline, operations, window, devices)
    prediction = predict(requests, times, graph_launches=launches.graph_launches)
    meta = timeline.meta
    return Diagnosis(
        source=meta.source,
        level=meta.level,
        simulated=meta.simulated,
        resolution_ns=meta.resolution_ns,
        problems=(*meta.problems, *_problems(meta, int((~submission_known(operations)).sum()))),
        devices=summaries,
        launches=launches,
        ranges=ranges_of(timeline, operations, window),
        requests=requests,
        prediction=prediction,
        conclusion=conclude(summaries, requests, prediction),
    )


def _window(timeline: Timeline) -> Window:
    marked = timeline.requests()
    rows = timeline.operations if marked.empty else marked
    if rows.empty:
        return (0, 0)
    return int(np.min(rows["start_ns"])), int(np.max(rows["end_ns"]))


def _problems(meta: TimelineMeta, unsubmitted: int) -> list[str]:
    found = []
    if meta.dropped_records:
        found.append(f"the recorder dropped {meta.dropped_records} records")
    if unsubmitted:
        found.append(f"{unsubmitted} operations have no known submission: the idle before them is unknown")
    return found
