"""Records of the append-only pilot log: one JSON object a line, written as each thing is measured.

A log that ends early is complete up to its last line; what is missing was not measured.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

from cudagraph_gate.model import (
    SCHEMA_VERSION,
    Counts,
    GateStatus,
    GraphMap,
    Measured,
    NotMeasured,
    Reason,
    Value,
)

PathName = Literal["normal", "graph", "replay", "copy_in"]
Method = Literal["capture", "explicit", "own"]
"""How the graph path is made: captured from the step, by ``build_explicit``, or by ``build_graphed``."""


class Phase(StrEnum):
    """Phases of one shape's trial, in order; those after ``destroy`` have workers of their own."""

    BUILD = "build"
    COLD_REQUEST = "cold_request"
    WARM_UP = "warm_up"
    EXPECTED = "expected"
    CAPTURE = "capture"
    INSTANTIATE = "instantiate"
    UPLOAD = "upload"
    FIRST_REPLAY = "first_replay"
    STEADY_REPLAY = "steady_replay"
    UPDATE = "update"
    REINSTANTIATE = "reinstantiate"
    TRAJECTORY = "trajectory"
    NORMAL_AGAIN = "normal_again"
    TIMING = "timing"
    UPDATE_CURVE = "update_curve"
    KERNELS = "kernels"
    DESTROY = "destroy"
    INSTANCES = "instances"
    CONCURRENCY = "concurrency"
    MEMORY = "memory"
    TRAFFIC = "traffic"


RUNG_PHASES: Final = frozenset({Phase.INSTANCES, Phase.CONCURRENCY, Phase.MEMORY, Phase.TRAFFIC})
"""Phases that workers of their own go through after the shapes were tried."""


class TrialStarted(Value, frozen=True, kw_only=True, tag="trial_started", tag_field="record"):
    """First line of a trial: what is tried."""

    schema_version: int = SCHEMA_VERSION
    workload: str
    shapes: tuple[str, ...]
    shape_values: dict[str, str]
    """What ``build`` is given for each, as text."""
    simulated: bool
    device: str
    seed: int
    """Seed of the block order and of the inputs."""
    noticed: tuple[str, ...] = ()
    """Optional parts of the workload that were found but play no part in this trial, and why."""
    traffic: bool = False
    """Whether there is a request mix for the sixth rung."""


class PhaseStarted(Value, frozen=True, kw_only=True, tag="phase_started", tag_field="record"):
    """A phase of one shape begins; a log that ends here says what was going on."""

    shape: str
    method: Method = "capture"
    phase: Phase


class Cost(Value, frozen=True, kw_only=True, tag="cost", tag_field="record"):
    """Host wall time of one phase, the device idle before and synchronised after it."""

    shape: str
    method: Method = "capture"
    phase: Phase
    elapsed: Measured
    """ns"""


class MemoryPoint(Value, frozen=True, kw_only=True, tag="memory", tag_field="record"):
    """Memory at the end of a phase."""

    shape: str
    method: Method = "capture"
    phase: Phase
    device_free_bytes: int
    """Free memory of the whole device: other processes move it too."""
    allocator_bytes: Measured
    """Bytes that the framework's allocator holds (torch: reserved)."""


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


class Block(Value, frozen=True, kw_only=True, tag="block", tag_field="record"):
    """One timed block: consecutive whole requests of one path, the recorder off.

    A ``normal`` request is step and synchronise on fresh inputs; a ``graph`` request copies the inputs
    in, replays and synchronises; ``copy_in`` is that copy alone and ``replay`` the replay without it, on
    inputs that stay the same. An own graph path has neither.
    """

    shape: str
    method: Method = "capture"
    path: PathName
    order: int
    """Position in the randomised order."""
    half: Literal["a", "b"]
    """Random half of the path's blocks: normal a against normal b gives the noise floor."""
    latencies_ns: tuple[int, ...]
    cpu_ns: int
    """CPU time of the submitting thread for the whole block."""
    process_cpu_ns: Measured = NotMeasured(reason="the process's CPU time was not read")
    """CPU time of all threads of the process for the whole block."""
    flushed_l2: bool = False
    """Whether the L2 cache was overwritten before each request, outside its time."""


