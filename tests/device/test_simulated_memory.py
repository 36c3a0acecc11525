"""Memory, lost contexts and injected faults of the simulated device."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from device_programs import (
    ONE_BLOCK,
    SCALE,
    assert_usable,
    blank,
    captured_scale,
    code_of,
    numbers,
    scale,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_programs import SHORT, chain, launch

from cudagraph_gate.device.simulated import Fault, SimulatedDevice, SimulatedSpec
from cudagraph_gate.errors import DeviceMemoryError, StickyError

NOWHERE = 0x1000
"""An address that the device never allocates."""


# --- memory ---------------------------------------------------------------------------------------


def test_fresh_and_freed_memory_is_poisoned(exact: SimulatedDevice) -> None:
    array = exact.empty((4,), np.uint8)
    assert array.to_host().tolist() == [0xCD] * 4
    stale = exact.view(array.pointer, (4,), np.uint8, owner=None)
    array.free()
    assert stale.to_host().tolist() == [0xA5] * 4


def test_the_next_allocation_of_the_size_class_reuses_the_address(exact: SimulatedDevice) -> None:
    first, second = exact.empty((100,), np.uint8), exact.empty((300,), np.uint8)
    addresses = first.pointer, second.pointer
    first.free()
    second.free()
    assert exact.empty((512,), np.uint8).pointer == addresses[1]
    assert exact.empty((256,), np.uint8).pointer == addresses[0]
    assert all(address % 256 == 0 for address in addresses)


def test_memory_is_accounted_in_256_byte_units_and_per_node(exact: SimulatedDevice) -> None:
    assert exact.memory_info().free_bytes == 16 << 30
    array = exact.empty((257,), np.uint8)
    executable = chain(exact, SHORT, 10)
    assert exact.memory_info().free_bytes == (16 << 30) - 512 - 10 * 4_700
    executable.destroy()
    executable.destroy()
    array.free()
    assert exact.memory_info().free_bytes == exact.memory_info().total_bytes


def test_instantiating_needs_memory() -> None:
    device = SimulatedDevice(SimulatedSpec(memory_bytes=4_699))
    with pytest.raises(DeviceMemoryError):
        chain(device, SHORT, 1)


def test_a_replay_reads_whatever_its_addresses_hold(exact: SimulatedDevice) -> None:
    source, out, stream = exact.array(numbers()), blank(exact), exact.create_stream()
    executable = captured_scale(exact, stream, out, source).instantiate()
    source.free()
    other = exact.array(numbers(500))
    executable.launch(stream)
    np.testing.assert_array_equal(out.to_host(), 2 * numbers(500))
    assert other.nbytes == 256


def test_a_graph_does_not_keep_its_arrays_alive(exact: SimulatedDevice) -> None:
    stream, out = exact.create_stream(), blank(exact)
    free_bytes = exact.memory_info().free_bytes
    graph = captured_scale(exact, stream, out, exact.array(numbers()))
    assert len(graph.nodes()) == 1
    assert exact.memory_info().free_bytes == free_bytes


@settings(deadline=None, max_examples=50)
@given(sizes=st.lists(st.integers(1, 2_000), max_size=20), dropped=st.sets(st.integers(0, 19)))
def test_live_allocations_never_overlap(sizes: list[int], dropped: set[int]) -> None:
    device = SimulatedDevice()
    arrays = [device.empty((size,), np.uint8) for size in sizes]
    live = [array for index, array in enumerate(arrays) if index not in dropped]
    for index in dropped & set(range(len(arrays))):
        arrays[index].free()
    live += [device.empty((size,), np.uint8) for size in sizes]
    spans = sorted((array.pointer, array.pointer + array.nbytes) for array in live)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_arrays_dropped_by_the_collector_take_no_time(exact: SimulatedDevice) -> None:
    cycle: list[Any] = [exact.empty((1_000,), np.uint8)]
    cycle.append(cycle)
    before = exact.clock_ns()
    del cycle
    gc.collect()
    assert exact.clock_ns() == before
    assert exact.memory_info().free_bytes == exact.memory_info().total_bytes


def test_reading_or_copying_memory_that_is_not_there_is_an_invalid_value(exact: SimulatedDevice) -> None:
    array, nowhere = blank(exact), exact.view(NOWHERE, (64,), np.float32, owner=exact)
    assert code_of(nowhere.to_host) == "CUDA_ERROR_INVALID_VALUE"
    assert code_of(lambda: exact.copy(array, nowhere)) == "CUDA_ERROR_INVALID_VALUE"
    array.free()
    assert code_of(array.to_host) == "CUDA_ERROR_INVALID_VALUE"
    assert_usable(exact, exact.current_stream())


def test_host_sides_of_copies_are_checked(exact: SimulatedDevice) -> None:
    with pytest.raises(TypeError, match="one side"):
        exact.copy(numbers(), numbers())
    with pytest.raises(ValueError, match="contiguous"):
        exact.copy(exact.empty((32,), np.float32), numbers()[::2])


# --- lost contexts and injected faults ------------------------------------------------------------


def assert_lost(device: SimulatedDevice, code: str) -> None:
    """Every call fails with ``code``."""
    stream = device.current_stream()
    calls: list[Callable[[], object]] = [
        device.synchronize,
        device.memory_info,
        stream.synchronize,
        lambda: device.empty((1,), np.uint8),
        lambda: launch(device, SHORT, stream),
    ]
    for act in calls:
        with pytest.raises(StickyError) as caught:
            act()
        assert caught.value.code == code


def test_an_illegal_address_in_a_launch_loses_the_context(exact: SimulatedDevice) -> None:
    array, nowhere = blank(exact), exact.view(NOWHERE, (64,), np.float32, owner=exact)
    scale(exact, array, nowhere, 2.0, exact.current_stream())
    assert_lost(exact, "CUDA_ERROR_ILLEGAL_ADDRESS")


def test_an_illegal_address_in_a_replay_loses_the_context(exact: SimulatedDevice) -> None:
    array, stream = blank(exact), exact.create_stream()
    graph = exact.create_graph()
    beyond = exact.view(array.pointer + 128, (64,), np.float32, owner=array)
    graph.add_kernel(SCALE, ONE_BLOCK, (array, beyond, np.float32(2)))
    graph.instantiate().launch(stream)
    assert_lost(exact, "CUDA_ERROR_ILLEGAL_ADDRESS")


def test_a_lost_context_still_tells_the_time(exact: SimulatedDevice) -> None:
    exact.inject(Fault("illegal_address"))
    launch(exact, SHORT, exact.current_stream())
    assert exact.clock_ns() == exact.cpu_time_ns() == 5_000


def test_a_launch_fault_fires_after_its_launches(exact: SimulatedDevice) -> None:
    stream = exact.create_stream()
    executable = chain(exact, SHORT, 1)
    exact.inject(Fault("launch_failed", after_launches=2))
    launch(exact, SHORT, stream)
    executable.launch(stream)
    stream.synchronize()
    launch(exact, SHORT, stream)
    assert_lost(exact, "CUDA_ERROR_LAUNCH_FAILED")


def test_a_memory_fault_fails_one_allocation(exact: SimulatedDevice) -> None:
    exact.inject(Fault("out_of_memory", after_allocations=1))
    exact.empty((1,), np.uint8)
    assert code_of(lambda: exact.empty((1,), np.uint8)) == "CUDA_ERROR_OUT_OF_MEMORY"
    assert_usable(exact, exact.current_stream())


def test_a_memory_fault_can_hit_an_instantiation(exact: SimulatedDevice) -> None:
    exact.inject(Fault("out_of_memory"))
    assert code_of(lambda: chain(exact, SHORT, 1)) == "CUDA_ERROR_OUT_OF_MEMORY"
    assert chain(exact, SHORT, 1) is not None


def test_a_closed_device_refuses_calls() -> None:
    device = SimulatedDevice()
    array = device.empty((1,), np.uint8)
    device.close()
    assert code_of(device.synchronize) == "CUDA_ERROR_DEINITIALIZED"
    assert code_of(array.to_host) == "CUDA_ERROR_DEINITIALIZED"


def test_destroying_an_executable_of_a_lost_context_fails_too(exact: SimulatedDevice) -> None:
    executable = chain(exact, SHORT, 1)
    exact.inject(Fault("launch_failed"))
    launch(exact, SHORT, exact.current_stream())
    assert code_of(executable.destroy) == "CUDA_ERROR_LAUNCH_FAILED"


def test_a_view_without_an_owner_frees_nothing(exact: SimulatedDevice) -> None:
    array = exact.array(numbers())
    view = exact.view(array.pointer, (64,), np.float32, owner=None)
    view.free()
    del view
    np.testing.assert_array_equal(array.to_host(), numbers())
