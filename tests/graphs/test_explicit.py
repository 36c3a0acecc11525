"""A graph that is built node by node serves a step as a captured one does."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from portable_kernel import COUNT, ONE_BLOCK, SCALE, numbers, scale

from cudagraph_gate.adapters.cuda_core import ArrayAdapter
from cudagraph_gate.device import Device, DeviceArray
from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.errors import DeviceError, WorkloadError
from cudagraph_gate.graphs.explicit import ExplicitGraph, ExplicitSource
from cudagraph_gate.graphs.graphed_step import GraphedStep, State

Build = Callable[[ExplicitGraph], Any]


class Step:
    """``2 * x`` and ``6 * x``, by a step and by a builder of the same nodes."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.twice, self.six = device.array(numbers()), device.array(numbers())

    def __call__(self, x: DeviceArray) -> Any:
        scale(self.device, self.twice, x)
        scale(self.device, self.six, self.twice, 3.0)
        return self.twice, self.six

    def build(self, graph: ExplicitGraph) -> Any:
        device = self.device
        x, twice, six = (device.empty((COUNT,), np.float32) for _ in range(3))
        first = graph.add_kernel(SCALE, ONE_BLOCK, (twice, x, np.float32(2)))
        graph.add_kernel(SCALE, ONE_BLOCK, (six, twice, np.float32(3)), after=[first])
        return (x,), (twice, six)


def graphed(device: Device, step: Any, build: Build) -> GraphedStep:
    adapter = ArrayAdapter(device)
    source = ExplicitSource(adapter, device, build, where="w.py:7")
    return GraphedStep(adapter, step, (device.array(numbers()),), source=source)


def made_ready(made: GraphedStep) -> GraphedStep:
    made.warm_up(1)
    made.capture()
    made.instantiate()
    made.upload()
    return made


def values(outputs: Any) -> list[Any]:
    return [output.to_host() for output in outputs]


# --- the graph path -------------------------------------------------------------------------------


def test_replays_give_what_a_capture_gives(device: Device) -> None:
    step = Step(device)
    explicit = made_ready(graphed(device, step, step.build))
    captured = made_ready(GraphedStep(ArrayAdapter(device), step, (device.array(numbers()),)))
    for start in (1.0, 50.0, -3.0):
        x = device.array(numbers(start))
        built, caught = values(explicit.replay((x,))), values(captured.replay((x,)))
        np.testing.assert_array_equal(built, caught)
        np.testing.assert_array_equal(built, [2 * numbers(start), 6 * numbers(start)])


def test_the_first_replay_sees_the_examples_values(device: Device) -> None:
    step = Step(device)
    made = made_ready(graphed(device, step, step.build))
    made.launch()
    device.synchronize()
    np.testing.assert_array_equal(values(made.outputs)[1], 6 * numbers())


def test_arrays_that_only_nodes_use_live_as_long_as_the_executable(device: Device) -> None:
    def build(graph: ExplicitGraph) -> Any:
        x, middle, out = (device.empty((COUNT,), np.float32) for _ in range(3))
        first = graph.add_kernel(SCALE, ONE_BLOCK, (middle, x, np.float32(2)))
        second = graph.add_copy(out, middle, after=[first])
        graph.add_fill(middle, 0, after=[second])
        return x, out

    made = made_ready(graphed(device, Step(device), build))
    gc.collect()
    others = [device.array(numbers(99)) for _ in range(8)]
    np.testing.assert_array_equal(made.replay((device.array(numbers(5)),)).to_host(), 2 * numbers(5))
    np.testing.assert_array_equal(values(others), [numbers(99)] * 8)


def test_what_nodes_use_is_freed_with_the_executable() -> None:
    device = SimulatedDevice()
    step = Step(device)
    made = graphed(device, step, step.build)
    made.warm_up(1)
    before = device.memory_info().free_bytes
    made.capture()
    made.instantiate()
    assert device.memory_info().free_bytes < before
    made.invalidate()
    gc.collect()
    assert device.memory_info().free_bytes >= before  # its own inputs are dropped as well


def test_a_missing_node_gives_wrong_outputs(device: Device) -> None:
    step = Step(device)

    def build(graph: ExplicitGraph) -> Any:
        x, twice = device.empty((COUNT,), np.float32), device.array(numbers())
        six = device.array(numbers(1))
        graph.add_kernel(SCALE, ONE_BLOCK, (twice, x, np.float32(2)))
        return (x,), (twice, six)

    twice, six = values(made_ready(graphed(device, step, build)).replay((device.array(numbers(4)),)))
    np.testing.assert_array_equal(twice, 2 * numbers(4))
    np.testing.assert_array_equal(six, numbers(1))


