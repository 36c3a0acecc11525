"""Graphs written down by hand, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cudagraph_gate.device.port import (
    ArgumentWord,
    DeviceArray,
    ExecutableGraph,
    Graph,
    Kernel,
    LaunchShape,
    Node,
    NodeInfo,
    NodeKind,
)


class MadeGraph:
    """Nodes and edges to be read; nothing can be added or run."""

    def __init__(self, nodes: Iterable[NodeInfo], edges: Iterable[tuple[int, int]]) -> None:
        self._nodes = tuple(nodes)
        self._edges = tuple(edges)

    def nodes(self) -> tuple[NodeInfo, ...]:
        return self._nodes

    def arguments(self) -> tuple[tuple[ArgumentWord, ...], ...]:
        return tuple(() for _node in self._nodes)

    def edges(self) -> tuple[tuple[int, int], ...]:
        return self._edges

    def add_kernel(
        self, kernel: Kernel, shape: LaunchShape, args: Sequence[Any], after: Sequence[Node] = ()
    ) -> Node:
        raise NotImplementedError

    def add_copy(self, target: DeviceArray, source: DeviceArray, after: Sequence[Node] = ()) -> Node:
        raise NotImplementedError

    def add_fill(self, target: DeviceArray, byte: int, after: Sequence[Node] = ()) -> Node:
        raise NotImplementedError

    def instantiate(self) -> ExecutableGraph:
        raise NotImplementedError

    def destroy(self) -> None:
        raise NotImplementedError


def graph(*nodes: str | tuple[NodeKind, str, int], edges: Iterable[tuple[int, int]] = ()) -> Graph:
    """A graph of kernels by name, and of others as (kind, detail, bytes)."""
    infos = [
        NodeInfo(index, "kernel", node)
        if isinstance(node, str)
        else NodeInfo(index, node[0], node[0], nbytes=node[2], detail=node[1])
        for index, node in enumerate(nodes)
    ]
    return MadeGraph(infos, edges)


def chain(count: int) -> list[tuple[int, int]]:
    """Edges of nodes in line."""
    return [(index, index + 1) for index in range(count - 1)]


def library_of(name: str) -> str:
    """PyTorch's and cuBLAS's kernels, the more telling name first."""
    return "PyTorch" if "at::" in name else "cuBLAS" if "gemm" in name else ""
