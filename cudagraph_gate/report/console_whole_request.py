"""Whole business requests by both paths, for a terminal."""

from __future__ import annotations

from typing import Final

from rich.console import Console

from cudagraph_gate.gates.latency import QuantilePair
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.gates.whole_request import WholeRequest, view_whole_request
from cudagraph_gate.gates.wording import duration, percent
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.report.console_pieces import add_row, line, table_of

WHOLE_REQUEST_HEAD: Final = ("", "normal", "graph", "ratio", "95 % interval")


def print_whole_request(console: Console, shape: ShapeTrial) -> None:
    """Both paths from end to end, and what a graph can touch of it; nothing where none were timed."""
    view = view_whole_request(shape)
    if view is None:
        return
    if isinstance(view, NotMeasured):
        line(console, view.reason, "yellow")
        return
    table = table_of(f"whole request, shape {shape.shape}", WHOLE_REQUEST_HEAD, right=(1, 2, 3, 4))
    for row in whole_request_rows(view):
        add_row(table, *row)
    console.print(table)
    for note in whole_request_notes(view):
        line(console, note)


def whole_request_rows(view: WholeRequest) -> list[tuple[str, str, str, str, str]]:
    """One row a quantile, as ``WHOLE_REQUEST_HEAD`` names the columns; a reason stands in for a number."""
    paths = view.paths
    pairs = {"P50": paths.p50, "P95": paths.p95, "P99": paths.p99}
    rows = [_row(name, pair) for name, pair in pairs.items()]
    return [*rows, ("CPU", duration(paths.normal_cpu_ns), duration(paths.graph_cpu_ns), "", "")]


def _row(name: str, pair: QuantilePair | NotMeasured) -> tuple[str, str, str, str, str]:
    if isinstance(pair, NotMeasured):
        return name, pair.reason, "", "", ""
    interval = f"{pair.ratio.low:.3f} to {pair.ratio.high:.3f}"
    return name, duration(pair.normal_ns), duration(pair.graph_ns), f"{pair.ratio.ratio:.3f}", interval


def whole_request_notes(view: WholeRequest) -> list[str]:
    """What of a request the graph can touch, and whether it served all of it."""
    share = view.step_share
    calls = "1 call" if view.step_calls == 1 else f"{view.step_calls:.3g} calls"
    touched = (
        share.reason if isinstance(share, NotMeasured) else f"the graph can touch {percent(share)} of it"
    )
    notes = [f"{calls} of the step in a request: {touched}"]
    if view.refused_share:
        refused = percent(view.refused_share)
        notes.append(f"{refused} of the calls were not served by the graph: {view.refusal}")
    return notes
