"""The adapter of the device port's own arrays, on the simulated device and on a GPU."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from portable_kernel import numbers, scale

from cudagraph_gate.adapters import adapter_for, unusable
from cudagraph_gate.adapters.cuda_core import ArrayAdapter
from cudagraph_gate.device import Device
from cudagraph_gate.device.simulated import Fault, SimulatedDevice
from cudagraph_gate.errors import CaptureError, DeviceError, WorkloadError
from cudagraph_gate.model import NotMeasured


@pytest.fixture
def adapter(device: Device) -> ArrayAdapter:
    return ArrayAdapter(device)


class DoubleTo:
    """A step that doubles its input into an array of its own; ``act`` runs after the launch."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._out = device.array(numbers())
        self.act: Any = lambda: None

    def __call__(self, source: Any) -> Any:
        scale(self._device, self._out, source)
        self.act()
        return self._out


# --- arrays -----------------------------------------------------------------------------------------


def test_static_like_is_another_array_with_the_same_values(device: Device, adapter: ArrayAdapter) -> None:
    source = device.array(np.arange(6, dtype=np.int16).reshape(2, 3))
    static = adapter.static_like(source)
    assert (static.shape, static.dtype) == ((2, 3), np.int16)
    assert static.pointer != source.pointer
    device.fill(source, 0)
    np.testing.assert_array_equal(static.to_host(), np.arange(6).reshape(2, 3))


def test_copy_into_takes_over_the_values(device: Device, adapter: ArrayAdapter) -> None:
    target, source = device.array(numbers()), device.array(numbers(5))
    adapter.copy_into(target, source)
    np.testing.assert_array_equal(adapter.to_host(target), numbers(5))


@pytest.mark.parametrize(
    "other", [np.zeros(5, np.float32), np.zeros((2, 2), np.float32), np.zeros(4, np.int32)]
)
def test_copy_into_refuses_another_shape_or_dtype(device: Device, adapter: ArrayAdapter, other: Any) -> None:
    target = device.array(np.ones(4, np.float32))
    with pytest.raises(ValueError, match=r"does not fit float32\(4,\)"):
        adapter.copy_into(target, device.array(other))
    np.testing.assert_array_equal(target.to_host(), np.ones(4))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_poisoned_floats_are_far_below_what_is_expected(
    device: Device, adapter: ArrayAdapter, dtype: Any
) -> None:
    array = device.array(np.ones(4, dtype))
    adapter.poison(array)
    poisoned = adapter.to_host(array).astype(np.float64)
    assert (poisoned < -10).all()
    assert (adapter.to_host(array).view(np.uint8) == 0xFB).all()


def test_nbytes_is_the_size_of_the_elements(device: Device, adapter: ArrayAdapter) -> None:
    assert adapter.nbytes(device.array(np.zeros((3, 5), np.float64))) == 120


def test_arrays_of_the_device_are_taken_and_others_refused(device: Device, adapter: ArrayAdapter) -> None:
    assert adapter.is_device_array(device.array(numbers()))
    for value in (numbers(), np.float32(1), 3, "text", None, [device.array(numbers())], object()):
        assert not adapter.is_device_array(value)


def test_a_read_only_host_array_is_refused(adapter: ArrayAdapter) -> None:
    array = numbers()
    array.flags.writeable = False
    assert not adapter.is_device_array(array)


def test_the_adapter_waits_for_its_current_stream(device: Device, adapter: ArrayAdapter) -> None:
    out, host = device.array(numbers()), numbers()
    scale(device, out, device.array(numbers()))
    device.copy(host, out)
    adapter.synchronize()
    np.testing.assert_array_equal(host, 2 * numbers())


def test_a_stream_is_current_for_the_block_alone(device: Device, adapter: ArrayAdapter) -> None:
    before, stream = adapter.current_stream(), adapter.new_stream()
    assert before is device.current_stream()
    with adapter.on_stream(stream):
        assert adapter.current_stream() is stream
        assert not stream.blocking
    assert adapter.current_stream() is before


def test_copies_and_replays_go_to_the_current_stream(device: Device, adapter: ArrayAdapter) -> None:
    static = device.array(numbers(1))
    captured = adapter.capture(DoubleTo(device), (static,))
    executable, stream = captured.instantiate(), adapter.new_stream()
    with adapter.on_stream(stream):
        adapter.copy_into(static, device.array(numbers(4)))
        executable.launch()
        adapter.synchronize()  # of this stream alone: enough for all of it
    host = numbers()
    device.copy(host, captured.outputs, stream)
    stream.synchronize()
    np.testing.assert_array_equal(host, 2 * numbers(4))


def test_what_the_port_has_not_is_said_so(adapter: ArrayAdapter) -> None:
    assert isinstance(adapter.allocator_bytes(), NotMeasured)
    assert adapter.find_state(lambda: None) == {}
    adapter.set_random_state(adapter.random_state())
    adapter.recover()


def test_an_array_has_an_address(device: Device, adapter: ArrayAdapter) -> None:
    array = device.array(numbers())
    assert adapter.address(array) == array.pointer


# --- capture ----------------------------------------------------------------------------------------


def test_a_captured_step_replays_with_new_values(device: Device, adapter: ArrayAdapter) -> None:
    static = device.array(numbers())
    captured = adapter.capture(DoubleTo(device), (static,))
    executable = captured.instantiate()
    executable.upload()
    for start in (1.0, 7.0):
        adapter.copy_into(static, device.array(numbers(start)))
        adapter.poison(captured.outputs)
        executable.launch()
        np.testing.assert_array_equal(adapter.to_host(captured.outputs), 2 * numbers(start))
    assert executable.update(captured.graph).ok
    executable.destroy()
    with pytest.raises(DeviceError):
        executable.launch()


