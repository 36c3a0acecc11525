"""Records of a graph: its nodes, its map, and how its outputs compare."""

from __future__ import annotations

from typing import Literal

from cudagraph_gate.model import Counts, GraphMap, NotMeasured, Value
from cudagraph_gate.records.phases import Method


class NodeSet(Value, frozen=True, kw_only=True, tag="nodes", tag_field="record"):
    """The captured graph beside the kernels that the normal path runs."""

    shape: str
    method: Method = "capture"
    nodes: int
    kinds: dict[str, int]
    kernels: dict[str, int]
    """Kernel name to count among the graph's nodes."""
    normal_kernels: Counts | NotMeasured
    """The same for one request of the normal path, from a recorded run."""
    normal_copies: Counts | NotMeasured = NotMeasured(reason="copies were not counted")
    """Memory copies and memsets of that request by ``kinds``' names."""


class CapturedMap(Value, frozen=True, kw_only=True, tag="captured_map", tag_field="record"):
    """What the graph looks like: its parts, who waits for whom, and the libraries."""

    shape: str
    method: Method = "capture"
    map: GraphMap


class Comparison(Value, frozen=True, kw_only=True, tag="comparison", tag_field="record"):
    """One request of the trajectory: graph path against the normal path from the same state."""

    shape: str
    method: Method = "capture"
    request: int
    subject: Literal["outputs", "state", "normal_again", "normal_repeat"]
    equal: bool
    """Within tolerance; ``exact`` says whether bit by bit."""
    exact: bool
    max_abs_error: float | NotMeasured
    """Largest difference; not measured where values can't be subtracted (another shape, NaN for a number)."""
    tolerance: float
    detail: str = ""
    """Which output or state entry differs most, or why they can't be compared."""
