"""The request mix under load, and which shapes to capture, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Table

from cudagraph_gate.gates.shape_choice import Choice, Padding, ShapeCost
from cudagraph_gate.gates.traffic import LoadLevel, PathLoad, Traffic
from cudagraph_gate.gates.wording import duration, listed, percent, size
from cudagraph_gate.model import Measured, NotMeasured
from cudagraph_gate.records import PathName
from cudagraph_gate.report.console_pieces import add_row, table_of

TRAFFIC_TITLE: Final = "latency under the request mix, queueing included"
TRAFFIC_HEAD: Final = ("load", "path", "P50", "P95", "P99", "busy")
SHAPES_TITLE: Final = "gain by shape, per average request of the mix"
SHAPES_HEAD: Final = ("shape", "requests", "normal", "graph", "gain", "memory", "capture")
NAMED_SHAPES: Final = 6
"""Shapes named in a sentence."""
NAMED_PADDINGS: Final = 3
"""Pairs named: those with the most gain."""

_PATHS: Final[tuple[PathName, ...]] = ("normal", "graph")


def traffic_rows(traffic: Traffic) -> list[tuple[str, ...]]:
    """Latency with queueing of both paths at each load level, as ``TRAFFIC_HEAD`` names the columns.

    Two rows a level, the first of which names it; what is saturated says so.
    """
    return [
        (_load(level) if path == "normal" else "", path, *_load_cells(load))
        for level in traffic.levels
        for path, load in zip(_PATHS, (level.normal, level.graph), strict=True)
    ]


def traffic_table(traffic: Traffic) -> Table:
    """The rows with a line under each level."""
    table = table_of(TRAFFIC_TITLE, TRAFFIC_HEAD, right=(2, 3, 4, 5))
    for row in traffic_rows(traffic):
        add_row(table, *row)
        if row[1] == _PATHS[-1]:
            table.add_section()
    return table


def _load(level: LoadLevel) -> str:
    return f"{percent(level.level)} (recorded)" if level.declared else percent(level.level)


def _load_cells(load: PathLoad | NotMeasured) -> tuple[str, str, str, str]:
    if isinstance(load, NotMeasured):
        return "–", "–", "–", "not run"
    busy = "saturated" if load.saturated else percent(load.utilisation)
    return duration(load.p50_ns), _or_dash(load.p95_ns), _or_dash(load.p99_ns), busy


def _or_dash(value: Measured) -> str:
    """Too few requests for a quantile are no line of their own: the gate says how many are needed."""
    return "–" if isinstance(value, NotMeasured) else duration(value)


def traffic_notes(traffic: Traffic) -> list[str]:
    """What load 100 % means, how much of the mix graphs serve, and what each path can serve at most."""
    notes = [
        "load 100 % is what the normal path can just serve",
        f"served by a graph in the graph path: {percent(traffic.graph_share)} of the requests "
        f"({listed(list(traffic.captured), NAMED_SHAPES)})",
    ]
    for path in _PATHS:
        at, most = traffic.saturates_at(path), traffic.capacity(path)
        known = f"saturated: {at.reason}" if isinstance(at, NotMeasured) else f"saturated at {percent(at)}"
        reach = "" if isinstance(most, NotMeasured) else f"; by its busy time it can serve {percent(most)}"
        notes.append(f"{path} path {known}{reach}")
    return notes


def shapes_rows(costs: Sequence[ShapeCost], choice: Choice) -> list[tuple[str, ...]]:
    """What each shape gains per average request of the mix, the most first, and whether to capture it.

    As ``SHAPES_HEAD`` names the columns.
    """
    return [
        (
            cost.name,
            percent(cost.share),
            duration(cost.normal_ns),
            duration(cost.graph_ns),
            duration(cost.gain_ns),
            size(cost.nbytes),
            "yes" if cost.name in choice.shapes else "no",
        )
        for cost in sorted(costs, key=lambda cost: cost.gain_ns, reverse=True)
    ]


def shapes_table(costs: Sequence[ShapeCost], choice: Choice) -> Table:
    """The rows as a table."""
    table = table_of(SHAPES_TITLE, SHAPES_HEAD, right=(1, 2, 3, 4, 5))
    for row in shapes_rows(costs, choice):
        add_row(table, *row)
    return table


def choice_note(choice: Choice, budget_bytes: int) -> str:
    """The chosen set in a sentence."""
    if isinstance(choice.kept, NotMeasured):
        return f"capture no shape: {choice.kept.reason}"
    budget = f"a budget of {size(budget_bytes)}"
    if not choice.shapes:
        return f"capture no shape: no graph that gains fits {budget}"
    best = "" if choice.exact else "; a greedy choice, a smaller set may do"
    return (
        f"capture {listed(list(choice.shapes), NAMED_SHAPES)}: keeps {percent(choice.kept)} of the gain "
        f"in {size(choice.nbytes)} ({budget}){best}"
    )


def padding_notes(choice: Choice, pairs: Sequence[Padding], budget_bytes: int) -> list[str]:
    """The same if the application pads: the buckets, whom each serves, and how much work is padding."""
    if not pairs:
        return []
    notes = [f"if the application pads: {choice_note(choice, budget_bytes)}"]
    used = {(shape, by) for shape, by in choice.served_by.items() if shape != by}
    shown = sorted((pair for pair in pairs if (pair.shape, pair.by) in used), key=lambda pair: -pair.gain_ns)
    notes += [
        f"  {pair.shape} by the graph of {pair.by}: saves {duration(pair.gain_ns)} per average request, "
        f"{percent(pair.waste)} of its work is padding"
        for pair in shown[:NAMED_PADDINGS]
    ]
    if len(shown) > NAMED_PADDINGS:
        notes.append(f"  and {len(shown) - NAMED_PADDINGS} more shapes are padded")
    return notes