def test_capturing_runs_nothing(device: Device, adapter: ArrayAdapter) -> None:
    step, static = DoubleTo(device), device.array(numbers(1))
    captured = adapter.capture(step, (static,))
    np.testing.assert_array_equal(adapter.to_host(captured.outputs), numbers())


def test_the_steps_own_error_passes_and_nothing_captures(device: Device, adapter: ArrayAdapter) -> None:
    step, static = DoubleTo(device), device.array(numbers(1))
    streams = []

    def act() -> None:
        streams.append(device.current_stream())
        assert streams[0].is_capturing
        raise KeyError("weights")

    step.act = act
    with pytest.raises(KeyError, match="weights"):
        adapter.capture(step, (static,))
    assert streams[0] is not device.current_stream()
    assert not streams[0].is_capturing
    _assert_normal_path(device, adapter, step, static)


def test_a_prohibited_call_is_reported_and_nothing_captures(device: Device, adapter: ArrayAdapter) -> None:
    step, static = DoubleTo(device), device.array(numbers(1))
    step.act = static.to_host
    with pytest.raises(CaptureError) as caught:
        adapter.capture(step, (static,))
    assert caught.value.code == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
    _assert_normal_path(device, adapter, step, static)


def test_a_step_that_hides_its_prohibited_call_fails_at_the_end(
    device: Device, adapter: ArrayAdapter
) -> None:
    step, static = DoubleTo(device), device.array(numbers(1))

    def act() -> None:
        with pytest.raises(CaptureError):
            device.synchronize()

    step.act = act
    with pytest.raises(CaptureError) as caught:
        adapter.capture(step, (static,))
    assert caught.value.code == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    _assert_normal_path(device, adapter, step, static)


def test_a_stream_that_is_not_joined_fails_the_capture(device: Device, adapter: ArrayAdapter) -> None:
    step, static, side = DoubleTo(device), device.array(numbers(1)), device.create_stream()

    def act() -> None:
        side.wait(device.current_stream().record())
        with device.use_stream(side):
            scale(device, static, static)

    step.act = act
    with pytest.raises(CaptureError) as caught:
        adapter.capture(step, (static,))
    assert caught.value.code == "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"
    assert not side.is_capturing
    _assert_normal_path(device, adapter, step, static)


def _assert_normal_path(device: Device, adapter: ArrayAdapter, step: DoubleTo, static: Any) -> None:
    step.act = lambda: None
    adapter.recover()
    assert not device.current_stream().is_capturing
    np.testing.assert_array_equal(adapter.to_host(step(static)), 2 * numbers(1))
    captured = adapter.capture(step, (static,))
    captured.instantiate().launch()
    np.testing.assert_array_equal(adapter.to_host(captured.outputs), 2 * numbers(1))


def test_no_garbage_is_collected_while_a_step_is_captured(device: Device, adapter: ArrayAdapter) -> None:
    step, static = DoubleTo(device), device.array(numbers())
    enabled = []
    step.act = lambda: enabled.append(gc.isenabled())
    adapter.capture(step, (static,))
    assert enabled == [False]
    assert gc.isenabled()


def test_collection_stays_off_for_those_who_switched_it_off(device: Device, adapter: ArrayAdapter) -> None:
    gc.disable()
    try:
        adapter.capture(DoubleTo(device), (device.array(numbers()),))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_lost_context_during_capture_is_the_steps_error() -> None:
    device = SimulatedDevice()
    adapter, step, static = ArrayAdapter(device), DoubleTo(device), device.array(numbers())

    def act() -> None:
        device.inject(Fault("illegal_address"))
        with device.use_stream(device.create_stream()):
            scale(device, static, static)
            device.create_stream()

    step.act = act
    with pytest.raises(DeviceError) as caught:
        adapter.capture(step, (static,))
    assert caught.value.code == "CUDA_ERROR_ILLEGAL_ADDRESS"


# --- choice -----------------------------------------------------------------------------------------


def test_arrays_that_are_not_torchs_get_the_array_adapter(device: Device) -> None:
    assert isinstance(adapter_for(device, (device.array(numbers()), 3)), ArrayAdapter)
    assert isinstance(adapter_for(device, ()), ArrayAdapter)


class Tensor:
    """Looks like a tensor on the CPU."""

    device = "cpu"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (numbers(), "outputs[0] is a CPU numpy.ndarray, not a device array"),
        (3, "outputs[0] is a int, not a device array"),
        (Tensor(), f"outputs[0] is a CPU {__name__}.Tensor, not a device array"),
    ],
)
def test_the_complaint_names_the_value_and_its_type(value: Any, text: str) -> None:
    device = SimulatedDevice()
    good = device.array(numbers())
    complaint = unusable(ArrayAdapter(device), {"inputs": good, "outputs[0]": value, "outputs[1]": value})
    assert isinstance(complaint, WorkloadError)
    assert complaint.what == text
    assert "__cuda_array_interface__" in (complaint.hint or "")


def test_there_is_no_complaint_about_device_arrays(device: Device, adapter: ArrayAdapter) -> None:
    assert unusable(adapter, {"a": device.array(numbers())}) is None
