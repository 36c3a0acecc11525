"""What two captures recorded differently."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudagraph_gate.device.port import DeviceArray, Graph, Kernel, LaunchShape
from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.graphs.arguments import ChangedArgument, FreedArgument, OtherNodes, changed_since, number

KEPT: list[DeviceArray] = []
ONE = LaunchShape((1, 1, 1), (32, 1, 1))


def nothing(*_args: object) -> None:
    """The kernel's twin."""


STEP, SHIFT = Kernel("step", "", nothing, 1_000), Kernel("shift", "", nothing, 1_000)


@pytest.fixture
def device() -> SimulatedDevice:
    return SimulatedDevice()


def captured(device: SimulatedDevice, work: Callable[[], None]) -> Graph:
    stream = device.create_stream()
    with device.use_stream(stream):
        device.begin_capture(stream)
        work()
        return device.end_capture(stream)


def of(
    device: SimulatedDevice, *scalars: np.generic, kernel: Kernel = STEP, shape: LaunchShape = ONE
) -> Graph:
    """A capture of one kernel on an array of its own, which is never freed."""
    KEPT.append(device.empty((32,), np.float32))
    return captured(device, lambda: device.launch(kernel, shape, (KEPT[-1], *scalars)))


def test_other_addresses_are_no_change(device: SimulatedDevice) -> None:
    assert changed_since(of(device, np.float32(1)), of(device, np.float32(1))) is None


def test_a_scalar_that_changed_is_named_with_kernel_place_and_values(device: SimulatedDevice) -> None:
    found = changed_since(of(device, np.int32(3), np.float32(0.5)), of(device, np.int32(3), np.float32(0.25)))
    assert isinstance(found, ChangedArgument)
    assert (found.node, found.kernel, found.argument) == (0, "step", 2)
    assert found.shown == "argument 2 of step: 0.5, later 0.25"


def test_an_address_in_freed_memory_is_named(device: SimulatedDevice) -> None:
    array = device.empty((32,), np.float32)
    early = captured(device, lambda: device.launch(STEP, ONE, (array, np.int32(1))))
    array.free()
    other = device.empty((1_024,), np.float32)
    late = captured(device, lambda: device.launch(STEP, ONE, (other, np.int32(1))))
    found = changed_since(early, late)
    assert isinstance(found, FreedArgument)
    assert found.shown == "argument 0 of step"


def test_another_kernel_is_another_way(device: SimulatedDevice) -> None:
    found = changed_since(of(device), of(device, kernel=SHIFT))
    assert isinstance(found, OtherNodes)
    assert found.shown == "node 0: step (1, 1, 1)×(32, 1, 1), later shift (1, 1, 1)×(32, 1, 1)"


def test_another_launch_shape_is_another_way(device: SimulatedDevice) -> None:
    wide = LaunchShape((2, 1, 1), (32, 1, 1))
    assert isinstance(changed_since(of(device), of(device, shape=wide)), OtherNodes)


def test_a_kernel_more_is_another_way(device: SimulatedDevice) -> None:
    array = device.empty((32,), np.float32)

    def twice() -> None:
        device.launch(STEP, ONE, (array,))
        device.launch(STEP, ONE, (array,))

    found = changed_since(of(device), captured(device, twice))
    assert isinstance(found, OtherNodes)
    assert (found.first, found.before) == (1, "none")


def test_the_value_of_a_fill_counts(device: SimulatedDevice) -> None:
    array = device.empty((32,), np.uint8)
    one, other = (captured(device, lambda byte=byte: device.fill(array, byte)) for byte in (1, 2))
    found = changed_since(one, other)
    assert isinstance(found, ChangedArgument)
    assert found.shown == "argument 0 of memset: 1, later 2"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(0.1), "0.1"),
        (np.float64(1e-3), "0.001"),
        (np.int32(7), "7"),
        (np.int64(-2), "-2"),
        (np.float16(1.5), "1.5"),
        (np.uint8(9), "9"),
    ],
)
def test_bytes_are_shown_as_the_number_they_most_likely_are(value: np.generic, text: str) -> None:
    assert number(value.tobytes()) == text
