"""Streams, and an exact simulated device, for the device tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from cudagraph_gate.device.port import Device, Stream
from cudagraph_gate.device.simulated import SimulatedDevice, SimulatedSpec
from cudagraph_gate.errors import CaptureError


@pytest.fixture
def stream(device: Device) -> Iterator[Stream]:
    """A stream that is not left capturing, whatever a test's failure leaves behind."""
    made = device.create_stream()
    yield made
    if made.is_capturing:
        with suppress(CaptureError):
            device.end_capture(made)


@pytest.fixture
def exact() -> Iterator[SimulatedDevice]:
    """A simulated device without jitter."""
    opened = SimulatedDevice(SimulatedSpec(jitter=0))
    yield opened
    opened.close()
