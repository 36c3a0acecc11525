"""What a graph holds: its nodes counted, and its nodes and edges as a map."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cudagraph_gate.device.port import PAGEABLE, Graph, NodeInfo, NodeKind
from cudagraph_gate.model.graph_map import GraphMap, GraphMapEdge, GraphMapNode, GraphRole
from cudagraph_gate.timeline.kernel_names import kernel_name

MOST_PARTS: Final = 200
"""Parts of a map: more no person reads and no picture holds; the rest is one last part."""
LONGEST_LABEL: Final = 80
"""Characters of a label: some kernel names have thousands."""

HOST_SOURCE: Final = "each replay reads the same host address: the source must stay there"
HOST_TARGET: Final = "each replay writes the same host address: the target must stay there"
PAGEABLE_NOTE: Final = "; pageable memory, so nothing pins it there"
CALLBACK: Final = "host code at each replay, on a thread of the driver; it must not call CUDA"
INNER: Final = "the nodes inside are not shown"

ROLES: Final[dict[NodeKind, GraphRole]] = {
    "kernel": GraphRole.WORK,
    "memcpy": GraphRole.COPY,
    "memset": GraphRole.MEMSET,
    "host": GraphRole.HOST_CALLBACK,
    "empty": GraphRole.JOIN,
    "alloc": GraphRole.ALLOCATION,
    "free": GraphRole.ALLOCATION,
    "event": GraphRole.EVENT,
    "child": GraphRole.GRAPH,
    "conditional": GraphRole.CONDITIONAL,
    "other": GraphRole.OTHER,
}
DIRECTIONS: Final = {"HtoD": GraphRole.INPUT, "DtoH": GraphRole.OUTPUT}
_NOTES: Final = {
    GraphRole.INPUT: HOST_SOURCE,
    GraphRole.OUTPUT: HOST_TARGET,
    GraphRole.HOST_CALLBACK: CALLBACK,
    GraphRole.GRAPH: INNER,
    GraphRole.CONDITIONAL: INNER,
}
_ALONE: Final = frozenset({GraphRole.GRAPH, GraphRole.CONDITIONAL})
"""Roles whose nodes hold nodes themselves: each is a part of its own."""


@dataclass(frozen=True)
class GraphContents:
    """Nodes of a graph: how many, of which kinds, and which kernels how often."""

    nodes: int
    kinds: dict[str, int]
    kernels: dict[str, int]


def contents(graph: Graph) -> GraphContents:
    """Count the nodes of ``graph``."""
    nodes = graph.nodes()
    return GraphContents(
        nodes=len(nodes),
        kinds=dict(Counter(node.kind for node in nodes)),
        kernels=dict(Counter(node.name for node in nodes if node.kind == "kernel")),
    )


def graph_map(graph: Graph, library_of: Callable[[str], str]) -> GraphMap:
    """The map of ``graph``; ``library_of`` names the library of a kernel, empty for none.

    Time grows with nodes and edges (and the logarithm of the nodes).
    """
    nodes = graph.nodes()
    ways = _Ways(len(nodes), graph.edges())
    kinds = [_kind(node, _library_of_symbol(library_of)) for node in nodes]
    groups = _groups(ways, kinds)
    shown, rest = groups, list[int]()
    if len(groups) > MOST_PARTS:
        shown = groups[: MOST_PARTS - 1]
        rest = [index for group in groups[MOST_PARTS - 1 :] for index in group]
    parts = [_part(number, group, nodes, kinds) for number, group in enumerate(shown)]
    if rest:
        parts.append(_rest(len(groups) - len(shown), len(shown), [nodes[index] for index in rest]))
    return GraphMap(
        parts=tuple(parts),
        edges=_part_edges(ways, [*shown, *([rest] if rest else [])]),
        nodes=len(nodes),
        kinds=dict(Counter(node.kind for node in nodes)),
        dependencies=len(ways.edges),
        longest_chain=max(ways.levels, default=0),
        width=max(Counter(ways.levels).values(), default=0),
        roots=sum(not before for before in ways.before),
        leaves=sum(not after for after in ways.after),
    )


class _Ways:
    """Nodes by number with their neighbours, an order in which they could run, and their levels."""

    def __init__(self, nodes: int, edges: Iterable[tuple[int, int]]) -> None:
        self.edges = sorted(set(edges))
        self.before: list[list[int]] = [[] for _ in range(nodes)]
        self.after: list[list[int]] = [[] for _ in range(nodes)]
        for source, target in self.edges:
            self.after[source].append(target)
            self.before[target].append(source)
        self.levels = [1] * nodes
        """Nodes on the longest path that ends at each."""
        self.order = self._order()

    def _order(self) -> list[int]:
        """Each node after those it waits for, else in the graph's own order."""
        waits = [len(before) for before in self.before]
        ready = [index for index, count in enumerate(waits) if not count]
        order = []
        while ready:
            index = heapq.heappop(ready)
            order.append(index)
            for target in self.after[index]:
                self.levels[target] = max(self.levels[target], self.levels[index] + 1)
                waits[target] -= 1
                if not waits[target]:
                    heapq.heappush(ready, target)
        if len(order) < len(waits):
            raise ValueError("the edges of the graph form a cycle")
        return order


