"""Records of the later rungs: instances, threads, traffic."""

from __future__ import annotations

from cudagraph_gate.model import GateStatus, Measured, NotMeasured, Reason, Value
from cudagraph_gate.records.phases import PathName


class InstanceRun(Value, frozen=True, kw_only=True, tag="instances", tag_field="record"):
    """Rung 4: several graphs of one shape in one process, replayed in turns on streams of their own."""

    shape: str
    count: int
    requests: int
    """Of each instance; all are compared with the normal path."""
    wrong: int
    """Requests whose outputs differ."""
    detail: str = ""
    """The first difference."""
    bytes_per_instance: Measured
    """Device memory of each further instance, median."""
    normal_ns: Measured
    """Median time of a round: one request on each stream, submitted together, then synchronised."""
    graph_ns: Measured
    normal_blocks_ns: tuple[int, ...] | NotMeasured = NotMeasured(reason="rounds were not logged by block")
    """Median round of each block, in the order of their measurement; blocks of both paths at the same
    position were neighbours."""
    graph_blocks_ns: tuple[int, ...] | NotMeasured = NotMeasured(reason="rounds were not logged by block")


class ConcurrentRun(Value, frozen=True, kw_only=True, tag="concurrency", tag_field="record"):
    """Rung 5: one block of requests from several host threads, each with its own stream and instance."""

    shape: str
    path: PathName
    order: int
    threads: int
    latencies_ns: tuple[int, ...]
    """Of all threads."""
    elapsed_ns: int
    """From the first start to the last end."""
    process_cpu_ns: Measured
    wrong: int
    """Requests whose outputs differ from those of the normal path run alone."""
    failure: str = ""
    """The first exception of a thread."""


class TrafficRun(Value, frozen=True, kw_only=True, tag="traffic", tag_field="record"):
    """Rung 6: the request mix at its arrival times, one path, one load level."""

    path: PathName
    level: float
    """Offered load: arrivals times this many service times of the normal path, 1 is its saturation."""
    order: int
    declared: bool = False
    """Whether this is the rate of the given arrival times themselves."""
    shapes: tuple[str, ...]
    """Shape names that ``requests`` refer to."""
    captured: tuple[str, ...]
    """Shapes that the graph path serves by a graph; the others take the normal path in it."""
    requests: tuple[int, ...]
    """Index into ``shapes`` of each request."""
    arrivals_ns: tuple[int, ...]
    """When each one was due, from the start of the run."""
    starts_ns: tuple[int, ...]
    ends_ns: tuple[int, ...]


class RungEnded(Value, frozen=True, kw_only=True, tag="rung", tag_field="record"):
    """One rung of the ladder was judged; after one that does not hold none is tried."""

    number: int
    name: str
    status: GateStatus
    reason: str
    code: Reason | None = None
