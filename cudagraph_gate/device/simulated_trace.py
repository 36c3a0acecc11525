"""Recording of the simulated device: rows with the timeline's column names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cudagraph_gate.device.port import LaunchShape

DEVICE: Final = 0
CONTEXT: Final = 1
LEGACY_STREAM: Final = 7
"""CUPTI's number of the legacy stream."""
FIRST_STREAM: Final = 13
"""CUPTI numbers a process's own streams from about here."""

STATUS: Final[Mapping[str, int]] = {
    "CUDA_SUCCESS": 0,
    "CUDA_ERROR_INVALID_VALUE": 1,
    "CUDA_ERROR_OUT_OF_MEMORY": 2,
    "CUDA_ERROR_DEINITIALIZED": 4,
    "CUDA_ERROR_INVALID_HANDLE": 400,
    "CUDA_ERROR_ILLEGAL_STATE": 401,
    "CUDA_ERROR_NOT_READY": 600,
    "CUDA_ERROR_ILLEGAL_ADDRESS": 700,
    "CUDA_ERROR_LAUNCH_FAILED": 719,
    "CUDA_ERROR_NOT_SUPPORTED": 801,
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": 900,
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": 901,
    "CUDA_ERROR_STREAM_CAPTURE_MERGE": 902,
    "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED": 903,
    "CUDA_ERROR_STREAM_CAPTURE_UNJOINED": 904,
    "CUDA_ERROR_STREAM_CAPTURE_ISOLATION": 905,
    "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT": 906,
    "CUDA_ERROR_CAPTURED_EVENT": 907,
    "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD": 908,
}
"""The driver's number of each error that the simulated device raises."""

Row = dict[str, Any]


@dataclass(frozen=True)
class SimulatedTrace:
    """One recording: a mapping a row, its keys the timeline's columns; times on the virtual clock."""

    operations: list[Row] = field(default_factory=list)
    calls: list[Row] = field(default_factory=list)
    ranges: list[Row] = field(default_factory=list)
    cpu_times: list[Row] = field(default_factory=list)


@dataclass
class HostCall:
    """One API call in progress: what its operations and its trace row need."""

    name: str
    thread: int
    start_ns: int
    correlation: int
    blocking: bool
    status: str = "CUDA_SUCCESS"
    stream: int = 0
    event: int = 0
    """What it is about, where it is an event record, a stream wait or a synchronisation."""


@dataclass(frozen=True)
class Placement:
    """Where and when an operation runs. ``graph`` and ``node`` are 0 outside graphs."""

    stream: int
    start_ns: int
    end_ns: int
    submitted_ns: int
    graph: int = 0
    node: int = 0


def call_row(call: HostCall, end_ns: int) -> Row:
    """The call as a timeline row."""
    return {
        "name": call.name,
        "start_ns": call.start_ns,
        "end_ns": end_ns,
        "process": os.getpid(),
        "thread": call.thread,
        "correlation": call.correlation,
        "blocking": call.blocking,
        "status": STATUS[call.status],
        "site": "",
        "stream": call.stream,
        "event": call.event,
    }


def range_row(name: str, domain: str, start_ns: int, end_ns: int, thread: int) -> Row:
    """A user range as a timeline row."""
    return {
        "name": name,
        "domain": domain,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "process": os.getpid(),
        "thread": thread,
        "end_thread": thread,
    }


def cpu_time_row(thread: int, start_ns: int, end_ns: int, on_cpu_ns: int) -> Row:
    """A stretch of a thread's time between calls as a timeline row."""
    return {
        "process": os.getpid(),
        "thread": thread,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "on_cpu_ns": on_cpu_ns,
    }


def operation_row(
    call: HostCall, kind: str, name: str, nbytes: int, shape: LaunchShape | None, place: Placement
) -> Row:
    """A device operation as a timeline row; only kernels know when they were queued and submitted."""
    grid, block = (shape.grid, shape.block) if shape is not None else ((0, 0, 0), (0, 0, 0))
    # Three quarters into the call is where the H200's `queued` time stamp lies.
    queued_ns = call.start_ns + (place.submitted_ns - call.start_ns) * 3 // 4
    submitted_ns = min(place.start_ns, place.submitted_ns)
    return {
        "kind": kind,
        "name": name,
        "start_ns": place.start_ns,
        "end_ns": place.end_ns,
        "device": DEVICE,
        "context": CONTEXT,
        "stream": place.stream,
        "process": os.getpid(),
        "correlation": call.correlation,
        "queued_ns": queued_ns if kind == "kernel" else 0,
        "submitted_ns": submitted_ns if kind == "kernel" else 0,
        "graph": place.graph,
        "node": place.node,
        "bytes": nbytes,
        **dict(zip(("grid_x", "grid_y", "grid_z"), grid, strict=True)),
        **dict(zip(("block_x", "block_y", "block_z"), block, strict=True)),
    }