def test_a_step_without_inputs_needs_no_static_ones(device: Device) -> None:
    def build(graph: ExplicitGraph) -> Any:
        out = device.array(numbers())
        graph.add_fill(out, 0)
        return None, out

    adapter = ArrayAdapter(device)
    step = GraphedStep(adapter, lambda: None, (), source=ExplicitSource(adapter, device, build))
    np.testing.assert_array_equal(made_ready(step).replay(()).to_host(), 0 * numbers())


def test_each_graph_of_a_source_is_built_anew(device: Device) -> None:
    adapter, step = ArrayAdapter(device), Step(device)
    source = ExplicitSource(adapter, device, step.build)
    example = (device.array(numbers()),)
    first, second = source.static_inputs(example), source.static_inputs(example)
    assert first[0].pointer != second[0].pointer
    assert source.capture(second).outputs[0].pointer not in (first[0].pointer, second[0].pointer)


def test_a_graph_is_given_out_for_its_own_inputs_only_and_once(device: Device) -> None:
    adapter, step = ArrayAdapter(device), Step(device)
    source = ExplicitSource(adapter, device, step.build)
    static = source.static_inputs((device.array(numbers()),))
    with pytest.raises(RuntimeError, match="reads its own inputs"):
        source.capture((device.array(numbers()),))
    with pytest.raises(RuntimeError, match="reads its own inputs"):
        source.capture(static)


# --- what a builder may get wrong -----------------------------------------------------------------


def one_fill(returned: Callable[[Device, DeviceArray], Any]) -> Callable[[Device], Build]:
    """A builder of one memset that returns what is asked for."""

    def of(device: Device) -> Build:
        def build(graph: ExplicitGraph) -> Any:
            array = device.array(numbers())
            graph.add_fill(array, 0)
            return returned(device, array)

        return build

    return of


def other(dtype: Any, count: int = COUNT) -> Callable[[Device, DeviceArray], Any]:
    return lambda device, array: (device.empty((count,), dtype), array)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda _device, _array: None, "returned a NoneType, not inputs and outputs"),
        (lambda _device, array: array, r"returned a \w+Array, not inputs and outputs"),
        (lambda _device, array: (array,), "returned a tuple of 1, not inputs and outputs"),
        (lambda _device, array: ((), array), "returned 0 inputs, and step takes 1"),
        (
            lambda device, array: ((array, device.array(numbers())), array),
            "returned 2 inputs, and step takes 1",
        ),
        (lambda _device, array: (numbers(), array), "no usable inputs: input 0 is a CPU numpy.ndarray"),
        (lambda _device, array: (array, None), "no output in device memory: there is none"),
        (
            lambda _device, array: (array, {"y": numbers()}),
            "no output in device memory: y is a CPU numpy.ndarray",
        ),
        (other(np.float32, 3), r"an input 0 that can't be used: float32\(64,\) does not fit float32\(3,\)"),
        (other(np.int32), r"an input 0 that can't be used: float32\(64,\) does not fit int32\(64,\)"),
    ],
)
def test_a_wrong_return_is_one_clear_error(
    device: Device, returned: Callable[[Device, DeviceArray], Any], message: str
) -> None:
    made = graphed(device, Step(device), one_fill(returned)(device))
    made.warm_up(1)
    with pytest.raises(WorkloadError, match=f"^w.py:7: build_explicit .*{message}"):
        made.capture()
    assert made.state is State.FALLBACK
    twice, _six = values(made(device.array(numbers(2))))
    np.testing.assert_array_equal(twice, 2 * numbers(2))


def test_one_array_for_two_inputs_is_refused(device: Device) -> None:
    def build(graph: ExplicitGraph) -> Any:
        x = device.array(numbers())
        graph.add_fill(x, 0)
        return (x, device.view(x.pointer, (COUNT,), np.float32, x)), x

    source = ExplicitSource(ArrayAdapter(device), device, build)
    with pytest.raises(WorkloadError, match="the same array as input 0 and input 1"):
        source.static_inputs((device.array(numbers()), device.array(numbers())))


def test_a_graph_without_nodes_is_refused(device: Device) -> None:
    array = device.array(numbers())
    source = ExplicitSource(ArrayAdapter(device), device, lambda _graph: (array, array))
    with pytest.raises(WorkloadError, match="build_explicit added no node to the graph"):
        source.static_inputs((array,))


