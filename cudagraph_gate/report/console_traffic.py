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

TRAFFIC_HEAD: Final = ("load", "path", "P50", "P95", "P99", "busy")
SHAPES_HEAD: Final = ("shape", "requests", "normal", "graph", "gain", "memory", "capture")
NAMED_SHAPES: Final = 6
"""Shapes named in a sentence."""
NAMED_PADDINGS: Final = 3
"""Pairs named: those with the most gain."""

_PATHS: Final[tuple[PathName, ...]] = ("normal", "graph")


def traffic_table(traffic: Traffic) -> Table:
    """Latency with queueing of both paths at each load level; what is saturated says so."""
    table = table_of("latency under the request mix, queueing included", TRAFFIC_HEAD, right=(2, 3, 4, 5))
    for level in traffic.levels:
        for path, load in zip(_PATHS, (level.normal, level.graph), strict=True):
            add_row(table, _load(level) if path == "normal" else "", path, *_load_cells(load))
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


def shapes_table(costs: Sequence[ShapeCost], choice: Choice) -> Table:
    """What each shape gains per average request of the mix, and which of them to capture."""
    table = table_of("gain by shape, per average request of the mix", SHAPES_HEAD, right=(1, 2, 3, 4, 5))
    for cost in sorted(costs, key=lambda cost: cost.gain_ns, reverse=True):
        add_row(
            table,
            cost.name,
            percent(cost.share),
            duration(cost.normal_ns),
            duration(cost.graph_ns),
            duration(cost.gain_ns),
            size(cost.nbytes),
            "yes" if cost.name in choice.shapes else "no",
        )
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
