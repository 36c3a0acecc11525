"""Recording a timeline: one protocol, and the choice of the recorder that fits the device."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from cudagraph_gate.device import Device
from cudagraph_gate.timeline.table import Timeline

Level = Literal["light", "full"]
"""``light``: GPU operations, synchronisation and ranges. ``full``: host API calls with the stream and event
that they are about, the program's line of blocking calls, and the CPU time of submitting threads too."""


class Recorder(Protocol):
    """Records everything that happens between ``start`` and ``stop``."""

    def start(self) -> None:
        """Begin recording. What was enqueued before is not recorded."""

    def stop(self) -> Timeline:
        """Stop and return what was recorded; the caller has synchronised the device before."""

    @property
    def recorded_bytes(self) -> int:
        """What came in so far, as a sign of progress; 0 where nothing is recorded byte by byte."""

    @property
    def ended_ranges(self) -> int:
        """Ranges of the counted name that have ended, as far as :meth:`flush` brought in."""

    def flush(self) -> None:
        """Bring in what is complete so far; may be called from another thread."""


def open_recorder(
    device: Device, level: Level, folder: Path | None = None, count_range: str = ""
) -> Recorder:
    """The recorder for ``device``. Raises NoDeviceError where CUPTI is needed and can't be had.

    ``folder`` takes the records of a long recording while they come, in a file that has no name. Ended
    ranges called ``count_range`` are counted.
    """
    from cudagraph_gate.device.simulated import SimulatedDevice

    if isinstance(device, SimulatedDevice):
        from cudagraph_gate.timeline.simulated import SimulatedRecorder

        return SimulatedRecorder(device, level, count_range)
    from cudagraph_gate.timeline.cupti import CuptiRecorder

    return CuptiRecorder(level, folder, count_range=count_range)
