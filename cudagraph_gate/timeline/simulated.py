"""Recorder of the simulated device: its trace, with the same columns as a real one."""

from __future__ import annotations

from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.timeline.recorder import Level
from cudagraph_gate.timeline.table import (
    CALL_COLUMNS,
    OPERATION_COLUMNS,
    RANGE_COLUMNS,
    Timeline,
    TimelineMeta,
    frame_of,
)


class SimulatedRecorder:
    """Records on the virtual clock; costs the workload nothing."""

    def __init__(self, device: SimulatedDevice, level: Level) -> None:
        self._device = device
        self._level = level

    def start(self) -> None:
        """Begin recording."""
        self._device.start_trace()

    def stop(self) -> Timeline:
        """The recorded timeline; at level ``light`` only blocking calls are kept, as CUPTI would."""
        trace = self._device.stop_trace()
        calls = [row for row in trace.calls if self._level == "full" or row["blocking"]]
        return Timeline(
            meta=TimelineMeta(source="simulated device", level=self._level, simulated=True),
            operations=frame_of(OPERATION_COLUMNS, trace.operations),
            calls=frame_of(CALL_COLUMNS, calls),
            ranges=frame_of(RANGE_COLUMNS, trace.ranges),
        )
