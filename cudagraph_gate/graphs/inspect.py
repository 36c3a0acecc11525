"""What a captured graph holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from cudagraph_gate.device.port import Graph


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
