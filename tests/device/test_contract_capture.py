"""The contract's prohibitions: which call breaks a capture, with which code, and that the device recovers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from device_programs import COUNT, assert_usable, blank, numbers, scale

from cudagraph_gate.device.port import Device, Stream
from cudagraph_gate.errors import CaptureError, DeviceError

UNSUPPORTED = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"


def violation(device: Device, stream: Stream, act: Callable[[], object]) -> str:
    """Capture a kernel, do something that breaks it: its code; the capture is invalid and ends."""
    source, out = device.array(numbers()), blank(device)
    device.begin_capture(stream)
    scale(device, out, source, 2.0, stream)
    with pytest.raises(CaptureError) as caught:
        act()
    with pytest.raises(CaptureError) as ended:
        device.end_capture(stream)
    assert ended.value.code == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    assert_usable(device, stream)
    return caught.value.code


def test_synchronising_the_capturing_stream_breaks_the_capture(device: Device, stream: Stream) -> None:
    assert violation(device, stream, stream.synchronize) == UNSUPPORTED


def test_synchronising_the_device_breaks_the_capture(device: Device, stream: Stream) -> None:
    assert violation(device, stream, device.synchronize) == UNSUPPORTED


def test_reading_an_array_breaks_the_capture(device: Device, stream: Stream) -> None:
    assert violation(device, stream, device.array(numbers()).to_host) == UNSUPPORTED


def test_allocating_breaks_the_capture(device: Device, stream: Stream) -> None:
    assert violation(device, stream, lambda: device.empty((COUNT,), np.float32)) == UNSUPPORTED


def test_freeing_breaks_the_capture_and_the_memory_stays(device: Device, stream: Stream) -> None:
    array = device.array(numbers())
    assert violation(device, stream, array.free) == UNSUPPORTED
    np.testing.assert_array_equal(array.to_host(), numbers())


def test_legacy_work_breaks_the_capture_of_a_blocking_stream(device: Device) -> None:
    blocking, array = device.create_stream(blocking=True), device.array(numbers())

    def act() -> None:
        scale(device, array, array, 2.0, device.legacy_stream)

    assert violation(device, blocking, act) == "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"


def test_waiting_for_an_uncaptured_event_breaks_the_capture(device: Device, stream: Stream) -> None:
    event = device.create_stream().record()
    code = violation(device, stream, lambda: stream.wait(event))
    assert code == "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"


def test_waiting_for_a_captured_event_on_the_host_breaks_the_capture(device: Device, stream: Stream) -> None:
    def act() -> None:
        stream.record().synchronize()

    assert violation(device, stream, act) == "CUDA_ERROR_CAPTURED_EVENT"


def test_work_after_a_violation_is_refused(device: Device, stream: Stream) -> None:
    source, out = device.array(numbers()), blank(device)
    device.begin_capture(stream)
    with pytest.raises(CaptureError):
        stream.synchronize()
    assert stream.is_capturing
    with pytest.raises(CaptureError) as caught:
        scale(device, out, source, 2.0, stream)
    assert caught.value.code == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    with pytest.raises(CaptureError):
        device.end_capture(stream)
    assert_usable(device, stream)


def test_two_captures_do_not_merge(device: Device, stream: Stream) -> None:
    other = device.create_stream()
    source, out = device.array(numbers()), blank(device)
    device.begin_capture(other)
    scale(device, out, source, 2.0, other)
    event = other.record()
    device.begin_capture(stream)
    with pytest.raises(CaptureError) as caught:
        stream.wait(event)
    assert caught.value.code == "CUDA_ERROR_STREAM_CAPTURE_MERGE"
    end_whatever_happens(device, stream)
    end_whatever_happens(device, other)
    assert_usable(device, stream)
    assert_usable(device, other)


def test_an_unjoined_fork_is_refused_at_the_end(device: Device, stream: Stream) -> None:
    side, source, out = device.create_stream(), device.array(numbers()), blank(device)
    device.begin_capture(stream)
    scale(device, out, source, 2.0, stream)
    side.wait(stream.record())
    scale(device, out, source, 3.0, side)
    with pytest.raises(CaptureError) as caught:
        device.end_capture(stream)
    assert caught.value.code == "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"
    assert_usable(device, stream)
    assert_usable(device, side)


def test_the_legacy_stream_can_not_capture(device: Device) -> None:
    with pytest.raises(CaptureError) as caught:
        device.begin_capture(device.legacy_stream)
    assert caught.value.code == UNSUPPORTED
    assert_usable(device, device.legacy_stream)


def test_beginning_twice_is_refused(device: Device, stream: Stream) -> None:
    device.begin_capture(stream)
    with pytest.raises(DeviceError) as caught:
        device.begin_capture(stream)
    assert caught.value.code == "CUDA_ERROR_ILLEGAL_STATE"
    end_whatever_happens(device, stream)
    assert_usable(device, stream)


def end_whatever_happens(device: Device, stream: Stream) -> None:
    try:
        device.end_capture(stream)
    except CaptureError:
        return


def test_ending_without_a_capture_is_refused(device: Device, stream: Stream) -> None:
    with pytest.raises(DeviceError) as caught:
        device.end_capture(stream)
    assert caught.value.code == "CUDA_ERROR_ILLEGAL_STATE"
    assert_usable(device, stream)


def test_synchronising_an_unrelated_stream_breaks_the_capture_too(device: Device, stream: Stream) -> None:
    assert violation(device, stream, device.create_stream().synchronize) == UNSUPPORTED


def test_recording_on_the_legacy_stream_breaks_a_blocking_capture(device: Device) -> None:
    blocking = device.create_stream(blocking=True)
    code = violation(device, blocking, device.legacy_stream.record)
    assert code == "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"


def test_a_replay_into_a_capturing_stream_breaks_the_capture(device: Device, stream: Stream) -> None:
    executable = device.create_graph().instantiate()
    assert violation(device, stream, lambda: executable.launch(stream)) == UNSUPPORTED


def test_a_fork_without_work_needs_no_join(device: Device, stream: Stream) -> None:
    side, source, out = device.create_stream(), device.array(numbers()), blank(device)
    device.begin_capture(stream)
    scale(device, out, source, 2.0, stream)
    side.wait(stream.record())
    assert len(device.end_capture(stream).nodes()) == 1
    assert not side.is_capturing
