"""Records of what one shape's trial measured: costs, memory, blocks, idle, updates."""

from __future__ import annotations

from typing import Literal

from cudagraph_gate.model import Measured, NotMeasured, Value
from cudagraph_gate.records.phases import Method, PathName, Phase


class Cost(Value, frozen=True, kw_only=True, tag="cost", tag_field="record"):
    """Host wall time of one phase, the device idle before and synchronised after it."""

    shape: str
    method: Method = "capture"
    phase: Phase
    elapsed: Measured
    """ns"""
    stalled_ns: int = 0
    """Of steady replays, whose median is ``elapsed``: what single ones took far beyond it, all together."""


class MemoryPoint(Value, frozen=True, kw_only=True, tag="memory", tag_field="record"):
    """Memory at the end of a phase."""

    shape: str
    method: Method = "capture"
    phase: Phase
    device_free_bytes: int
    """Free memory of the whole device: other processes move it too."""
    allocator_bytes: Measured
    """Bytes that the framework's allocator holds (torch: reserved)."""


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


class WholeRequests(Value, frozen=True, kw_only=True, tag="whole_requests", tag_field="record"):
    """One timed block of the workload's ``request``: consecutive whole requests of one path, end to end."""

    shape: str
    method: Method = "capture"
    path: PathName
    """``normal`` or ``graph``: which of them the step in each request is."""
    order: int
    half: Literal["a", "b"]
    """As in :class:`Block`."""
    latencies_ns: tuple[int, ...]
    cpu_ns: int
    """CPU time of the submitting thread for the whole block."""
    process_cpu_ns: Measured = NotMeasured(reason="the process's CPU time was not read")
    step_calls: int
    """How often these requests called the step."""
    refused_calls: int = 0
    """Those of them whose inputs the graph refused: the normal step served them."""
    refusal: str = ""
    """Why the first of them was refused."""


class StepShare(Value, frozen=True, kw_only=True, tag="step_share", tag_field="record"):
    """How much of some whole requests of the normal path is the step: what a graph can touch of them."""

    shape: str
    method: Method = "capture"
    requests: int
    request_ns: int
    """All of them together."""
    step_ns: int
    """All calls of the step in them, the device synchronised before and after each."""
    step_calls: int


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
    graph_operations: Measured = NotMeasured(reason="operations of graphs were not counted")
    """Those that belong to a launched graph."""


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
