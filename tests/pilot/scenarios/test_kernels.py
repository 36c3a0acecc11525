"""The kernels that do harm, on both devices as far as the process survives them."""

from __future__ import annotations

import numpy as np
import pytest

from cudagraph_gate.device import Device
from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.errors import StickyError
from cudagraph_gate.pilot.scenarios import kernels

DELAY_NS = 3_000_000


def test_a_delay_keeps_its_stream_busy_and_not_the_host(device: Device) -> None:
    stream = device.create_stream()
    kernels.delay(device, stream, 1)  # compiled
    stream.synchronize()
    before, start_ns = stream.record(), device.clock_ns()
    kernels.delay(device, stream, DELAY_NS)
    submitted_ns = device.clock_ns() - start_ns
    after = stream.record()
    after.synchronize()
    assert after.elapsed_ns(before) >= 0.9 * DELAY_NS
    assert submitted_ns < 0.5 * DELAY_NS


def test_an_endless_kernel_ends_where_it_is_told_to(device: Device) -> None:
    stream = device.create_stream()
    kernels.never_end(device, stream, 1_000)
    stream.synchronize()


def test_an_illegal_write_returns_and_loses_the_device() -> None:
    device = SimulatedDevice()
    array = device.array(np.ones(4, np.float32))
    kernels.write_nowhere(device, device.current_stream())
    with pytest.raises(StickyError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        array.to_host()
