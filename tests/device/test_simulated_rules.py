"""Capture and update rules that only the simulated device lets a test provoke at will."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device_programs import ONE_BLOCK, SCALE, assert_usable, blank, code_of, numbers
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_programs import LONG, SHORT, launch

from cudagraph_gate.device.port import Device, Kernel, NodeInfo, Stream
from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.errors import CaptureError, DeviceError, UsageError

# --- capture rules --------------------------------------------------------------------------------


def in_thread(act: Callable[[], object]) -> str | None:
    """Run in another thread: the code of the device error that it raised, if any."""
    codes: list[str] = []

    def run() -> None:
        try:
            act()
        except DeviceError as error:
            codes.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return codes[0] if codes else None


def test_only_the_thread_that_began_a_capture_ends_it(exact: SimulatedDevice) -> None:
    stream = exact.create_stream()
    exact.begin_capture(stream)
    assert in_thread(lambda: exact.end_capture(stream)) == "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"
    assert_usable(exact, stream)


def test_only_the_origin_stream_ends_a_capture(exact: SimulatedDevice) -> None:
    stream, side = exact.create_stream(), exact.create_stream()
    exact.begin_capture(stream)
    launch(exact, SHORT, stream)
    side.wait(stream.record())
    assert code_of(lambda: exact.end_capture(side)) == "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"
    assert_usable(exact, stream)
    assert_usable(exact, side)


def test_another_thread_may_allocate_beside_a_thread_local_capture(exact: SimulatedDevice) -> None:
    stream = exact.create_stream()
    exact.begin_capture(stream, "thread_local")
    assert in_thread(lambda: exact.empty((64,), np.float32).free()) is None
    assert len(exact.end_capture(stream).nodes()) == 0


def test_another_thread_may_not_allocate_beside_a_global_capture(exact: SimulatedDevice) -> None:
    stream = exact.create_stream()
    exact.begin_capture(stream, "global")
    assert in_thread(lambda: exact.empty((64,), np.float32)) == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
    assert code_of(lambda: exact.end_capture(stream)) == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    assert_usable(exact, stream)


def test_another_thread_may_synchronise_its_stream_beside_a_thread_local_capture(
    exact: SimulatedDevice,
) -> None:
    stream, other = exact.create_stream(), exact.create_stream()
    exact.begin_capture(stream)
    assert in_thread(other.synchronize) is None
    assert len(exact.end_capture(stream).nodes()) == 0


def test_another_thread_may_not_synchronise_beside_a_global_capture(exact: SimulatedDevice) -> None:
    stream, other = exact.create_stream(), exact.create_stream()
    exact.begin_capture(stream, "global")
    assert in_thread(other.synchronize) == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
    assert code_of(lambda: exact.end_capture(stream)) == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"


def test_a_device_wide_wait_of_another_thread_breaks_every_capture(exact: SimulatedDevice) -> None:
    stream = exact.create_stream()
    exact.begin_capture(stream)
    assert in_thread(exact.synchronize) == "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
    assert code_of(lambda: exact.end_capture(stream)) == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"


def test_an_array_dropped_during_capture_breaks_it(exact: SimulatedDevice) -> None:
    stream, array = exact.create_stream(), exact.empty((1,), np.uint8)
    exact.begin_capture(stream)
    del array
    assert code_of(lambda: exact.end_capture(stream)) == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    assert_usable(exact, stream)


def test_a_blocking_fork_makes_legacy_work_prohibited(exact: SimulatedDevice) -> None:
    stream, blocking = exact.create_stream(), exact.create_stream(blocking=True)
    exact.begin_capture(stream)
    blocking.wait(stream.record())
    code = code_of(lambda: launch(exact, SHORT, exact.legacy_stream))
    assert code == "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
    with pytest.raises(CaptureError):
        exact.end_capture(stream)


def test_a_stream_can_join_through_a_third(exact: SimulatedDevice) -> None:
    stream, second, third = (exact.create_stream() for _ in range(3))
    exact.begin_capture(stream)
    second.wait(stream.record())
    launch(exact, SHORT, second)
    third.wait(second.record())
    launch(exact, LONG, third)
    stream.wait(third.record())
    assert exact.end_capture(stream).edges() == ((0, 1),)


def test_a_captured_event_means_nothing_after_the_capture(exact: SimulatedDevice) -> None:
    stream, other = exact.create_stream(), exact.create_stream()
    exact.begin_capture(stream)
    event = stream.record()
    exact.end_capture(stream)
    assert code_of(event.synchronize) == "CUDA_ERROR_INVALID_VALUE"
    assert code_of(lambda: other.wait(event)) == "CUDA_ERROR_INVALID_VALUE"
    assert_usable(exact, other)


@settings(deadline=None, max_examples=60)
@given(moves=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=20))
def test_a_capture_orders_what_eager_streams_would_order(moves: list[tuple[int, int]]) -> None:
    """``(a, a)`` launches on stream a; ``(a, b)`` makes a wait for b. Each node follows what it must."""
    device = SimulatedDevice()
    streams = [device.create_stream() for _ in range(4)]
    device.begin_capture(streams[0])
    for stream in streams[1:]:
        stream.wait(streams[0].record())
    before: list[set[int]] = [set() for _ in streams]
    must: list[set[int]] = []
    for stream, other in moves:
        if stream == other:
            launch(device, SHORT, streams[stream])
            must.append(set(before[stream]))
            before[stream].add(len(must) - 1)
        else:
            streams[stream].wait(streams[other].record())
            before[stream] |= before[other]
    for stream in streams[1:]:
        streams[0].wait(stream.record())
    graph = device.end_capture(streams[0])
    assert closure(graph.edges(), len(must)) == must


def closure(edges: tuple[tuple[int, int], ...], nodes: int) -> list[set[int]]:
    """All predecessors of each node; edges lead to later nodes."""
    before: list[set[int]] = [set() for _ in range(nodes)]
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        before[target] |= {source} | before[source]
    return before


# --- updates and foreign things -------------------------------------------------------------------


def two_nodes(device: Device, first: str) -> Any:
    """A graph whose first node is of the given kind, followed by a kernel."""
    graph, array = device.create_graph(), device.empty((64,), np.float32)
    added = {
        "fill": lambda: graph.add_fill(array, 0),
        "copy": lambda: graph.add_copy(array, array),
        "short": lambda: graph.add_kernel(SHORT, ONE_BLOCK, ()),
        "long": lambda: graph.add_kernel(LONG, ONE_BLOCK, ()),
    }[first]()
    graph.add_kernel(SHORT, ONE_BLOCK, (), after=[added])
    return graph


@pytest.mark.parametrize(
    ("new", "reason"),
    [("fill", "NODE_TYPE_CHANGED"), ("copy", "NODE_TYPE_CHANGED"), ("long", "FUNCTION_CHANGED")],
)
def test_a_refused_update_names_reason_and_node(exact: SimulatedDevice, new: str, reason: str) -> None:
    result = two_nodes(exact, "short").instantiate().update(two_nodes(exact, new))
    assert (result.ok, result.result) == (False, f"CU_GRAPH_EXEC_UPDATE_ERROR_{reason}")
    assert result.node == 0


def test_another_copy_direction_is_a_changed_parameter(exact: SimulatedDevice) -> None:
    stream, arrays, host = exact.create_stream(), (blank(exact), blank(exact)), numbers()

    def captured(source: Any) -> Any:
        exact.begin_capture(stream)
        exact.copy(arrays[0], source, stream)
        return exact.end_capture(stream)

    result = captured(arrays[1]).instantiate().update(captured(host))
    assert (result.result, result.node) == ("CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED", 0)


def test_a_node_takes_no_other_kernel(exact: SimulatedDevice) -> None:
    graph = two_nodes(exact, "fill")
    executable = graph.instantiate()

    def change(node: NodeInfo, kernel: Kernel) -> str:
        return code_of(lambda: executable.update_kernel(node, kernel, ONE_BLOCK, ()))

    assert change(graph.nodes()[0], SHORT) == "CUDA_ERROR_INVALID_VALUE"
    assert change(graph.nodes()[1], LONG) == "CUDA_ERROR_INVALID_VALUE"


def test_a_node_of_another_graph_is_refused(exact: SimulatedDevice) -> None:
    foreign = exact.create_graph().add_kernel(SHORT, ONE_BLOCK, ())
    graph = exact.create_graph()
    code = code_of(lambda: graph.add_kernel(SHORT, ONE_BLOCK, (), after=[foreign]))
    assert code == "CUDA_ERROR_INVALID_VALUE"


def test_foreign_graphs_and_arrays_do_not_pass(exact: SimulatedDevice) -> None:
    assert code_of(lambda: exact.adopt_graph(1, None)) == "CUDA_ERROR_NOT_SUPPORTED"
    assert not hasattr(blank(exact), "__cuda_array_interface__")
    graph = exact.create_graph()
    with pytest.raises(UsageError, match="argument 0 of kernel scale is a Python int"):
        graph.add_kernel(SCALE, ONE_BLOCK, (1,))


def test_foreign_streams_are_refused(exact: SimulatedDevice) -> None:
    class Foreign:
        """Looks like nothing of ours."""

    foreign: Stream = Foreign()  # type: ignore[assignment]
    with pytest.raises(TypeError, match="a stream of this device"):
        launch(exact, SHORT, foreign)
