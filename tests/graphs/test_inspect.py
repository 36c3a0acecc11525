"""The map of a graph: its parts, their order, and the shape of the whole."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_graph import chain, graph, library_of
from portable_kernel import ONE_BLOCK, SCALE, numbers, scale

from cudagraph_gate.device import Device
from cudagraph_gate.graphs.inspect import (
    CALLBACK,
    HOST_SOURCE,
    HOST_TARGET,
    INNER,
    LONGEST_LABEL,
    MOST_PARTS,
    PAGEABLE_NOTE,
    graph_map,
)
from cudagraph_gate.model.graph_map import GraphMap, GraphMapNode, GraphRole

FILL = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEEEEvi"
Edges = Iterable[tuple[int, int]]


def mapped(*nodes: Any, edges: Edges = ()) -> GraphMap:
    return graph_map(graph(*nodes, edges=edges), library_of)


def links(found: GraphMap) -> list[tuple[int, int]]:
    return [(edge.source, edge.target) for edge in found.edges]


def only(found: GraphMap) -> GraphMapNode:
    (part,) = found.parts
    return part


# --- parts ----------------------------------------------------------------------------------------


def test_neighbours_of_one_library_are_one_part() -> None:
    found = mapped("sgemm_a", "sgemm_b", "sgemm_a", "mine", edges=chain(4))
    assert [(part.number, part.library, part.count) for part in found.parts] == [(0, "cuBLAS", 3), (1, "", 1)]
    assert [part.label for part in found.parts] == ["sgemm_a and 1 other", "mine"]
    assert found.parts[0].kernels == {"sgemm_a": 2, "sgemm_b": 1}
    assert links(found) == [(0, 1)]


def test_branches_stay_apart_though_their_library_is_the_same() -> None:
    found = mapped("a", "b", "b", "c", "d", edges=[(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)])
    assert [part.label for part in found.parts] == ["a", "b", "b", "c and 1 other"]
    assert links(found) == [(0, 1), (0, 2), (1, 3), (2, 3)]


def test_nodes_that_do_not_depend_on_each_other_are_parts_of_their_own() -> None:
    found = mapped("a", "a", "a")
    assert [part.count for part in found.parts] == [1, 1, 1]
    assert links(found) == []
    assert (found.longest_chain, found.width, found.roots, found.leaves) == (1, 3, 3, 3)


def test_a_mangled_name_is_read_before_its_library_is_looked_for() -> None:
    part = only(mapped(FILL))
    assert (part.library, part.label) == ("PyTorch", "at::native::vectorized_elementwise_kernel")
    assert part.kernels == {FILL: 1}


def test_a_part_counts_the_bytes_of_its_copies() -> None:
    part = only(mapped(("memset", "", 100), ("memset", "", 28), edges=chain(2)))
    assert (part.role, part.count, part.nbytes, part.kernels) == (GraphRole.MEMSET, 2, 128, {})


@pytest.mark.parametrize(
    ("kind", "detail", "role", "note"),
    [
        ("memcpy", "HtoD from pageable memory", GraphRole.INPUT, HOST_SOURCE + PAGEABLE_NOTE),
        ("memcpy", "HtoD from pinned memory", GraphRole.INPUT, HOST_SOURCE),
        ("memcpy", "DtoH to pageable memory", GraphRole.OUTPUT, HOST_TARGET + PAGEABLE_NOTE),
        ("memcpy", "DtoD", GraphRole.COPY, ""),
        ("memcpy", "", GraphRole.COPY, ""),
        ("host", "", GraphRole.HOST_CALLBACK, CALLBACK),
        ("alloc", "", GraphRole.ALLOCATION, ""),
        ("free", "", GraphRole.ALLOCATION, ""),
        ("event", "wait event", GraphRole.EVENT, ""),
        ("child", "graph of 3 nodes", GraphRole.GRAPH, INNER),
        ("conditional", "", GraphRole.CONDITIONAL, INNER),
        ("empty", "", GraphRole.JOIN, ""),
        ("other", "batch mem op", GraphRole.OTHER, ""),
    ],
)
def test_each_kind_of_node_has_its_role(kind: Any, detail: str, role: GraphRole, note: str) -> None:
    part = only(mapped((kind, detail, 4)))
    assert (part.role, part.note, part.label) == (role, note, detail or kind)


def test_pinned_and_pageable_copies_are_not_one_part() -> None:
    pinned, pageable = ("memcpy", "HtoD from pinned memory", 4), ("memcpy", "HtoD from pageable memory", 4)
    assert len(mapped(pinned, pageable, edges=chain(2)).parts) == 2


def test_each_child_graph_is_a_part_of_its_own() -> None:
    child = ("child", "graph of 3 nodes", 0)
    assert len(mapped(child, child, edges=chain(2)).parts) == 2


def test_a_long_name_is_cut_in_the_label_only() -> None:
    part = only(mapped("k" * 500))
    assert part.label == "k" * (LONGEST_LABEL - 1) + "…"
    assert part.kernels == {"k" * 500: 1}


# --- the whole ------------------------------------------------------------------------------------


def test_the_shape_of_a_diamond() -> None:
    found = mapped("a", "b", "c", "d", ("memset", "", 8), edges=[(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)])
    assert (found.nodes, found.kinds, found.dependencies) == (5, {"kernel": 4, "memset": 1}, 5)
    assert (found.longest_chain, found.width) == (3, 2)
    assert (found.roots, found.leaves) == (2, 2)


def test_a_graph_without_nodes_has_no_parts() -> None:
    found = mapped()
    assert (found.parts, found.edges, found.nodes, found.longest_chain, found.width) == ((), (), 0, 0, 0)


def test_parts_come_in_an_order_in_which_they_could_run() -> None:
    found = mapped("last", ("memset", "", 4), edges=[(1, 0)])
    assert [part.label for part in found.parts] == ["memset", "last"]
    assert links(found) == [(0, 1)]


def test_what_a_map_can_not_hold_is_its_last_part() -> None:
    names = ["sgemm", "mine"] * 150
    found = mapped(*names, edges=chain(300))
    last = found.parts[-1]
    assert (len(found.parts), last.label, last.role) == (MOST_PARTS, "101 further parts", GraphRole.OTHER)
    assert last.kernels == {"sgemm": 50, "mine": 51}
    assert links(found) == chain(MOST_PARTS)
    assert (found.nodes, found.longest_chain) == (300, 300)


def test_as_many_parts_as_a_map_holds_are_all_there() -> None:
    found = mapped(*["sgemm", "mine"] * (MOST_PARTS // 2), edges=chain(MOST_PARTS))
    assert (len(found.parts), found.parts[-1].label) == (MOST_PARTS, "mine")


def test_edges_in_a_circle_are_refused() -> None:
    with pytest.raises(ValueError, match="cycle"):
        mapped("a", "b", edges=[(0, 1), (1, 0)])


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[str], list[tuple[int, int]]]:
    """Any graph without cycles; its node list is not in an order of execution."""
    names = draw(st.lists(st.sampled_from(["sgemm", "mine"]), min_size=1, max_size=12))
    place = draw(st.permutations(range(len(names))))
    pairs = st.tuples(*[st.integers(0, len(names) - 1)] * 2).filter(lambda pair: pair[0] != pair[1])
    found = draw(st.lists(pairs, max_size=20))
    return names, [(place[min(pair)], place[max(pair)]) for pair in found]


@given(graphs())
def test_every_node_is_in_one_part_and_parts_depend_on_earlier_ones_only(
    made: tuple[list[str], list[tuple[int, int]]],
) -> None:
    names, edges = made
    found = mapped(*names, edges=edges)
    assert sum(part.count for part in found.parts) == len(names)
    assert sum(part.kernels.get("mine", 0) for part in found.parts) == names.count("mine")
    assert all(source < target for source, target in links(found))
    assert len(found.parts) <= len(names)
    assert found.longest_chain * found.width >= len(names)


def test_ten_thousand_nodes_take_less_than_a_second() -> None:
    count = 10_000
    edges = [*chain(count), *((index, index + 3) for index in range(count - 3))]
    made = graph(*["sgemm", "mine"] * (count // 2), edges=edges)
    start = time.process_time()
    assert graph_map(made, library_of).longest_chain == count
    assert time.process_time() - start < 1


# --- on devices -----------------------------------------------------------------------------------


def test_a_captured_fork_is_mapped_as_two_branches(device: Device) -> None:
    source, out, other = (device.array(numbers()) for _ in range(3))
    stream, side = device.create_stream(), device.create_stream()
    device.begin_capture(stream)
    with device.use_stream(stream):
        scale(device, out, source)
        side.wait(stream.record())
        device.launch(SCALE, ONE_BLOCK, (other, source, np.float32(3)), side)
        scale(device, out, source)
        stream.wait(side.record())
        device.fill(out, 0)
    found = graph_map(device.end_capture(stream), library_of)
    assert sorted((part.role, part.count) for part in found.parts) == [
        ("memset", 1),
        ("work", 1),
        *[("work", 1)] * 2,
    ]
    assert (found.longest_chain, found.width, found.roots, found.leaves) == (3, 2, 1, 1)
