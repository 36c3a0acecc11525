"""Repeating sequences of operations: what a graph could be made of."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from cudagraph_gate.model.base import Measured, NotMeasured, Value
from cudagraph_gate.model.statistics import Distribution


class CallSite(Value, frozen=True, kw_only=True):
    """Where in the program calls were made, as far as the recorder knows: ``file:line function``, or the
    framework's operator."""

    where: str
    count: int
    total_ns: int


class CallSummary(Value, frozen=True, kw_only=True):
    """Calls of one API function."""

    name: str
    count: int
    total_ns: int
    sites: tuple[CallSite, ...] = ()
    """The sites with the most time, longest first; empty where none is known."""


class SegmentVariant(Value, frozen=True, kw_only=True):
    """Repeats of a segment that are equal in everything that was recorded."""

    signature: str
    """Short digest of kinds, names, launch shapes, sizes, streams and their order."""
    repeats: int
    share: float
    """Of all repeats."""
    operations: int


class SegmentVariation(Value, frozen=True, kw_only=True):
    """Share of the repeats that differ from the commonest variant, in each respect (0 to 1).

    Kernel arguments are not recorded and never compared.
    """

    operation_count: float
    order: float
    """Other kinds or names, or another order of them, for the same number of operations."""
    grid: float
    """Same operations with other grids or blocks."""
    sizes: float
    """Same operations with other sizes of copies or memsets."""
    streams: float
    """Same operations assigned to streams in another way."""


class StablePiece(Value, frozen=True, kw_only=True, tag="stable_piece"):
    """The longest run of a segment's operations that (nearly) every repeat has in common."""

    first: int
    """Index of its first operation in the commonest variant."""
    operations: int
    first_operation: str
    last_operation: str
    repeat_share: float
    """Share of the repeats that contain it."""


class Capturability(StrEnum):
    """Whether a part of a segment can become part of a graph."""

    CAPTURABLE = "capturable"
    EXPLICIT_ONLY = "explicit_only"
    """Stream capture refuses or loses it; explicit nodes can express it."""
    NOT_CAPTURABLE = "not_capturable"


class MapRole(StrEnum):
    """What a part of a segment does for the others."""

    INPUT = "input"
    """Copies from the host."""
    OUTPUT = "output"
    """Copies to the host."""
    WORK = "work"
    HOST_CALLBACK = "host_callback"
    WAIT = "wait"
    """A stream waits for an event of another one."""
    BLOCKING = "blocking"
    """The host waits for the device."""
    PROHIBITED = "prohibited"
    """A call that capture refuses: allocation, module loading, a query."""
    GRAPH = "graph"
    """A graph that is launched already."""


class MapNode(Value, frozen=True, kw_only=True):
    """Neighbouring operations of one stream, library and role, in one repeat of the segment."""

    number: int
    role: MapRole
    label: str
    library: str
    """cuBLAS, cuDNN, NCCL, Triton, … by kernel and API names; empty if none is recognised."""
    stream: int
    """0 for host calls that belong to no stream."""
    operations: int
    busy_ns: int
    capturable: Capturability
    reason: str
    """Why it is not simply capturable; empty if it is."""


class MapEdge(Value, frozen=True, kw_only=True):
    """``target`` runs after ``source``."""

    source: int
    target: int
    kind: Literal["stream", "event", "host"]


class SegmentMap(Value, frozen=True, kw_only=True, tag="segment_map"):
    """Who produces and consumes what in one repeat, as far as a timeline can tell."""

    nodes: tuple[MapNode, ...]
    edges: tuple[MapEdge, ...]


class ReplayPrediction(Value, frozen=True, kw_only=True, tag="replay_prediction"):
    """What replaying the segment as one graph would take, from the timeline alone."""

    nodes: int
    critical_path_ns: int
    """Longest chain of operations over the segment's streams."""
    replay_ns: int
    replay_low_ns: int
    replay_high_ns: int
    upper_bound_ns: Measured
    """Median submission idle inside a repeat: what a graph can give back at most, recorder included."""
    assumptions: tuple[str, ...]


class Segment(Value, frozen=True, kw_only=True):
    """A run of operations between blocking calls that repeats across iterations."""

    number: int
    signature: str
    """Of the commonest variant."""
    process: int
    device: int
    thread: int
    """The submitting thread; 0 if it is not known."""
    marked_by: str
    """Name of the range that marks an iteration; empty if it was found by repetition alone."""
    operations: int
    """In the commonest variant."""
    unit_operations: int
    """Where a repeat is a shorter sequence back to back, that one's length; else ``operations``."""
    repeats: int
    coverage: float
    """Share of the window from the first to the last moment of each repeat (call or operation)."""
    operation_share: float
    """Share of the device's operations."""
    streams: int
    wall: Distribution
    """Time of a repeat of the commonest variant in which no other repeat has a part, under the recorder."""
    busy_ns: int
    """Median union of the operations of such a repeat."""
    variants: tuple[SegmentVariant, ...]
    """Most frequent first, at most ten."""
    variant_count: int
    variation: SegmentVariation
    stable_piece: StablePiece | NotMeasured
    blocking_calls: tuple[CallSummary, ...]
    """Blocking calls that separate it from the iteration's next part, or lie inside it."""
    prohibited_calls: tuple[CallSummary, ...]
    """Calls inside it that capture refuses."""
    graph_launches: int
    """Graph launches in one repeat: so much of it is a graph already."""
    kernels: dict[str, int]
    """Kernel name to launches in the commonest variant."""
    prediction: ReplayPrediction | NotMeasured
    map: SegmentMap
