"""One contract for both devices: what holds on the simulated device holds on a GPU."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from device_programs import (
    ADD,
    COUNT,
    ONE_BLOCK,
    SCALE,
    assert_usable,
    blank,
    captured_scale,
    numbers,
    scale,
)

from cudagraph_gate.device.port import Device, DeviceArray, Graph, Node, Stream
from cudagraph_gate.errors import DeviceError, DeviceMemoryError, UsageError

MIB = 1 << 20


# --- memory and eager work ------------------------------------------------------------------------


def test_array_comes_back_as_it_went(device: Device) -> None:
    values = np.arange(12, dtype=np.int16).reshape(3, 4)
    array = device.array(values)
    assert (array.shape, array.dtype, array.nbytes) == ((3, 4), np.dtype(np.int16), 24)
    np.testing.assert_array_equal(array.to_host(), values)


def test_kept_arrays_are_freed_when_the_block_ends(device: Device) -> None:
    def let_go() -> int:
        return device.empty((16 * MIB,), np.uint8).pointer

    with device.watching_frees() as freed, device.keeping_arrays():
        kept = let_go()
        assert let_go() != kept
        assert freed == []
    with device.watching_frees() as freed:
        pointer = let_go()
        assert [address for address, _size in freed] == [pointer]


def test_an_array_without_elements_needs_no_memory(device: Device) -> None:
    array = device.empty((0, 4), np.float32)
    assert array.nbytes == 0
    assert array.to_host().shape == (0, 4)


def test_copies_go_between_host_and_device_and_within_the_device(device: Device, stream: Stream) -> None:
    first, second = blank(device), blank(device)
    host = np.zeros(COUNT, np.float32)
    device.copy(first, numbers(5), stream)
    device.copy(second, first, stream)
    device.copy(host, second, stream)
    stream.synchronize()
    np.testing.assert_array_equal(host, numbers(5))


def test_a_copy_between_unequal_sizes_is_refused(device: Device) -> None:
    with pytest.raises(ValueError, match="copy of 256 bytes into 8"):
        device.copy(device.empty((2,), np.float32), device.empty((64,), np.float32))


def test_fill_sets_every_byte(device: Device, stream: Stream) -> None:
    array = device.empty((5,), np.uint32)
    device.fill(array, 0xAB, stream)
    stream.synchronize()
    assert array.to_host().tolist() == [0xABABABAB] * 5


def test_a_kernel_computes(device: Device) -> None:
    left, right, out = device.array(numbers()), device.array(numbers(10)), blank(device)
    device.launch(ADD, ONE_BLOCK, (out, left, right))
    device.synchronize()
    np.testing.assert_array_equal(out.to_host(), 2 * numbers() + 10)


def test_a_view_shares_memory_and_its_free_does_nothing(device: Device) -> None:
    array = device.array(numbers())
    tail = device.view(array.pointer + 4 * 32, (32,), np.float32, owner=array)
    device.fill(tail, 0)
    device.synchronize()
    tail.free()
    expected = np.concatenate([numbers()[:32], np.zeros(32, np.float32)])
    np.testing.assert_array_equal(array.to_host(), expected)


def test_a_python_number_is_refused_as_an_argument(device: Device) -> None:
    array = blank(device)
    with pytest.raises(UsageError, match="argument 2 of kernel scale is a Python float"):
        device.launch(SCALE, ONE_BLOCK, (array, array, 2.0))


def test_memory_info_moves_with_a_large_allocation(device: Device) -> None:
    before = device.memory_info()
    array = device.empty((64 * MIB,), np.uint8)
    during = device.memory_info()
    array.free()
    after = device.memory_info()
    assert before.free_bytes - during.free_bytes >= 64 * MIB
    assert after.free_bytes - during.free_bytes >= 64 * MIB
    assert before.total_bytes == during.total_bytes


def test_an_array_gives_its_memory_back_when_it_dies(device: Device) -> None:
    array = device.empty((64 * MIB,), np.uint8)
    during = device.memory_info().free_bytes
    del array
    assert device.memory_info().free_bytes - during >= 64 * MIB


def test_freeing_twice_does_nothing(device: Device) -> None:
    array = blank(device)
    array.free()
    array.free()


def test_the_device_stays_usable_after_out_of_memory(device: Device, stream: Stream) -> None:
    too_much = 2 * device.memory_info().total_bytes
    with pytest.raises(DeviceMemoryError) as caught:
        device.empty((too_much,), np.uint8)
    assert caught.value.code == "CUDA_ERROR_OUT_OF_MEMORY"
    assert_usable(device, stream)


# --- streams and events ---------------------------------------------------------------------------


def test_an_event_orders_work_of_two_streams(device: Device, stream: Stream) -> None:
    other = device.create_stream()
    source, middle, out = device.array(numbers()), blank(device), blank(device)
    scale(device, middle, source, 2.0, stream)
    other.wait(stream.record())
    scale(device, out, middle, 5.0, other)
    other.synchronize()
    np.testing.assert_array_equal(out.to_host(), numbers() * 10)


def test_elapsed_time_between_events_is_not_negative(device: Device, stream: Stream) -> None:
    source, out = device.array(numbers()), blank(device)
    before = stream.record()
    scale(device, out, source, 2.0, stream)
    after = stream.record()
    after.synchronize()
    assert after.elapsed_ns(before) >= 0


def test_the_legacy_stream_is_ordered_with_blocking_streams(device: Device) -> None:
    blocking = device.create_stream(blocking=True)
    source, middle, out = device.array(numbers()), blank(device), blank(device)
    scale(device, middle, source, 2.0, blocking)
    scale(device, out, middle, 2.0, device.legacy_stream)
    device.legacy_stream.synchronize()
    np.testing.assert_array_equal(out.to_host(), numbers() * 4)
    assert blocking.blocking
    assert device.legacy_stream.blocking
    assert not device.create_stream().blocking


def test_use_stream_nests_and_restores(device: Device, stream: Stream) -> None:
    other, default = device.create_stream(), device.current_stream()
    with device.use_stream(stream):
        with device.use_stream(other):
            assert device.current_stream() is other
        assert device.current_stream() is stream
    assert device.current_stream() is default
    assert default is not device.legacy_stream


def test_use_stream_holds_for_its_own_thread_only(device: Device, stream: Stream) -> None:
    default = device.current_stream()
    seen: list[Stream] = []
    with device.use_stream(stream):
        thread = threading.Thread(target=lambda: seen.append(device.current_stream()))
        thread.start()
        thread.join()
    assert seen == [default]


def test_annotations_nest(device: Device, stream: Stream) -> None:
    with device.annotate("outer"), device.annotate("inner", domain="application"):
        assert_usable(device, stream)


def test_clocks_do_not_go_back(device: Device, stream: Stream) -> None:
    wall, cpu = device.clock_ns(), device.cpu_time_ns()
    assert_usable(device, stream)
    assert device.clock_ns() > wall
    assert device.cpu_time_ns() >= cpu


# --- capture and replay ---------------------------------------------------------------------------


def test_a_captured_graph_replays_on_new_inputs(device: Device, stream: Stream) -> None:
    source, out = device.array(numbers()), blank(device)
    executable = captured_scale(device, stream, out, source).instantiate()
    executable.upload(stream)
    for start in (1, 100, -7):
        device.copy(source, numbers(start), stream)
        executable.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(out.to_host(), numbers(start) * 2)
    executable.destroy()


def test_capture_records_and_does_not_run(device: Device, stream: Stream) -> None:
    source, out = device.array(numbers()), device.array(numbers(50))
    device.begin_capture(stream)
    assert stream.is_capturing
    scale(device, out, source, 2.0, stream)
    graph = device.end_capture(stream)
    assert not stream.is_capturing
    np.testing.assert_array_equal(out.to_host(), numbers(50))
    assert [(node.kind, node.name, node.shape) for node in graph.nodes()] == [("kernel", "scale", ONE_BLOCK)]


def test_work_on_an_unrelated_stream_escapes_the_capture(device: Device, stream: Stream) -> None:
    other = device.create_stream()
    source, escaped, out = device.array(numbers()), blank(device), blank(device)
    device.begin_capture(stream)
    scale(device, escaped, source, 3.0, other)
    scale(device, out, source, 2.0, stream)
    graph = device.end_capture(stream)
    assert len(graph.nodes()) == 1
    np.testing.assert_array_equal(escaped.to_host(), numbers() * 3)


def test_legacy_work_escapes_the_capture_of_a_non_blocking_stream(device: Device, stream: Stream) -> None:
    source, escaped, out = device.array(numbers()), blank(device), blank(device)
    device.begin_capture(stream)
    scale(device, escaped, source, 3.0, device.legacy_stream)
    scale(device, out, source, 2.0, stream)
    graph = device.end_capture(stream)
    assert len(graph.nodes()) == 1
    np.testing.assert_array_equal(escaped.to_host(), numbers() * 3)


def test_copies_and_fills_are_captured_in_order(device: Device, stream: Stream) -> None:
    source, out = device.array(numbers()), blank(device)
    device.begin_capture(stream)
    device.fill(out, 0xFF, stream)
    device.copy(out, source, stream)
    graph = device.end_capture(stream)
    assert [(node.kind, node.nbytes) for node in graph.nodes()] == [("memset", 256), ("memcpy", 256)]
    assert graph.edges() == ((0, 1),)
    graph.instantiate().launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(out.to_host(), numbers())


def test_a_captured_host_copy_reads_the_host_array_at_replay(device: Device, stream: Stream) -> None:
    host, target = numbers(), blank(device)
    device.begin_capture(stream)
    device.copy(target, host, stream)
    executable = device.end_capture(stream).instantiate()
    host[:] = numbers(1_000)
    executable.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(target.to_host(), numbers(1_000))


def test_fork_and_join_capture_their_edges(device: Device, stream: Stream) -> None:
    side = device.create_stream()
    source = device.array(numbers())
    first, left, right, out = (blank(device) for _ in range(4))
    device.begin_capture(stream)
    scale(device, first, source, 2.0, stream)
    side.wait(stream.record())
    assert side.is_capturing
    scale(device, left, first, 3.0, side)
    scale(device, right, first, 4.0, stream)
    stream.wait(side.record())
    device.launch(ADD, ONE_BLOCK, (out, left, right), stream)
    graph = device.end_capture(stream)
    names = [node.name for node in graph.nodes()]
    named_edges = sorted((names[source], names[target]) for source, target in graph.edges())
    assert named_edges == [("scale", "add")] * 2 + [("scale", "scale")] * 2
    assert not side.is_capturing
    graph.instantiate().launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(out.to_host(), numbers() * 14)


# --- explicit graphs, updates and ends ------------------------------------------------------------


def explicit(device: Device, out: DeviceArray, source: DeviceArray, factor: float) -> Graph:
    """out = factor * source after a memset of out."""
    graph = device.create_graph()
    cleared = graph.add_fill(out, 0)
    graph.add_kernel(SCALE, ONE_BLOCK, (out, source, np.float32(factor)), after=[cleared])
    return graph


def run(device: Device, executable: Any, stream: Stream, out: DeviceArray) -> Any:
    executable.launch(stream)
    stream.synchronize()
    return out.to_host()


def test_explicit_nodes_run_in_their_order(device: Device, stream: Stream) -> None:
    source, middle, out = device.array(numbers()), blank(device), blank(device)
    graph = device.create_graph()
    first: Node = graph.add_kernel(SCALE, ONE_BLOCK, (middle, source, np.float32(2)))
    second = graph.add_copy(out, middle, after=[first])
    graph.add_kernel(ADD, ONE_BLOCK, (out, out, middle), after=[second])
    assert [(node.index, node.kind) for node in graph.nodes()] == [
        (0, "kernel"),
        (1, "memcpy"),
        (2, "kernel"),
    ]
    assert sorted(graph.edges()) == [(0, 1), (1, 2)]
    assert (first.info.index, second.info.nbytes) == (0, 256)
    np.testing.assert_array_equal(run(device, graph.instantiate(), stream, out), numbers() * 4)


def test_an_update_takes_over_new_arguments(device: Device, stream: Stream) -> None:
    source, other, out = device.array(numbers()), device.array(numbers(9)), blank(device)
    executable = explicit(device, out, source, 2.0).instantiate()
    result = executable.update(explicit(device, out, other, 5.0))
    assert (result.ok, result.result) == (True, "CU_GRAPH_EXEC_UPDATE_SUCCESS")
    np.testing.assert_array_equal(run(device, executable, stream, out), numbers(9) * 5)


def test_an_update_to_another_topology_is_refused_and_changes_nothing(device: Device, stream: Stream) -> None:
    source, out = device.array(numbers()), blank(device)
    executable = explicit(device, out, source, 2.0).instantiate()
    longer = explicit(device, out, source, 5.0)
    longer.add_fill(out, 0)
    result = executable.update(longer)
    assert (result.ok, result.result) == (False, "CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED")
    np.testing.assert_array_equal(run(device, executable, stream, out), numbers() * 2)


def test_one_kernel_node_is_updated(device: Device, stream: Stream) -> None:
    source, out = device.array(numbers()), blank(device)
    graph = explicit(device, out, source, 2.0)
    executable = graph.instantiate()
    kernel_node = next(node for node in graph.nodes() if node.kind == "kernel")
    executable.update_kernel(kernel_node, SCALE, ONE_BLOCK, (out, source, np.float32(7)))
    np.testing.assert_array_equal(run(device, executable, stream, out), numbers() * 7)


def test_an_executable_outlives_its_graph(device: Device, stream: Stream) -> None:
    source, out = device.array(numbers()), blank(device)
    graph = explicit(device, out, source, 2.0)
    executable = graph.instantiate()
    graph.destroy()
    np.testing.assert_array_equal(run(device, executable, stream, out), numbers() * 2)


def test_a_destroyed_executable_is_not_launched(device: Device, stream: Stream) -> None:
    source, out = device.array(numbers()), blank(device)
    executable = captured_scale(device, stream, out, source).instantiate()
    executable.destroy()
    with pytest.raises(DeviceError) as caught:
        executable.launch(stream)
    assert caught.value.code == "CUDA_ERROR_INVALID_HANDLE"
    assert_usable(device, stream)


def test_a_destroyed_graph_is_not_instantiated(device: Device, stream: Stream) -> None:
    source, out = device.array(numbers()), blank(device)
    graph = captured_scale(device, stream, out, source)
    graph.destroy()
    with pytest.raises(DeviceError) as caught:
        graph.instantiate()
    assert caught.value.code == "CUDA_ERROR_INVALID_VALUE"
