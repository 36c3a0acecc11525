"""Timelines of repeated work by hand: one letter an operation, launched by one thread on one stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from made_timelines import Row, call, kernel, sync, timeline

from cudagraph_gate.diagnosis.idle import idle_of_devices
from cudagraph_gate.diagnosis.segments import segments_of
from cudagraph_gate.diagnosis.submission import operations_with_submission
from cudagraph_gate.model import Segment
from cudagraph_gate.timeline.table import Timeline

STEP_NS: Final = 100
"""From one launch to the next; each call takes 40 and its kernel runs from 50 to 80 after the launch."""


class Program:
    """Grows a timeline operation by operation; ``now`` is when the next call begins."""

    def __init__(self, *, thread: int = 10, now: int = 1000, correlation: int = 1) -> None:
        self.operations: list[Row] = []
        self.calls: list[Row] = []
        self.ranges: list[Row] = []
        self.now = now
        self._thread = thread
        self._correlation = correlation

    def run(self, letters: str, **others: Any) -> Program:
        """Launch one kernel a letter."""
        for letter in letters:
            self.launch([(letter, others)])
        return self

    def launch(self, kernels: Sequence[tuple[str, Row]], name: str = "cuLaunchKernel") -> Program:
        """One call that runs some kernels, 30 ns each."""
        start = self.now + 50
        for letter, others in kernels:
            self.operations.append(kernel(start, start + 30, self._correlation, **{"name": letter} | others))
            start += 30
        self.calls.append(call(self.now, self.now + 40, self._correlation, name, thread=self._thread))
        self._correlation += 1
        return self.wait(STEP_NS)

    def wait(self, duration: int) -> Program:
        """Host time outside any call."""
        self.now += duration
        return self

    def call(self, name: str, **others: Any) -> Program:
        """A call that submits nothing."""
        self.calls.append(call(self.now, self.now + 10, name=name, thread=self._thread, **others))
        return self.wait(20)

    def sync(self) -> Program:
        """Wait for the device."""
        self.calls.append(sync(self.now, self.now + 60, thread=self._thread))
        return self.wait(STEP_NS)

    def timeline(self, *others: Program, **meta: Any) -> Timeline:
        """What this and other programs of the process did."""
        programs = (self, *others)
        return timeline(
            [row for one in programs for row in one.operations],
            [row for one in programs for row in one.calls],
            [row for one in programs for row in one.ranges],
            **meta,
        )


def segments(made: Timeline, window: tuple[int, int] | None = None) -> tuple[Segment, ...]:
    """The segments of a timeline over its operations' span."""
    span = (int(made.operations["start_ns"].min()), int(made.operations["end_ns"].max()))
    operations = operations_with_submission(made)
    devices = idle_of_devices(made, operations, window or span)
    found = segments_of(made, operations, window or span, devices)
    assert isinstance(found, tuple)
    return found


def only(made: Timeline) -> Segment:
    (segment,) = segments(made)
    return segment
