"""A segment's map as Graphviz text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

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
    return "\n".join(_lines(segment)) + "\n"


def _lines(segment: Segment) -> Iterator[str]:
    yield f"digraph segment_{segment.number} {{"
    yield '  node [shape=box, style=filled, fontname="sans-serif"];'
    for node in segment.map.nodes:
        yield f"  n{node.number} [label={_quoted(_label(node))}, fillcolor={COLOURS[node.capturable]}];"
    for edge in segment.map.edges:
        yield f"  n{edge.source} -> n{edge.target} [style={STYLES[edge.kind]}];"
    yield "}"


def _label(node: MapNode) -> str:
    facts = [node.role.value]
    if node.library:
        facts.append(node.library)
    if node.stream:
        facts.append(f"stream {node.stream}")
    if node.operations:
        facts.append(f"{node.operations} operations, {node.busy_ns / 1e3:.1f} µs")
    return "\n".join([node.label, ", ".join(facts), *([node.reason] if node.reason else [])])


def _quoted(text: str) -> str:
    """A DOT string: backslashes and quotes of names are taken literally, line ends become line breaks."""
    kept = "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)
    return '"' + kept.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
