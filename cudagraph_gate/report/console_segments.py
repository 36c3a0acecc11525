"""Repeating segments and their maps, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console

from cudagraph_gate.gates.wording import duration, percent
from cudagraph_gate.model import Capturability, MapNode, NotMeasured, Segment
from cudagraph_gate.report.console_pieces import add_row, line, name_cell, or_reason, table_of

TOP_SEGMENTS: Final = 5
"""Segments shown: those with the most to gain; all are in diagnosis.json."""
MAPPED_SEGMENTS: Final = 1
"""Segments whose map is shown: the one with the most to gain."""
TOP_NODES: Final = 40
"""Parts of a map shown; all are in diagnosis.json and in the DOT file."""

SEGMENT_HEAD: Final = ("", "ops", "repeats", "of window", "recorded", "saves at most", "varies")
_RESPECTS: Final = {
    "operation_count": "count",
    "order": "order",
    "grid": "grid",
    "sizes": "sizes",
    "streams": "streams",
}
_CAPTURABLE: Final = {
    Capturability.CAPTURABLE: "yes",
    Capturability.EXPLICIT_ONLY: "explicit nodes only",
    Capturability.NOT_CAPTURABLE: "no",
}


def segment_rows(segments: Sequence[Segment]) -> list[tuple[str, ...]]:
    """One row a segment, as ``SEGMENT_HEAD`` names the columns."""
    return [
        (
            str(segment.number),
            _operations(segment),
            str(segment.repeats),
            percent(segment.coverage),
            duration(segment.wall.p50),
            _at_most(segment),
            variation_text(segment),
        )
        for segment in segments
    ]


def _operations(segment: Segment) -> str:
    if segment.graph_launches:
        return f"{segment.operations} ({segment.graph_launches} graph)"
    if segment.unit_operations < segment.operations:
        times = segment.operations // segment.unit_operations
        return f"{segment.operations} ({times} x {segment.unit_operations})"
    return str(segment.operations)


def _at_most(segment: Segment) -> str:
    found = segment.prediction
    if isinstance(found, NotMeasured) or isinstance(found.upper_bound_ns, NotMeasured):
        return "–"
    return duration(found.upper_bound_ns)


def variation_text(segment: Segment) -> str:
    """In what the repeats differ, and what share of them."""
    shares = {name: getattr(segment.variation, field) for field, name in _RESPECTS.items()}
    parts = [f"{name} {percent(share)}" for name, share in shares.items() if share > 0]
    return ", ".join(parts) or "no"


def print_segments(console: Console, segments: Sequence[Segment] | NotMeasured) -> None:
    """The candidates for a graph, the one with the most to gain first."""
    if isinstance(segments, NotMeasured):
        line(console, f"segments: {or_reason(segments)}")
        return
    if not segments:
        line(console, "segments: no sequence of operations repeats often enough to be a graph")
        return
    table = table_of("repeating segments, the most to gain first", SEGMENT_HEAD, right=(0, 1, 2, 3, 4, 5))
    for row in segment_rows(segments[:TOP_SEGMENTS]):
        add_row(table, *row)
    console.print(table)
    for text in segment_notes(segments[:TOP_SEGMENTS]):
        line(console, text)


def segment_notes(segments: Sequence[Segment]) -> list[str]:
    """What stands in a segment's way."""
    notes = []
    for segment in segments:
        name = f"segment {segment.number}"
        calls = segment.prohibited_calls
        if segment.blocking_calls:
            ended = ", ".join(f"{call.name} {call.count:,} x" for call in segment.blocking_calls[:2])
            notes.append(f"{name}: the host waits at its end ({ended} for {segment.repeats:,} repeats)")
        notes += [f"{name}: {call.name} inside it ({call.count} x) can't be captured" for call in calls]
        piece = segment.stable_piece
        if not isinstance(piece, NotMeasured) and piece.operations < segment.operations:
            notes.append(
                f"{name}: longest stable piece {piece.operations} of {segment.operations} operations, "
                f"in {percent(piece.repeat_share)} of the repeats"
            )
    return notes


def map_row(node: MapNode) -> tuple[str, ...]:
    """One part of a segment map as cells."""
    capturable = _CAPTURABLE[node.capturable]
    return (
        str(node.number),
        node.role,
        node.label,
        node.library or "–",
        str(node.stream) if node.stream else "–",
        str(node.operations),
        duration(node.busy_ns),
        f"{capturable}: {node.reason}" if node.reason else capturable,
    )


MAP_HEAD: Final = ("", "role", "what", "library", "stream", "ops", "busy", "capturable")


def print_segment_maps(console: Console, segments: Sequence[Segment] | NotMeasured) -> None:
    """What the most promising segment is made of, in order, and what of it can be captured."""
    if isinstance(segments, NotMeasured):
        return
    for segment in segments[:MAPPED_SEGMENTS]:
        table = table_of(f"map of segment {segment.number}", MAP_HEAD, right=(0, 4, 5, 6))
        for node in segment.map.nodes[:TOP_NODES]:
            number, role, _, *others = map_row(node)
            add_row(table, number, role, name_cell(node.label), *others)
        console.print(table)
        if (left := len(segment.map.nodes) - TOP_NODES) > 0:
            line(console, f"{left} more parts are in diagnosis.json")
