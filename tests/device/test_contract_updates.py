"""Updates of single nodes: one contract for both devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_programs import COUNT, ONE_BLOCK, SCALE, blank, code_of, numbers, scale

from cudagraph_gate.device.port import Device, DeviceArray, ExecutableGraph, Graph, NodeInfo, Stream
from cudagraph_gate.errors import DeviceError

INVALID = "CUDA_ERROR_INVALID_VALUE"


class Program:
    """``filled`` = bytes of 1, then ``copied`` = ``source``, then ``out`` = 2 * ``copied``."""

    def __init__(self, device: Device, stream: Stream, *, captured: bool) -> None:
        self._stream = stream
        self.source = device.array(numbers())
        self.filled, self.copied, self.out = (blank(device) for _ in range(3))
        self.graph = self._captured(device) if captured else self._built(device)
        self.executable: ExecutableGraph = self.graph.instantiate()

    def _built(self, device: Device) -> Graph:
        graph = device.create_graph()
        first = graph.add_fill(self.filled, 1)
        second = graph.add_copy(self.copied, self.source, after=[first])
        graph.add_kernel(SCALE, ONE_BLOCK, (self.out, self.copied, np.float32(2)), after=[second])
        return graph

    def _captured(self, device: Device) -> Graph:
        device.begin_capture(self._stream)
        device.fill(self.filled, 1, self._stream)
        device.copy(self.copied, self.source, self._stream)
        scale(device, self.out, self.copied, 2.0, self._stream)
        return device.end_capture(self._stream)

    def node(self, kind: str) -> NodeInfo:
        """The only node of a kind."""
        (found,) = (node for node in self.graph.nodes() if node.kind == kind)
        return found

    def run(self) -> None:
        self.executable.launch(self._stream)
        self._stream.synchronize()

    def assert_unchanged(self) -> None:
        """A replay does what the graph says."""
        self.run()
        assert set(self.filled.to_host().view(np.uint8).tolist()) == {1}
        np.testing.assert_array_equal(self.out.to_host(), 2 * numbers())


@pytest.fixture(params=["built", "captured"])
def program(request: pytest.FixtureRequest, device: Device, stream: Stream) -> Program:
    return Program(device, stream, captured=request.param == "captured")


def bytes_of(array: DeviceArray) -> Any:
    return array.to_host().view(np.uint8)


# --- copies -----------------------------------------------------------------------------------------


def test_a_copy_takes_another_source_and_target(device: Device, program: Program) -> None:
    other, target = device.array(numbers(100)), blank(device)
    program.executable.update_copy(program.node("memcpy"), program.copied, other)
    program.run()
    np.testing.assert_array_equal(program.out.to_host(), 2 * numbers(100))
    program.executable.update_copy(program.node("memcpy"), target, other)
    program.run()
    np.testing.assert_array_equal(target.to_host(), numbers(100))


def test_a_copy_may_change_its_size(device: Device, program: Program) -> None:
    few = device.array(np.full(COUNT // 2, 9, np.float32))
    half = device.view(program.copied.pointer, (COUNT // 2,), np.float32, owner=program.copied)
    device.copy(program.copied, numbers(50))
    device.synchronize()
    program.executable.update_copy(program.node("memcpy"), half, few)
    program.run()
    expected = np.concatenate([np.full(COUNT // 2, 9, np.float32), numbers(50)[COUNT // 2 :]])
    np.testing.assert_array_equal(program.out.to_host(), 2 * expected)


def test_a_copy_between_unequal_sizes_is_refused(device: Device, program: Program) -> None:
    with pytest.raises(ValueError, match="copy of 8 bytes into 256"):
        program.executable.update_copy(
            program.node("memcpy"), program.copied, device.array(np.zeros(2, np.float32))
        )
    program.assert_unchanged()


def test_a_copy_of_nothing_is_refused(device: Device, program: Program) -> None:
    empty = device.empty((0,), np.float32)
    node = program.node("memcpy")
    assert code_of(lambda: program.executable.update_copy(node, empty, empty)) == INVALID
    program.assert_unchanged()


# --- memsets ----------------------------------------------------------------------------------------


def test_a_memset_takes_another_byte_and_target(device: Device, program: Program) -> None:
    program.executable.update_fill(program.node("memset"), program.filled, 0xAB)
    program.run()
    assert set(bytes_of(program.filled).tolist()) == {0xAB}
    other = blank(device)
    program.executable.update_fill(program.node("memset"), other, 7)
    program.run()
    assert set(bytes_of(other).tolist()) == {7}


def test_a_memset_of_another_size_is_refused(device: Device, program: Program) -> None:
    small = device.empty((3,), np.uint8)
    node = program.node("memset")
    assert code_of(lambda: program.executable.update_fill(node, small, 0)) == INVALID
    program.assert_unchanged()


# --- nodes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["kernel", "memset", "no such"])
def test_a_copy_update_needs_a_copy_node(program: Program, kind: str) -> None:
    node = program.node(kind) if kind != "no such" else NodeInfo(99, "memcpy", "memcpy")
    with pytest.raises(DeviceError, match=f"node {node.index}") as caught:
        program.executable.update_copy(node, program.copied, program.source)
    assert caught.value.code == INVALID
    program.assert_unchanged()


@pytest.mark.parametrize("kind", ["kernel", "memcpy", "no such"])
def test_a_fill_update_needs_a_memset_node(program: Program, kind: str) -> None:
    node = program.node(kind) if kind != "no such" else NodeInfo(-1, "memset", "memset")
    with pytest.raises(DeviceError, match=f"node {node.index}") as caught:
        program.executable.update_fill(node, program.filled, 3)
    assert caught.value.code == INVALID
    program.assert_unchanged()


def test_updates_need_the_graph_and_a_live_executable(program: Program) -> None:
    node = program.node("memset")
    program.graph.destroy()
    assert code_of(lambda: program.executable.update_fill(node, program.filled, 3)) == INVALID
    program.executable.destroy()
    with pytest.raises(DeviceError):
        program.executable.update_fill(node, program.filled, 3)


# --- setting again ----------------------------------------------------------------------------------


def test_setting_nodes_again_changes_nothing(program: Program) -> None:
    result = program.executable.retouch(program.graph.nodes())
    assert (result.ok, result.result, result.node) == (True, "CUDA_SUCCESS", None)
    program.assert_unchanged()


def test_setting_a_node_again_undoes_its_update(device: Device, program: Program) -> None:
    node = program.node("memcpy")
    program.executable.update_copy(node, program.copied, device.array(numbers(100)))
    program.executable.update_fill(program.node("memset"), program.filled, 9)
    assert program.executable.retouch([node]).ok
    program.run()
    np.testing.assert_array_equal(program.out.to_host(), 2 * numbers())
    assert set(bytes_of(program.filled).tolist()) == {9}


def test_setting_again_stops_at_the_node_that_is_refused(program: Program) -> None:
    result = program.executable.retouch([program.node("kernel"), NodeInfo(99, "kernel", "scale")])
    assert (result.ok, result.result, result.node) == (False, INVALID, 99)
    program.assert_unchanged()


def test_nothing_is_set_again_in_a_destroyed_executable(program: Program) -> None:
    program.executable.destroy()
    nodes = program.graph.nodes()
    assert code_of(lambda: program.executable.retouch(nodes)) == "CUDA_ERROR_INVALID_HANDLE"
