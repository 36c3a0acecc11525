"""Fixtures of the device tests: each runs on the simulated device and, where there is one, on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from cudagraph_gate.device.port import Device, Stream
from cudagraph_gate.device.simulated import SimulatedDevice, SimulatedSpec
from cudagraph_gate.errors import CaptureError


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    if request.param == "cuda":
        from cudagraph_gate.device.cuda import CudaDevice

        opened: Device = CudaDevice()
    else:
        opened = SimulatedDevice()
    yield opened
    opened.close()


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