def test_what_the_builder_raises_passes(device: Device) -> None:
    def build(_graph: ExplicitGraph) -> Any:
        raise KeyError("weights")

    with pytest.raises(KeyError, match="weights"):
        ExplicitSource(ArrayAdapter(device), device, build).static_inputs((device.array(numbers()),))


# --- cuda.core's own graph ------------------------------------------------------------------------


def test_the_simulated_device_says_that_it_has_no_cuda_core_graph() -> None:
    device = SimulatedDevice()
    source = ExplicitSource(ArrayAdapter(device), device, lambda graph: graph.definition)
    with pytest.raises(DeviceError, match="use add_kernel, add_copy and add_fill") as caught:
        source.static_inputs(())
    assert caught.value.code == "CUDA_ERROR_NOT_SUPPORTED"


@pytest.fixture
def gpu() -> Any:
    from cudagraph_gate.device.cuda import CudaDevice

    return CudaDevice()


@pytest.mark.gpu
def test_nodes_of_cuda_core_and_of_the_port_make_one_graph(gpu: Any) -> None:
    def build(graph: ExplicitGraph) -> Any:
        x, middle, out = (gpu.empty((COUNT,), np.float32) for _ in range(3))
        graph.keep(middle)
        copied = graph.definition.memcpy(middle.pointer, x.pointer, x.nbytes)
        graph.add_kernel(SCALE, ONE_BLOCK, (out, middle, np.float32(2)), after=[copied])
        assert [(node.kind, node.detail) for node in graph.nodes()] == [("memcpy", "DtoD"), ("kernel", "")]
        assert graph.edges() == ((0, 1),)
        return x, out

    made = made_ready(graphed(gpu, Step(gpu), build))
    for start in (3.0, 40.0):
        np.testing.assert_array_equal(made.replay((gpu.array(numbers(start)),)).to_host(), 2 * numbers(start))


@pytest.mark.gpu
def test_an_executable_outlives_the_graph_that_cuda_core_owns(gpu: Any) -> None:
    source, out = gpu.array(numbers()), gpu.array(numbers())
    graph = gpu.create_graph()
    graph.definition.memcpy(out.pointer, source.pointer, source.nbytes)
    executable = graph.instantiate()
    graph.destroy()
    gc.collect()
    gpu.copy(source, numbers(7))
    gpu.synchronize()
    executable.launch(gpu.current_stream())
    np.testing.assert_array_equal(out.to_host(), numbers(7))
    with pytest.raises(DeviceError, match="the graph was destroyed"):
        _ = graph.definition


@pytest.mark.gpu
def test_a_captured_graph_has_no_definition_and_says_so(gpu: Any) -> None:
    stream, out = gpu.create_stream(), gpu.array(numbers())
    gpu.begin_capture(stream)
    gpu.fill(out, 0, stream)
    graph = gpu.end_capture(stream)
    with pytest.raises(DeviceError, match="a captured graph has none") as caught:
        _ = graph.definition
    assert caught.value.code == "CUDA_ERROR_NOT_SUPPORTED"


@pytest.mark.gpu
def test_something_else_in_after_is_refused_not_dropped(gpu: Any) -> None:
    made: Any = object()
    with pytest.raises(DeviceError, match="object is no node"):
        gpu.create_graph().add_fill(gpu.array(numbers()), 0, after=[made])


@pytest.mark.gpu
def test_inner_graphs_callbacks_and_allocations_tell_what_they_are(gpu: Any) -> None:
    from cuda.core.graph import GraphDefinition

    inner = GraphDefinition()
    array = gpu.array(numbers())
    inner.memset(array.pointer, 0, array.nbytes).memset(array.pointer, 1, array.nbytes)
    graph = gpu.create_graph()
    taken = graph.definition.allocate(4096)
    last = taken.callback(lambda: None).embed(inner)
    last.deallocate(taken.dptr)
    told = [(node.kind, node.nbytes, node.detail) for node in graph.nodes()]
    assert sorted(told, key=str) == sorted(
        [("alloc", 4096, ""), ("host", None, ""), ("child", None, "graph of 2 nodes"), ("free", None, "")],
        key=str,
    )


@pytest.mark.gpu
def test_copies_tell_their_direction_and_the_hosts_kind_of_memory(gpu: Any) -> None:
    host, array = numbers(), gpu.array(numbers())
    stream = gpu.create_stream()
    gpu.begin_capture(stream)
    gpu.copy(array, host, stream)
    gpu.copy(host, array, stream)
    told = [node.detail for node in gpu.end_capture(stream).nodes()]
    assert told == ["HtoD from pageable memory", "DtoH to pageable memory"]