class GpuState(Value, frozen=True, kw_only=True, tag="gpu_state", tag_field="record"):
    """Clocks and throttling right after a timed block, from NVML."""

    shape: str
    method: Method = "capture"
    path: PathName
    order: int
    """Of the block."""
    sm_clock_mhz: Measured
    memory_clock_mhz: Measured
    temperature_c: Measured
    power_mw: Measured
    throttled_by: tuple[str, ...] | NotMeasured = ()
    """Reasons that lower the clocks, in NVML's words; an idle GPU's low clocks are none."""


class PathIdle(Value, frozen=True, kw_only=True, tag="path_idle", tag_field="record"):
    """Some requests of one path under a light recording, apart from the timed ones."""

    shape: str
    method: Method = "capture"
    path: PathName
    requests: int
    window_ns: int
    """From the first operation's start to the last one's end."""
    busy_ns: Measured
    """Union of all operations in it."""
    operations: int
    graph_launches: Measured
    """Launches of graphs among them."""


class UpdateCost(Value, frozen=True, kw_only=True, tag="update_cost", tag_field="record"):
    """Updating an executable graph: one point of the cost curve."""

    shape: str
    method: Method = "capture"
    kind: Literal["kernel", "memcpy", "memset", "whole"]
    """Which nodes were updated one by one; ``whole``: cuGraphExecUpdate with another graph."""
    changed_nodes: int
    nodes: int
    """Of the graph."""
    elapsed: Measured
    """ns, median of several."""
    result: str
    """The driver's answer by name."""
    node: int | None = None
    """The node that it refused."""


class MemorySeries(Value, frozen=True, kw_only=True, tag="memory_series", tag_field="record"):
    """Memory while one activity is repeated."""

    shape: str
    method: Method = "capture"
    activity: Literal["replays", "cycles", "aborted"]
    """Replays of one graph; capture, instantiate, replay, destroy; captures that fail."""
    counts: tuple[int, ...]
    """How often the activity had been done at each point, ascending."""
    device_used_bytes: tuple[int, ...]
    """Of the whole device: other processes move it too."""
    allocator_bytes: tuple[int, ...] | NotMeasured
    host_rss_bytes: tuple[int, ...] | NotMeasured


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


class Finding(Value, frozen=True, kw_only=True, tag="finding", tag_field="record"):
    """Something that speaks against a graph, or kept the trial from trying."""

    shape: str
    method: Method = "capture"
    phase: Phase
    code: Reason
    message: str
    call: str = ""
    """API call or operation that is to blame, if known."""
    where: str = ""
    """Python file and line in the user's code, if known."""
    advice: str = ""
    blocks: bool = True
    """False for what is worth knowing but decides nothing."""


class NormalPathProbe(Value, frozen=True, kw_only=True, tag="normal_path", tag_field="record"):
    """After a failed capture: is the normal path still right in this process?"""

    shape: str
    method: Method = "capture"
    intact: bool
    detail: str


class ShapeEnded(Value, frozen=True, kw_only=True, tag="shape_ended", tag_field="record"):
    """All phases of one shape were run, or the trial stopped at a finding."""

    shape: str
    method: Method = "capture"
    completed: bool


class WorkerEnd(Value, frozen=True, kw_only=True, tag="worker_end", tag_field="record"):
    """How the worker process ended, written by the parent."""

    stage: str
    outcome: Literal["finished", "failed", "crashed", "timed_out", "killed"]
    exit_code: int | None
    signal: str = ""
    reason: str = ""
    phase: str = ""
    """Phase that was going on, for an end that was not planned."""


Record = (
    TrialStarted
    | PhaseStarted
    | Cost
    | MemoryPoint
    | NodeSet
    | CapturedMap
    | Comparison
    | Block
    | GpuState
    | PathIdle
    | UpdateCost
    | MemorySeries
    | InstanceRun
    | ConcurrentRun
    | TrafficRun
    | RungEnded
    | Finding
    | NormalPathProbe
    | ShapeEnded
    | WorkerEnd
)
