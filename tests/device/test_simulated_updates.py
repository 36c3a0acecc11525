"""What node updates cost on the simulated device, and what it refuses beyond the contract's reach."""

from __future__ import annotations

import numpy as np
from device_programs import ONE_BLOCK, SCALE, blank, code_of, numbers

from cudagraph_gate.device.port import NodeInfo, UpdateResult
from cudagraph_gate.device.simulated import SimulatedDevice


def test_updates_take_the_specs_time(exact: SimulatedDevice) -> None:
    array, graph = blank(exact), exact.create_graph()
    for _ in range(3):
        graph.add_kernel(SCALE, ONE_BLOCK, (array, array, np.float32(1)))
    graph.add_copy(array, array)
    graph.add_fill(array, 0)
    executable, nodes = graph.instantiate(), graph.nodes()

    start = exact.clock_ns()
    executable.update(graph)
    assert exact.clock_ns() - start == 1_000 + 5 * 80
    start = exact.clock_ns()
    executable.retouch(nodes)
    assert exact.clock_ns() - start == 5 * 1_000
    start = exact.clock_ns()
    executable.update_copy(nodes[3], array, array)
    executable.update_fill(nodes[4], array, 1)
    assert exact.clock_ns() - start == 2 * (1_000 + 80)


def test_freed_memory_is_no_target(exact: SimulatedDevice) -> None:
    array, gone, graph = blank(exact), blank(exact), exact.create_graph()
    graph.add_copy(array, array)
    graph.add_fill(array, 0)
    executable, (copy, fill) = graph.instantiate(), graph.nodes()
    gone.free()
    assert code_of(lambda: executable.update_copy(copy, gone, array)) == "CUDA_ERROR_INVALID_VALUE"
    assert code_of(lambda: executable.update_fill(fill, gone, 0)) == "CUDA_ERROR_INVALID_VALUE"


def test_a_copy_keeps_its_direction(exact: SimulatedDevice) -> None:
    array, stream = blank(exact), exact.create_stream()
    exact.begin_capture(stream)
    exact.copy(array, numbers(), stream)
    graph = exact.end_capture(stream)
    executable, (copy,) = graph.instantiate(), graph.nodes()
    assert code_of(lambda: executable.update_copy(copy, array, array)) == "CUDA_ERROR_INVALID_VALUE"


def test_node_updates_end_with_the_context(exact: SimulatedDevice) -> None:
    graph = exact.create_graph()
    graph.add_fill(blank(exact), 0)
    executable, nodes = graph.instantiate(), graph.nodes()
    assert executable.retouch([]) == UpdateResult(ok=True, result="CUDA_SUCCESS")
    assert executable.retouch([NodeInfo(1, "memset", "memset")]).node == 1
    exact.close()
    assert code_of(lambda: executable.retouch(nodes)) == "CUDA_ERROR_DEINITIALIZED"
