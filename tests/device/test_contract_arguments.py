"""The contract of what a graph tells of its nodes' arguments, and of pinned memory."""

from __future__ import annotations

import sys
import threading

import numpy as np
from device_programs import blank, numbers, scale

from cudagraph_gate.device.port import Device, DeviceArray, Graph, Stream
from cudagraph_gate.errors import DeviceError


def captured(
    device: Device, stream: Stream, out: DeviceArray, source: DeviceArray, factor: float = 1.0
) -> Graph:
    device.begin_capture(stream)
    scale(device, out, source, factor, stream)
    device.fill(out, 7, stream)
    return device.end_capture(stream)


def test_scalars_are_told_by_value_and_addresses_are_known_as_such(device: Device, stream: Stream) -> None:
    source, out = device.array(numbers()), blank(device)
    kernel, fill = captured(device, stream, out, source, 2.5).arguments()
    addresses = {int.from_bytes(word.value, sys.byteorder) for word in kernel if word.is_address}
    assert addresses == {source.pointer, out.pointer}
    scalars = [word.value[:4] for word in kernel if not word.is_address]
    assert np.float32(2.5).tobytes() in scalars
    assert [int.from_bytes(word.value, sys.byteorder) for word in fill] == [7]


def test_arguments_stand_in_the_order_of_the_nodes(device: Device, stream: Stream) -> None:
    graph = captured(device, stream, blank(device), device.array(numbers()))
    assert len(graph.arguments()) == len(graph.nodes()) == 2


def test_pinned_memory_is_read_and_written_by_copies(device: Device, stream: Stream) -> None:
    pinned, array = device.pinned(64), device.empty((64,), np.uint8)
    pinned.array[:] = np.arange(64, dtype=np.uint8)
    device.copy(array, pinned.array, stream)
    stream.synchronize()
    np.testing.assert_array_equal(array.to_host(), np.arange(64, dtype=np.uint8))
    pinned.free()


def test_pinning_memory_in_another_threads_capture_is_permitted(device: Device, stream: Stream) -> None:
    failed: list[DeviceError] = []

    def pin() -> None:
        try:
            device.attach_thread()
            device.pinned(4_096).free()
        except DeviceError as error:
            failed.append(error)

    source, out = device.array(numbers()), blank(device)
    device.begin_capture(stream)
    scale(device, out, source, 2.0, stream)
    other = threading.Thread(target=pin)
    other.start()
    other.join()
    device.end_capture(stream).destroy()
    assert not failed


def test_nothing_is_told_of_a_copy(device: Device, stream: Stream) -> None:
    source, out = device.array(numbers()), blank(device)
    device.begin_capture(stream)
    device.copy(out, source, stream)
    (copy,) = device.end_capture(stream).arguments()
    assert copy == ()
