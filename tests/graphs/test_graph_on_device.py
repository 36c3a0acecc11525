"""A graphed step and a graph's contents with real arrays, on the simulated device and on a GPU."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from portable_kernel import ONE_BLOCK, SCALE, numbers, scale

from cudagraph_gate.adapters.cuda_core import ArrayAdapter
from cudagraph_gate.device import Device, DeviceArray
from cudagraph_gate.device.port import Graph
from cudagraph_gate.device.simulated import Fault, SimulatedDevice
from cudagraph_gate.errors import CaptureError, DeviceError, DeviceMemoryError
from cudagraph_gate.graphs import GraphContents, GraphedStep, State, contents


class Step:
    """``4 * source`` by two kernels into arrays of its own; ``act`` runs between them."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._half = device.array(numbers())
        self._out = device.array(numbers())
        self.act: Any = lambda: None

    def __call__(self, source: DeviceArray) -> DeviceArray:
        scale(self._device, self._half, source)
        self.act()
        scale(self._device, self._out, self._half)
        return self._out


def ready(device: Device) -> tuple[GraphedStep, Step]:
    step = Step(device)
    graphed = GraphedStep(ArrayAdapter(device), step, (device.array(numbers()),))
    graphed.warm_up(2)
    graphed.capture()
    graphed.instantiate()
    graphed.upload()
    return graphed, step


def assert_right(device: Device, graphed: GraphedStep, start: float) -> None:
    returned = graphed(device.array(numbers(start)))
    np.testing.assert_array_equal(returned.to_host(), 4 * numbers(start))


def test_replays_with_new_inputs_are_right(device: Device) -> None:
    graphed, _step = ready(device)
    for start in (1.0, 50.0, -3.0):
        assert_right(device, graphed, start)
    assert graphed.state is State.READY


def test_the_callers_inputs_may_go_between_replays(device: Device) -> None:
    graphed, _step = ready(device)
    gc.collect()
    churn = [device.array(numbers(index)) for index in range(8)]
    assert_right(device, graphed, 9.0)
    for array in churn:
        array.free()
    assert_right(device, graphed, 11.0)


def test_an_update_from_its_own_graph_succeeds_and_replays_stay_right(device: Device) -> None:
    graphed, _step = ready(device)
    assert graphed.update().ok
    assert_right(device, graphed, 5.0)


def test_after_instantiating_again_replays_stay_right(device: Device) -> None:
    graphed, _step = ready(device)
    for start in (5.0, 6.0):
        graphed.reinstantiate()
        assert_right(device, graphed, start)


def test_instantiating_again_takes_no_more_memory() -> None:
    device = SimulatedDevice()
    graphed, _step = ready(device)
    before = device.memory_info().free_bytes
    graphed.reinstantiate()
    assert device.memory_info().free_bytes == before


def test_no_memory_at_instantiating_again_leads_to_the_normal_path() -> None:
    device = SimulatedDevice()
    graphed, _step = ready(device)
    device.inject(Fault("out_of_memory"))
    with pytest.raises(DeviceMemoryError):
        graphed.reinstantiate()
    assert graphed.state is State.FALLBACK
    assert_right(device, graphed, 6.0)


def test_a_prohibited_call_in_capture_leaves_the_normal_path_right(device: Device) -> None:
    step = Step(device)
    graphed = GraphedStep(ArrayAdapter(device), step, (device.array(numbers()),))
    graphed.warm_up(1)
    step.act = device.synchronize
    with pytest.raises(CaptureError):
        graphed.capture()
    assert graphed.state is State.FALLBACK
    assert not device.current_stream().is_capturing
    assert_right(device, graphed, 3.0)


def test_after_giving_up_the_normal_path_is_right(device: Device) -> None:
    graphed, _step = ready(device)
    graphed.invalidate()
    assert_right(device, graphed, 2.0)


def test_giving_up_returns_the_executables_memory() -> None:
    device = SimulatedDevice()
    step, example = Step(device), device.array(numbers())
    before = device.memory_info().free_bytes
    graphed = GraphedStep(ArrayAdapter(device), step, (example,))
    graphed.warm_up(1)
    graphed.capture()
    graphed.instantiate()
    assert device.memory_info().free_bytes < before
    graphed.invalidate()
    assert device.memory_info().free_bytes == before


def test_no_memory_at_instantiation_leads_to_the_normal_path() -> None:
    device = SimulatedDevice()
    graphed = GraphedStep(ArrayAdapter(device), Step(device), (device.array(numbers()),))
    graphed.warm_up(1)
    graphed.capture()
    device.inject(Fault("out_of_memory"))
    with pytest.raises(DeviceMemoryError):
        graphed.instantiate()
    assert graphed.state is State.FALLBACK
    assert_right(device, graphed, 6.0)


def test_a_lost_context_is_reported_by_the_call_that_met_it() -> None:
    device = SimulatedDevice()
    graphed, _step = ready(device)
    device.inject(Fault("illegal_address"))
    graphed.launch()
    with pytest.raises(DeviceError) as caught:
        graphed.launch()
    assert caught.value.code == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert graphed.state is State.FALLBACK


# --- contents ---------------------------------------------------------------------------------------


def explicit(device: Device) -> Graph:
    """Three kernels, a copy and a memset."""
    one, other, graph = device.array(numbers()), device.array(numbers()), device.create_graph()
    for _ in range(3):
        graph.add_kernel(SCALE, ONE_BLOCK, (one, other, np.float32(1)))
    graph.add_copy(one, other)
    graph.add_fill(one, 0)
    return graph


def test_contents_count_nodes_kinds_and_kernels(device: Device) -> None:
    assert contents(explicit(device)) == GraphContents(
        nodes=5, kinds={"kernel": 3, "memcpy": 1, "memset": 1}, kernels={"scale": 3}
    )


def test_contents_of_a_captured_step(device: Device) -> None:
    step = Step(device)
    captured = ArrayAdapter(device).capture(step, (device.array(numbers()),))
    assert contents(captured.graph) == GraphContents(nodes=2, kinds={"kernel": 2}, kernels={"scale": 2})


def test_an_empty_graph_has_no_contents(device: Device) -> None:
    assert contents(device.create_graph()) == GraphContents(nodes=0, kinds={}, kernels={})
