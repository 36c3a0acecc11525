"""A graph's map as a table and as Graphviz text."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from rich.console import Console
from rich.table import Table

from cudagraph_gate.gates.wording import listed, size
from cudagraph_gate.graphs.dot import Arrow, Box, digraph
from cudagraph_gate.model.graph_map import GraphMap, GraphMapNode, GraphRole
from cudagraph_gate.report.console_pieces import add_row, line, name_cell, table_of

TOP_PARTS: Final = 40
"""Parts shown; all are in the file that the map was read from."""
TOP_BEFORE: Final = 3
"""Parts that a part waits for, shown in its row."""
GRAPH_MAP_HEAD: Final = ("", "after", "role", "what", "library", "nodes", "bytes")

COLOURS: Final = {
    GraphRole.INPUT: "khaki",
    GraphRole.OUTPUT: "khaki",
    GraphRole.HOST_CALLBACK: "lightcoral",
    GraphRole.GRAPH: "lightblue",
    GraphRole.CONDITIONAL: "lightblue",
    GraphRole.JOIN: "white",
    GraphRole.EVENT: "white",
    GraphRole.OTHER: "lightgrey",
}
"""Yellow and red ask for care: an address of the host, code on the host."""
_PLAIN: Final = "palegreen"


def graph_map_rows(found: GraphMap) -> list[tuple[str, ...]]:
    """One row a part, as ``GRAPH_MAP_HEAD`` names the columns."""
    before: dict[int, list[str]] = defaultdict(list)
    for edge in found.edges:
        before[edge.target].append(str(edge.source))
    return [
        (
            str(part.number),
            listed(before[part.number], TOP_BEFORE) or "–",
            part.role.replace("_", " "),
            part.label,
            part.library or "–",
            str(part.count),
            size(part.nbytes) if part.nbytes else "–",
        )
        for part in found.parts
    ]


def graph_map_table(found: GraphMap, title: str = "the graph's parts") -> Table:
    """The first parts in an order in which they could run, and what each one waits for.

    Names stand without their namespaces, so that their telling end fits.
    """
    table = table_of(title, GRAPH_MAP_HEAD, right=(0, 5, 6))
    for number, after, role, label, *others in graph_map_rows(found)[:TOP_PARTS]:
        add_row(table, number, after, role, name_cell(label.rpartition("::")[2]), *others)
    return table


def graph_map_summary(found: GraphMap) -> str:
    """The shape of the whole graph in one line."""
    if not found.nodes:
        return "no nodes"
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.kinds.items())
    return (
        f"{found.nodes:,} nodes ({kinds}), {found.dependencies:,} dependencies; longest chain "
        f"{found.longest_chain:,}, at most about {found.width:,} side by side"
    )


def graph_map_notes(found: GraphMap) -> list[str]:
    """What replaying it asks for: each note once, with the parts that it is about."""
    about: dict[str, list[str]] = defaultdict(list)
    for part in found.parts:
        if part.note:
            about[part.note].append(str(part.number))
    return [
        f"part{'s' * (len(parts) > 1)} {listed(parts, TOP_BEFORE)}: {note}" for note, parts in about.items()
    ]


def print_graph_map(console: Console, found: GraphMap, title: str = "the graph's parts") -> None:
    """The table with its summary and notes."""
    console.print(graph_map_table(found, title))
    if (left := len(found.parts) - TOP_PARTS) > 0:
        line(console, f"{left} more part{'s' * (left > 1)}")
    line(console, graph_map_summary(found))
    for note in graph_map_notes(found):
        line(console, note)


def graph_map_dot(found: GraphMap) -> str:
    """The map as a directed graph: yellow copies from or to the host, red calls it, blue holds graphs."""
    boxes = (Box(part.number, _lines(part), COLOURS.get(part.role, _PLAIN)) for part in found.parts)
    arrows = (Arrow(edge.source, edge.target) for edge in found.edges)
    return digraph("graph_map", boxes, arrows)


def _lines(part: GraphMapNode) -> tuple[str, ...]:
    facts = [part.role.replace("_", " "), *([part.library] if part.library else [])]
    facts.append(f"{part.count} node{'s' * (part.count > 1)}")
    if part.nbytes:
        facts.append(size(part.nbytes))
    return (part.label, ", ".join(facts), *([part.note] if part.note else []))
