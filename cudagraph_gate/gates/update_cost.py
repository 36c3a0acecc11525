"""What updating an executable graph costs, in numbers, and where that is more than it saves."""

from __future__ import annotations

import statistics
from typing import Any, Final

import msgspec

from cudagraph_gate.gates.check import Check, holds
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.graphs.update import UpdateWorth, update_worth
from cudagraph_gate.model import Measured, NotMeasured
from cudagraph_gate.records import Phase, UpdateCost


def measured_updates(trial: ShapeTrial, saved: Measured) -> dict[str, Any]:
    """Each kind's curve and its worth beside ``saved`` ns a request; empty without records."""
    curves: dict[str, Any] = {}
    for worth in _worths(trial, saved):
        points = [point for point in trial.of(UpdateCost) if point.kind == worth.kind]
        curve = {
            "points": [[point.changed_nodes, point.elapsed] for point in points],
            "per_node_ns": per_node_ns(points),
            "refused": _refused(points),
            "rebuild_from_nodes": worth.rebuild_from_nodes,
            "whole_from_nodes": worth.whole_from_nodes,
            "pays_up_to_nodes": worth.pays_up_to_nodes,
        }
        curves[worth.kind] = msgspec.to_builtins(curve)
    return curves


def per_node_ns(points: list[UpdateCost]) -> float | NotMeasured:
    """What each further changed node costs: the slope of a straight line through the points of one kind.

    A whole-graph update looks at every node: its cost over their number.
    """
    known = [
        (point.changed_nodes, point.elapsed) for point in points if not isinstance(point.elapsed, NotMeasured)
    ]
    if not known:
        absent = (point.elapsed for point in points if isinstance(point.elapsed, NotMeasured))
        return next(absent, NotMeasured(reason="no update was measured"))
    if points[0].kind == "whole":
        nodes, elapsed_ns = known[-1]
        return elapsed_ns / max(1, nodes)
    if len({nodes for nodes, _elapsed in known}) < 2:
        return NotMeasured(reason="one number of changed nodes has no slope")
    return float(statistics.linear_regression(*zip(*known, strict=True)).slope)


def update_notes(trial: ShapeTrial, saved: Measured) -> list[Check]:
    """A sentence for each kind of update that costs more than a request saves, however little changes."""
    lost = [worth.kind for worth in _worths(trial, saved) if worth.loses_every_time is True]
    return [
        holds(f"a {_NAMES[kind]} before every request would cost more than a request saves") for kind in lost
    ]


_NAMES: Final = {
    "kernel": "kernel node update",
    "memcpy": "copy node update",
    "memset": "memset node update",
    "whole": "whole-graph update",
}


def _worths(trial: ShapeTrial, saved: Measured) -> tuple[UpdateWorth, ...]:
    absent = NotMeasured(reason="instantiating again was not measured")
    reinstantiate = trial.costs.get(Phase.REINSTANTIATE, absent)
    return update_worth(trial.of(UpdateCost), reinstantiate, saved)


def _refused(points: list[UpdateCost]) -> str:
    """The driver's first refusal by name, with the node; empty where every update was taken."""
    for point in points:
        if isinstance(point.elapsed, NotMeasured):
            return point.result + ("" if point.node is None else f" at node {point.node}")
    return ""
