"""A graph's map for a terminal and for Graphviz."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console

from cudagraph_gate.model.graph_map import GraphMap, GraphMapEdge, GraphMapNode, GraphRole
from cudagraph_gate.report.graph_map import (
    TOP_PARTS,
    graph_map_dot,
    graph_map_notes,
    graph_map_rows,
    graph_map_summary,
    graph_map_table,
    print_graph_map,
)

Printed = Callable[..., str]
NOTE = "the source must stay there"


def part(number: int, role: GraphRole = GraphRole.WORK, label: str = "mine", **facts: object) -> GraphMapNode:
    defaults: dict[str, object] = {"library": "", "count": 1, "kernels": {}, "nbytes": 0}
    return GraphMapNode(number=number, role=role, label=label, **(defaults | facts))  # type: ignore[arg-type]


def mapped(*parts: GraphMapNode, edges: tuple[tuple[int, int], ...] = ()) -> GraphMap:
    return GraphMap(
        parts=parts,
        edges=tuple(GraphMapEdge(source=source, target=target) for source, target in edges),
        nodes=1_281,
        kinds={"kernel": 1_280, "memcpy": 1},
        dependencies=1_300,
        longest_chain=1_000,
        width=4,
        roots=1,
        leaves=1,
    )


FORK = mapped(
    part(0, GraphRole.INPUT, "HtoD from pageable memory", nbytes=2 << 20, note=NOTE),
    part(1, library="cuBLAS", label="sgemm and 3 others", count=40),
    part(2, library="PyTorch", label="at::native::softmax", count=12),
    part(3, GraphRole.HOST_CALLBACK, "host"),
    edges=((0, 1), (0, 2), (1, 3), (2, 3)),
)


def test_a_row_says_what_a_part_is_and_what_it_waits_for() -> None:
    assert graph_map_rows(FORK) == [
        ("0", "–", "input", "HtoD from pageable memory", "–", "1", "2.00 MiB"),
        ("1", "0", "work", "sgemm and 3 others", "cuBLAS", "40", "–"),
        ("2", "0", "work", "at::native::softmax", "PyTorch", "12", "–"),
        ("3", "1, 2", "host callback", "host", "–", "1", "–"),
    ]


def test_a_part_that_waits_for_many_names_the_first() -> None:
    join = mapped(*map(part, range(6)), edges=tuple((source, 5) for source in range(5)))
    assert graph_map_rows(join)[5][1] == "0, 1, 2 and 2 more"


def test_the_table_fits_80_columns(printed: Printed) -> None:
    wide = mapped(
        part(198, GraphRole.HOST_CALLBACK, "n" * 80, library="FlashAttention", count=10_000, nbytes=1 << 30),
        part(199, label="x"),
        edges=tuple((source, 199) for source in range(100, 199)),
    )
    text = printed(lambda console: console.print(graph_map_table(wide, "shape b1")))
    assert max(map(len, text.splitlines())) <= 80
    for shown in ("shape b1", "10000", "1.00 GiB", "nnnn"):
        assert shown in text


def test_the_table_leaves_namespaces_out(printed: Printed) -> None:
    text = printed(lambda console: console.print(graph_map_table(FORK)))
    assert "│ softmax " in text
    assert "at::native" not in text


def test_a_name_is_shown_as_it_is(printed: Printed) -> None:
    text = printed(print_graph_map, mapped(part(0, label="[red]k[/red]\x1b[2J")))
    assert "[red]k[/red]" in text
    assert "\x1b" not in text


def test_the_summary_says_how_the_whole_graph_lies() -> None:
    assert graph_map_summary(FORK) == (
        "1,281 nodes (1,280 kernel, 1 memcpy), 1,300 dependencies; longest chain 1,000, "
        "at most about 4 side by side"
    )


def test_a_graph_without_nodes_says_so() -> None:
    empty = GraphMap(
        parts=(), edges=(), nodes=0, kinds={}, dependencies=0, longest_chain=0, width=0, roots=0, leaves=0
    )
    assert graph_map_summary(empty) == "no nodes"


def test_a_note_is_said_once_for_all_its_parts() -> None:
    found = mapped(*(part(number, note=NOTE) for number in range(5)), part(5), part(6, note="other"))
    assert graph_map_notes(found) == [f"parts 0, 1, 2 and 2 more: {NOTE}", "part 6: other"]


def test_a_long_map_is_cut_and_says_so(printed: Printed) -> None:
    text = printed(print_graph_map, mapped(*map(part, range(TOP_PARTS + 2))))
    assert f"│ {TOP_PARTS - 1} │" in text
    assert f"│ {TOP_PARTS} │" not in text
    assert "2 more parts" in text


def test_printing_shows_table_summary_and_notes() -> None:
    out = io.StringIO()
    print_graph_map(Console(file=out, width=200), FORK)
    text = out.getvalue()
    assert text.index("sgemm and 3 others") < text.index("1,281 nodes") < text.index(f"part 0: {NOTE}")


def test_the_dot_text_has_every_part_and_edge() -> None:
    assert graph_map_dot(FORK) == (
        "digraph graph_map {\n"
        '  node [shape=box, style=filled, fontname="sans-serif"];\n'
        '  n0 [label="HtoD from pageable memory\\ninput, 1 node, 2.00 MiB\\nthe source must stay there",'
        " fillcolor=khaki];\n"
        '  n1 [label="sgemm and 3 others\\nwork, cuBLAS, 40 nodes", fillcolor=palegreen];\n'
        '  n2 [label="at::native::softmax\\nwork, PyTorch, 12 nodes", fillcolor=palegreen];\n'
        '  n3 [label="host\\nhost callback, 1 node", fillcolor=lightcoral];\n'
        "  n0 -> n1 [style=solid];\n"
        "  n0 -> n2 [style=solid];\n"
        "  n1 -> n3 [style=solid];\n"
        "  n2 -> n3 [style=solid];\n"
        "}\n"
    )


def test_quotes_backslashes_and_controls_of_a_name_do_not_end_its_label() -> None:
    text = graph_map_dot(mapped(part(0, label='a"b\\c\td')))
    assert 'n0 [label="a\\"b\\\\c d\\nwork, 1 node", fillcolor=palegreen];' in text
