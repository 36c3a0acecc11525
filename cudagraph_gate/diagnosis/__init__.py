"""What a timeline means: pure functions from a timeline to a diagnosis, by ``docs/definitions.md``."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from msgspec.structs import replace

from cudagraph_gate.diagnosis.conclusion import conclude
from cudagraph_gate.diagnosis.host_time import host_work_of
from cudagraph_gate.diagnosis.idle import IdleOfDevice, idle_of_devices
from cudagraph_gate.diagnosis.launches import launches_of
from cudagraph_gate.diagnosis.limiter import Limits, idle_gaps_of, limits_of, most_telling
from cudagraph_gate.diagnosis.pieces import idle_pieces
from cudagraph_gate.diagnosis.prediction import predict
from cudagraph_gate.diagnosis.ranges import ranges_of
from cudagraph_gate.diagnosis.requests import overlapping, requests_of
from cudagraph_gate.diagnosis.segments import segments_of
from cudagraph_gate.diagnosis.submission import operations_with_submission, started_early, submission_known
from cudagraph_gate.model import Diagnosis, Limiter, NotMeasured, ProfileTimes, Requests
from cudagraph_gate.timeline.intervals import Window
from cudagraph_gate.timeline.table import Timeline

EARLY_SHARE: Final = 0.01
"""A file of whole µs has a few such operations; clocks that differ make them the rule."""

__all__ = ["diagnose", "idle_pieces"]


def diagnose(
    timeline: Timeline, times: ProfileTimes | NotMeasured, *, window: Window | None = None
) -> Diagnosis:
    """Analyse a timeline.

    ``window`` (start and end in ns on the timeline's clock) is by default the first request's start to the
    last one's end, or where no request is marked the first to the last GPU operation. Raises ValueError for
    a window that ends before it starts.
    """
    window = window or timeline.window()
    if window[1] < window[0]:
        raise ValueError(f"the window ends before it starts: {window}")
    operations = operations_with_submission(timeline)
    unsubmitted, early = int((~submission_known(operations)).sum()), started_early(timeline, operations)
    # Nothing else needs the launches, and NumPy lets another thread run while it works on arrays.
    with ThreadPoolExecutor(1) as beside:
        under_way = beside.submit(launches_of, timeline, operations, window)
        devices = tuple(_completed(one, timeline) for one in idle_of_devices(timeline, operations, window))
        requests = requests_of(timeline, operations, window, devices)
        segments = segments_of(timeline, operations, window, devices)
        launches = under_way.result()
    limits = _limits(timeline, devices, requests, times)
    meta = timeline.meta
    found = Diagnosis(
        source=meta.source,
        level=meta.level,
        simulated=meta.simulated,
        resolution_ns=meta.resolution_ns,
        problems=(*meta.problems, *_problems(timeline, unsubmitted, early)),
        devices=tuple(device.summary for device in devices),
        launches=launches,
        ranges=ranges_of(timeline, operations, window, devices),
        requests=requests,
        prediction=predict(requests, times, graph_launches=launches.graph_launches),
        segments=segments,
        limiter=Limiter.UNKNOWN if limits is None else limits.limiter,
        conclusion="",
    )
    return replace(found, conclusion=conclude(found, limits))


def _completed(device: IdleOfDevice, timeline: Timeline) -> IdleOfDevice:
    """With what the pieces of a device tell beyond their causes."""
    summary = replace(device.summary, idle_gaps=idle_gaps_of(device))
    if device.pieces is not None:
        host_work = host_work_of(device.pieces, summary.process, timeline)
        summary = replace(summary, host_work=host_work)
    elif isinstance(summary.idle_ns, NotMeasured):
        summary = replace(summary, host_work=summary.idle_ns)
    return dataclasses.replace(device, summary=summary)


def _limits(
    timeline: Timeline,
    devices: tuple[IdleOfDevice, ...],
    requests: Requests | NotMeasured,
    times: ProfileTimes | NotMeasured,
) -> Limits | None:
    """What limits the device to speak of.

    Requests that cgate timed were made one after another, so none waited for a user; where the user named a
    range, only the time inside it is asked about.
    """
    marked = timeline.requests()
    asked = isinstance(times, ProfileTimes) or bool(timeline.meta.request_range)
    only = asked and isinstance(requests, Requests)
    found = [
        limits_of(device, marked, requests, requests_only=only, place=place)
        for place, device in enumerate(devices)
    ]
    return most_telling(found, [one.summary for one in devices]) if found else None


def _problems(timeline: Timeline, unsubmitted: int, early: int) -> list[str]:
    found = []
    if timeline.meta.dropped_records:
        found.append(f"{timeline.meta.dropped_records} records are missing")
    if early > EARLY_SHARE * len(timeline.operations):
        found.append(
            f"{early} operations start before their launch call: the clocks of host and GPU differ, and "
            "causes, launch latency and TKLQT are off by as much"
        )
    if overlapping(timeline.requests()):
        found.append("requests overlap: an operation counts in each that was open when it was submitted")
    if unsubmitted:
        found.append(f"{unsubmitted} operations have no known submission: the idle before them is unknown")
    return found
