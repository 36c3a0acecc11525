"""Recording a timeline: one protocol, and the choice of the recorder that fits the device."""

from __future__ import annotations

from typing import Literal, Protocol

from cudagraph_gate.device import Device
from cudagraph_gate.timeline.table import Timeline

Level = Literal["light", "full"]
"""``light``: GPU operations, synchronisation and ranges. ``full``: host API calls too."""


class Recorder(Protocol):
    """Records everything that happens between ``start`` and ``stop``."""

    def start(self) -> None:
        """Begin recording. What was enqueued before is not recorded."""

    def stop(self) -> Timeline:
        """Stop and return what was recorded; the caller has synchronised the device before."""


def open_recorder(device: Device, level: Level) -> Recorder:
    """The recorder for ``device``. Raises NoDeviceError where CUPTI is needed and can't be had."""
    from cudagraph_gate.device.simulated import SimulatedDevice

    if isinstance(device, SimulatedDevice):
        from cudagraph_gate.timeline.simulated import SimulatedRecorder

        return SimulatedRecorder(device, level)
    from cudagraph_gate.timeline.cupti import CuptiRecorder

    return CuptiRecorder(level)
