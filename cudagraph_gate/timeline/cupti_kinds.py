"""Kinds of CUPTI activity records that are read, their fields, and CUPTI's codes (``cupti_activity.h``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cudagraph_gate.timeline.cupti_buffers import Wanted

KIND_MEMCPY: Final = 1
KIND_MEMSET: Final = 2
KIND_DRIVER: Final = 4
KIND_RUNTIME: Final = 5
KIND_KERNEL: Final = 10
KIND_MARKER: Final = 12
KIND_OVERHEAD: Final = 17
KIND_EVENT: Final = 36
KIND_SYNCHRONIZATION: Final = 38
"""Activity kinds (CUpti_ActivityKind)."""

LIGHT_KINDS: Final = (
    KIND_KERNEL,
    KIND_MEMCPY,
    KIND_MEMSET,
    KIND_SYNCHRONIZATION,
    KIND_MARKER,
    KIND_OVERHEAD,
)
FULL_KINDS: Final = (*LIGHT_KINDS, KIND_DRIVER, KIND_RUNTIME, KIND_EVENT)
"""``GRAPH_TRACE`` (49) is in neither: enabling it when a graph exists that was made without it crashes the
next replay on driver 580. ``CONCURRENT_KERNEL`` is safe at any time and gives each node's kernel."""

SHAPE_FIELDS: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_OPERATION: Final = (
    "start",
    "end",
    "device_id",
    "context_id",
    "stream_id",
    "correlation_id",
    "graph_id",
    "graph_node_id",
)
_API: Final = ("cbid", "start", "end", "process_id", "thread_id", "correlation_id", "return_value")
_THREAD: Final = ("object_id.pt.process_id", "object_id.pt.thread_id")

WANTED: Final[Mapping[int, Wanted]] = {
    KIND_MEMCPY: Wanted("activity_memcpy", (*_OPERATION, "copy_kind", "bytes")),
    KIND_MEMSET: Wanted("activity_memset", (*_OPERATION, "bytes")),
    KIND_DRIVER: Wanted("activity_api", _API),
    KIND_RUNTIME: Wanted("activity_api", _API),
    KIND_KERNEL: Wanted("activity_kernel", (*_OPERATION, "name", "queued", "submitted", *SHAPE_FIELDS)),
    KIND_MARKER: Wanted("activity_marker", ("id", "flags_", "timestamp", "name", "domain", *_THREAD)),
    KIND_OVERHEAD: Wanted("activity_overhead", ("overhead_kind", "start", "end")),
    KIND_EVENT: Wanted("activity_cuda_event", ("correlation_id", "stream_id", "event_id")),
    KIND_SYNCHRONIZATION: Wanted(
        "activity_synchronization", ("type", "start", "end", "correlation_id", "stream_id", "cuda_event_id")
    ),
}
POINTERS: Final[Mapping[int, Wanted]] = {
    KIND_KERNEL: Wanted("activity_kernel", ("name",)),
    KIND_MARKER: Wanted("activity_marker", ("name", "domain", "id", "flags_")),
}
"""What is looked at as soon as a buffer comes back: texts have to be read while CUPTI still holds them."""
TEXT_FIELDS: Final = frozenset(("name", "domain"))
"""Fields that point to text."""

COPY_NAMES: Final = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA"} | {
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
SYNC_NAMES: Final = {1: "cuEventSynchronize", 3: "cuStreamSynchronize", 4: "cuCtxSynchronize"}
"""Blocking kinds of synchronisation; 2 is a stream waiting for an event, which blocks no host thread."""
NO_SUCH: Final = 0xFFFF_FFFF
"""CUPTI_SYNCHRONIZATION_INVALID_VALUE: the record is about no stream, or no event."""
PROGRAM_OVERHEADS: Final = (1, 4 << 16, 5 << 16, 6 << 16)
"""The driver's compiler, module loading, lazy loading, a full command buffer: CUPTI reports them as overhead,
but the program has them without a recorder too."""
OVERHEAD_NAMES: Final = {
    1 << 16: "buffer flush",
    2 << 16: "instrumentation",
    3 << 16: "resource",
    7 << 16: "activity buffer request",
    8 << 16: "unified memory set-up",
}
MARKER_START: Final = 2
MARKER_END: Final = 4