@dataclass(frozen=True)
class _Kind:
    """What the nodes of one part have in common."""

    role: GraphRole
    library: str
    note: str


def _kind(node: NodeInfo, library: Callable[[str], str]) -> _Kind:
    role = ROLES[node.kind]
    if node.kind == "memcpy":
        role = DIRECTIONS.get(node.detail.partition(" ")[0], role)
    note = _NOTES.get(role, "")
    if role in (GraphRole.INPUT, GraphRole.OUTPUT) and PAGEABLE in node.detail:
        note += PAGEABLE_NOTE
    return _Kind(role, library(node.name) if role is GraphRole.WORK else "", note)


def _library_of_symbol(library_of: Callable[[str], str]) -> Callable[[str], str]:
    """``library_of`` for the driver's names, each asked once.

    They are mangled (``_ZN2at6native…``): the readable name stands first, as recorders write it.
    """
    known: dict[str, str] = {}

    def named(symbol: str) -> str:
        if symbol not in known:
            readable = kernel_name(symbol)
            known[symbol] = library_of(symbol if readable == symbol else f"{readable} {symbol}")
        return known[symbol]

    return named


def _groups(ways: _Ways, kinds: Sequence[_Kind]) -> list[list[int]]:
    """Runs of one kind on one chain, in an order in which they could run.

    A node joins the one before it where neither has another neighbour on that side: branches stay apart.
    """
    group_of: dict[int, list[int]] = {}
    groups = []
    for index in ways.order:
        before = ways.before[index]
        joins = (
            len(before) == 1
            and len(ways.after[before[0]]) == 1
            and kinds[before[0]] == kinds[index]
            and kinds[index].role not in _ALONE
        )
        if joins:
            group_of[index] = group_of[before[0]]
        else:
            group_of[index] = []
            groups.append(group_of[index])
        group_of[index].append(index)
    return groups


def _part(
    number: int, group: Sequence[int], nodes: Sequence[NodeInfo], kinds: Sequence[_Kind]
) -> GraphMapNode:
    kind, members = kinds[group[0]], [nodes[index] for index in group]
    return GraphMapNode(
        number=number,
        role=kind.role,
        label=_label(members),
        library=kind.library,
        count=len(members),
        kernels=_kernels(members),
        nbytes=_bytes(members),
        note=kind.note,
    )


def _rest(parts: int, number: int, members: Sequence[NodeInfo]) -> GraphMapNode:
    return GraphMapNode(
        number=number,
        role=GraphRole.OTHER,
        label=f"{parts} further parts",
        library="",
        count=len(members),
        kernels=_kernels(members),
        nbytes=_bytes(members),
    )


def _kernels(members: Iterable[NodeInfo]) -> dict[str, int]:
    return dict(Counter(node.name for node in members if node.kind == "kernel"))


def _bytes(members: Iterable[NodeInfo]) -> int:
    return sum(node.nbytes or 0 for node in members)


def _label(members: Sequence[NodeInfo]) -> str:
    """The first name, and how many others there are."""
    distinct = dict.fromkeys(
        kernel_name(node.name) if node.kind == "kernel" else node.detail or node.name for node in members
    )
    first = next(iter(distinct))
    if len(first) > LONGEST_LABEL:
        first = f"{first[: LONGEST_LABEL - 1]}…"
    others = len(distinct) - 1
    return f"{first} and {others} other{'s' * (others > 1)}" if others else first


def _part_edges(ways: _Ways, groups: Sequence[Sequence[int]]) -> tuple[GraphMapEdge, ...]:
    part_of = {index: number for number, group in enumerate(groups) for index in group}
    pairs = {(part_of[source], part_of[target]) for source, target in ways.edges}
    return tuple(
        GraphMapEdge(source=source, target=target) for source, target in sorted(pairs) if source != target
    )
