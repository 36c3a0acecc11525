"""Small timelines by hand: one process, device, stream and thread unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.model import Cause, Diagnosis, Distribution, NotMeasured, ProfileTimes
from cudagraph_gate.timeline.table import (
    CALL_COLUMNS,
    KERNEL,
    OPERATION_COLUMNS,
    OVERHEAD_COLUMNS,
    RANGE_COLUMNS,
    REQUEST_DOMAIN,
    REQUEST_RANGE,
    Timeline,
    TimelineMeta,
    frame_of,
)

Row = dict[str, Any]
NO_TIMES = NotMeasured(reason="not timed")


def kernel(start: int, end: int, correlation: int = 0, **others: Any) -> Row:
    base = {"kind": KERNEL, "name": "k", "stream": 7, "process": 1}
    return base | {"start_ns": start, "end_ns": end, "correlation": correlation} | others


def call(start: int, end: int, correlation: int = 0, name: str = "cuLaunchKernel", **others: Any) -> Row:
    base = {"name": name, "process": 1, "thread": 10}
    return base | {"start_ns": start, "end_ns": end, "correlation": correlation} | others


def sync(start: int, end: int, **others: Any) -> Row:
    return call(start, end, **{"name": "cuStreamSynchronize", "blocking": True} | others)


def span(name: str, start: int, end: int, **others: Any) -> Row:
    base = {"name": name, "domain": "app", "process": 1, "thread": 10, "end_thread": 10}
    return base | {"start_ns": start, "end_ns": end} | others


def request(start: int, end: int, **others: Any) -> Row:
    return span(REQUEST_RANGE, start, end, **{"domain": REQUEST_DOMAIN} | others)


def overhead(start: int, end: int, process: int = 1) -> Row:
    return {"name": "flush", "start_ns": start, "end_ns": end, "process": process}


def timeline(
    operations: Sequence[Row] = (),
    calls: Sequence[Row] = (),
    ranges: Sequence[Row] = (),
    overheads: Sequence[Row] = (),
    **meta: Any,
) -> Timeline:
    return Timeline(
        meta=TimelineMeta(**{"source": "by hand", "level": "full"} | meta),
        operations=frame_of(OPERATION_COLUMNS, operations),
        calls=frame_of(CALL_COLUMNS, calls),
        ranges=frame_of(RANGE_COLUMNS, ranges),
        overheads=frame_of(OVERHEAD_COLUMNS, overheads),
    )


def diagnosed(*rows: Sequence[Row], window: tuple[int, int] | None = None, **meta: Any) -> Diagnosis:
    return diagnose(timeline(*rows, **meta), NO_TIMES, window=window)


def causes(diagnosis: Diagnosis) -> dict[Cause, int]:
    """The causes of the only device that are not zero."""
    (device,) = diagnosis.devices
    return {cause: time for cause, time in device.causes.items() if time}


def constant(value: int, count: int = 10) -> Distribution:
    return Distribution(count=count, p50=value, p95=value, p99=value, minimum=value, maximum=value)


def times(latency_ns: int, copy_in_ns: int = 0, recorded_ns: int | None = None) -> ProfileTimes:
    return ProfileTimes(
        shape="b1",
        shape_value="64",
        cold_ns=10 * latency_ns,
        latency=constant(latency_ns),
        cpu_ns=latency_ns,
        recorded_latency=constant(recorded_ns or latency_ns),
        copy_in_ns=copy_in_ns,
        input_bytes={"x": 4},
        iterations=10,
    )


def example() -> Timeline:
    """The worked example of docs/definitions.md."""
    return timeline(
        [kernel(150, 350, 1), kernel(360, 560, 2), kernel(670, 770, 3), kernel(1380, 1780, 4)],
        [
            call(50, 100, 1),
            call(120, 180, 2),
            call(600, 650, 3),
            sync(660, 790),
            call(1300, 1350, 4),
            sync(1360, 1800),
        ],
        [request(0, 1000), request(1200, 2000)],
        [overhead(1220, 1250)],
    )
