"""A segment's map as Graphviz text."""

from __future__ import annotations

from typing import Final

from cudagraph_gate.graphs.dot import Arrow, Box, digraph
from cudagraph_gate.model import Capturability, MapNode, Segment

COLOURS: Final = {
    Capturability.CAPTURABLE: "palegreen",
    Capturability.EXPLICIT_ONLY: "khaki",
    Capturability.NOT_CAPTURABLE: "lightcoral",
}
STYLES: Final = {"stream": "solid", "event": "dashed", "host": "dotted"}


def dot(segment: Segment) -> str:
    """The map as a directed graph: green can be captured, yellow needs explicit nodes, red can't be.

    Edges: solid for stream order, dashed for events, dotted for the host's order.
    """
    boxes = (Box(node.number, _lines(node), COLOURS[node.capturable]) for node in segment.map.nodes)
    arrows = (Arrow(edge.source, edge.target, STYLES[edge.kind]) for edge in segment.map.edges)
    return digraph(f"segment_{segment.number}", boxes, arrows)


def _lines(node: MapNode) -> tuple[str, ...]:
    facts = [node.role.value]
    if node.library:
        facts.append(node.library)
    if node.stream:
        facts.append(f"stream {node.stream}")
    if node.operations:
        facts.append(f"{node.operations} operations, {node.busy_ns / 1e3:.1f} µs")
    return (node.label, ", ".join(facts), *([node.reason] if node.reason else []))
