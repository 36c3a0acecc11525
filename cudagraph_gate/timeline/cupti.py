"""Recorder of a real GPU: CUPTI activity records of this process, decoded by NumPy.

``GRAPH_TRACE`` stays off: enabling it when a graph exists that was made without it crashes the next replay
on driver 580. ``CONCURRENT_KERNEL`` is safe at any time and gives each node's kernel with its graph's id.
"""

from __future__ import annotations

import os
from typing import Final

from cudagraph_gate.timeline.cupti_buffers import collect
from cudagraph_gate.timeline.cupti_library import Cupti, inject_nvtx, load_cupti, published_layouts
from cudagraph_gate.timeline.cupti_rows import (
    KIND_DRIVER,
    KIND_KERNEL,
    KIND_MARKER,
    KIND_MEMCPY,
    KIND_MEMSET,
    KIND_OVERHEAD,
    KIND_RUNTIME,
    KIND_SYNCHRONIZATION,
    Decoder,
)
from cudagraph_gate.timeline.recorder import Level
from cudagraph_gate.timeline.table import Timeline, TimelineMeta

STEM_OF: Final = {
    KIND_MEMCPY: "activity_memcpy",
    KIND_MEMSET: "activity_memset",
    KIND_DRIVER: "activity_api",
    KIND_RUNTIME: "activity_api",
    KIND_KERNEL: "activity_kernel",
    KIND_MARKER: "activity_marker",
    KIND_OVERHEAD: "activity_overhead",
    KIND_SYNCHRONIZATION: "activity_synchronization",
}
"""Families of cupti-python's record layouts, by activity kind (CUpti_ActivityKind)."""

LIGHT_KINDS: Final = (
    KIND_KERNEL,
    KIND_MEMCPY,
    KIND_MEMSET,
    KIND_SYNCHRONIZATION,
    KIND_MARKER,
    KIND_OVERHEAD,
)
FULL_KINDS: Final = (*LIGHT_KINDS, KIND_DRIVER, KIND_RUNTIME)


class CuptiRecorder:
    """One recording at a time in a process. Create it before the first NVTX call of the process."""

    def __init__(self, level: Level) -> None:
        inject_nvtx()
        self._cupti: Cupti = load_cupti()
        self._level = level
        self._kinds = FULL_KINDS if level == "full" else LIGHT_KINDS
        self._registered = False

    def start(self) -> None:
        """Begin recording. Raises NoDeviceError with CUPTI's reason when it may not."""
        if not self._registered:
            self._cupti.register()
            self._registered = True
        self._cupti.dropped()
        self._cupti.latency_timestamps(True)
        for kind in self._kinds:
            self._cupti.enable(kind)

    def stop(self) -> Timeline:
        """Collect and decode what was recorded."""
        for kind in self._kinds:
            self._cupti.enable(kind, on=False)
        self._cupti.flush()
        records, problems = collect(
            self._cupti.take_filled(), published_layouts(), STEM_OF, self._cupti.record_size
        )
        dropped = self._cupti.dropped()
        decoder = Decoder(records, process=os.getpid(), callback_name=self._cupti.callback_name)
        return Timeline(
            meta=TimelineMeta(
                source=f"CUPTI {self._cupti.version()}",
                level=self._level,
                dropped_records=dropped,
                problems=(*problems, *decoder.problems),
            ),
            operations=decoder.operations,
            calls=decoder.calls,
            ranges=decoder.ranges,
            overheads=decoder.overheads,
        )
