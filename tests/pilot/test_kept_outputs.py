"""Outputs that are held while later requests are served: which path overwrites them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opened_sessions import FRESH, Opened, opened, opened_sample

from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.correctness import Expectation
from cudagraph_gate.pilot.graph_path import ready_graph
from cudagraph_gate.pilot.kept_outputs import kept_outputs, overwritten_by_graph, overwritten_finding
from cudagraph_gate.pilot.own_path import OwnPath
from cudagraph_gate.records import Phase

SAME_INPUTS = """
        def inputs(shape, seed):
            return (array(1),)
        """


def expectation(workload: Opened) -> Expectation:
    return correctness.expect(workload.session, workload.session.input_sets(1))


def test_a_buffer_of_the_step_is_overwritten_by_the_normal_path(tmp_path: Path) -> None:
    workload = opened(tmp_path)
    assert kept_outputs(workload.session, workload.session.call, expectation(workload)) == ("output",)


def test_new_arrays_are_kept(tmp_path: Path) -> None:
    workload = opened(tmp_path, FRESH)
    assert kept_outputs(workload.session, workload.session.call, expectation(workload)) == ()


def test_memory_that_is_used_again_is_seen_where_requests_give_equal_values(tmp_path: Path) -> None:
    workload = opened(tmp_path, SAME_INPUTS)
    assert kept_outputs(workload.session, workload.session.call, expectation(workload)) == ("output",)


def test_equal_values_in_new_memory_are_kept(tmp_path: Path) -> None:
    workload = opened(tmp_path, FRESH + SAME_INPUTS)
    assert kept_outputs(workload.session, workload.session.call, expectation(workload)) == ()


def test_buffers_that_take_turns_are_overwritten_in_the_end(tmp_path: Path) -> None:
    workload = opened(
        tmp_path,
        """
        def build(shape):
            global ring, turn
            ring, turn = [array() for _ in range(3)], 0
            return step

        def step(x):
            global turn
            turn += 1
            device.copy(ring[turn % 3], x)
            return {"y": ring[turn % 3], "n": 1}
        """,
    )
    assert kept_outputs(workload.session, workload.session.call, expectation(workload)) == ("y",)


# --- the graph alone ----------------------------------------------------------------------------------


def test_what_both_paths_overwrite_is_nothing_new(tmp_path: Path) -> None:
    workload = opened(tmp_path)
    graph = ready_graph(workload.session, workload.first)
    expected = expectation(workload)
    assert kept_outputs(workload.session, graph.replay, expected) == ("output",)
    assert overwritten_by_graph(workload.session, graph.replay, expected) == ()


def test_static_outputs_beside_new_ones_of_the_normal_path_are_named(tmp_path: Path) -> None:
    workload = opened_sample("own_graph_chain", tmp_path, "simulated", method="own")
    path = OwnPath(workload.session)
    path.make(workload.first)
    expected = expectation(workload)
    assert overwritten_by_graph(workload.session, path.replay, expected) == ("output",)


def test_a_graph_path_that_copies_its_outputs_overwrites_none(tmp_path: Path) -> None:
    workload = opened_sample("own_graph_chain", tmp_path, "simulated", method="own")
    path, adapter = OwnPath(workload.session), workload.session.adapter
    path.make(workload.first)

    def cloned(inputs: Any) -> Any:
        return adapter.static_like(path.replay(inputs))

    assert overwritten_by_graph(workload.session, cloned, expectation(workload)) == ()


def test_the_finding_is_a_condition_and_blocks_nothing() -> None:
    found = overwritten_finding("b1", ("a", "b", "c", "d"), "own")
    assert (found.shape, found.method, found.phase) == ("b1", "own", Phase.TRAJECTORY)
    assert (found.code, found.blocks) == (Reason.LIFETIME, False)
    assert "overwrites outputs a, b, c and 1 more at a later request" in found.message
    assert "clone" in found.advice
    assert "overwrites output y at" in overwritten_finding("b1", ("y",)).message


# --- a framework that refuses to read what was overwritten ----------------------------------------------


class Refusing:
    """An adapter that reads an array once only, as torch's graphs let their old outputs be read."""

    def __init__(self, adapter: Any, message: str) -> None:
        self._adapter = adapter
        self._message = message
        self._read: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def to_host(self, value: Any) -> Any:
        if any(value is old for old in self._read[:-2]):
            raise RuntimeError(self._message)
        self._read.append(value)
        return self._adapter.to_host(value)


def refused(folder: Path, message: str) -> tuple[str, ...]:
    workload = opened(folder, FRESH)
    expected = expectation(workload)
    adapter: Any = Refusing(workload.session.adapter, message)
    session = replace(workload.session, adapter=adapter)
    return kept_outputs(session, session.call, expected)


def test_an_output_that_may_not_be_read_any_more_was_overwritten(tmp_path: Path) -> None:
    message = "accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run"
    assert refused(tmp_path, message) == ("output",)


def test_any_other_error_of_reading_passes(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="illegal memory access"):
        refused(tmp_path, "CUDA error: an illegal memory access was encountered")
