"""Recorder of the simulated device: its trace, with the same columns as a real one."""

from __future__ import annotations

from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.timeline.recorder import Level
from cudagraph_gate.timeline.table import (
    CALL_COLUMNS,
    CPU_TIME_COLUMNS,
    OPERATION_COLUMNS,
    RANGE_COLUMNS,
    Timeline,
    TimelineMeta,
    frame_of,
)


class SimulatedRecorder:
    """Records on the virtual clock; costs the workload nothing."""

    def __init__(self, device: SimulatedDevice, level: Level, count_range: str = "") -> None:
        self._device = device
        self._level = level
        self._count_range = count_range
        self._ended = 0

    def start(self) -> None:
        """Begin recording."""
        self._device.start_trace()

    @property
    def recorded_bytes(self) -> int:
        """Nothing is recorded byte by byte."""
        return 0

    @property
    def ended_ranges(self) -> int:
        """Ranges of the counted name that had ended at the last :meth:`flush`."""
        return self._ended

    def flush(self) -> None:
        """Count the ranges that have ended."""
        self._ended = self._device.traced_ranges(self._count_range)

    def stop(self) -> Timeline:
        """The recorded timeline; at level ``light`` only blocking calls are kept, as CUPTI would."""
        trace = self._device.stop_trace()
        calls = [row for row in trace.calls if self._level == "full" or row["blocking"]]
        return Timeline(
            meta=TimelineMeta(source="simulated device", level=self._level, simulated=True),
            operations=frame_of(OPERATION_COLUMNS, trace.operations),
            calls=frame_of(CALL_COLUMNS, calls),
            ranges=frame_of(RANGE_COLUMNS, trace.ranges),
            cpu_times=frame_of(CPU_TIME_COLUMNS, trace.cpu_times if self._level == "full" else []),
        )
