"""Records of the append-only pilot log: one JSON object a line, written as each thing is measured.

A log that ends early is complete up to its last line; what is missing was not measured.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from cudagraph_gate.model import SCHEMA_VERSION, Counts, Measured, NotMeasured, Reason, Value

PathName = Literal["normal", "graph", "copy_in"]


class Phase(StrEnum):
    """Phases of one shape's trial, in order."""

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
    TRAJECTORY = "trajectory"
    NORMAL_AGAIN = "normal_again"
    TIMING = "timing"
    DESTROY = "destroy"
    KERNELS = "kernels"


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


class PhaseStarted(Value, frozen=True, kw_only=True, tag="phase_started", tag_field="record"):
    """A phase of one shape begins; a log that ends here says what was going on."""

    shape: str
    phase: Phase


class Cost(Value, frozen=True, kw_only=True, tag="cost", tag_field="record"):
    """Host wall time of one phase, the device idle before and synchronised after it."""

    shape: str
    phase: Phase
    elapsed: Measured
    """ns"""


class MemoryPoint(Value, frozen=True, kw_only=True, tag="memory", tag_field="record"):
    """Memory at the end of a phase."""

    shape: str
    phase: Phase
    device_free_bytes: int
    """Free memory of the whole device: other processes move it too."""
    allocator_bytes: Measured
    """Bytes that the framework's allocator holds (torch: reserved)."""


class NodeSet(Value, frozen=True, kw_only=True, tag="nodes", tag_field="record"):
    """The captured graph beside the kernels that the normal path runs."""

    shape: str
    nodes: int
    kinds: dict[str, int]
    kernels: dict[str, int]
    """Kernel name to count among the graph's nodes."""
    normal_kernels: Counts | NotMeasured
    """The same for one request of the normal path, from a recorded run."""
    normal_copies: Counts | NotMeasured = NotMeasured(reason="copies were not counted")
    """Memory copies and memsets of that request by ``kinds``' names."""


class Comparison(Value, frozen=True, kw_only=True, tag="comparison", tag_field="record"):
    """One request of the trajectory: graph path against the normal path from the same state."""

    shape: str
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
    in, replays and synchronises; ``copy_in`` is that copy alone.
    """

    shape: str
    path: PathName
    order: int
    """Position in the randomised order."""
    half: Literal["a", "b"]
    """Random half of the path's blocks: normal a against normal b gives the noise floor."""
    latencies_ns: tuple[int, ...]
    cpu_ns: int
    """CPU time of the submitting thread for the whole block."""


class Finding(Value, frozen=True, kw_only=True, tag="finding", tag_field="record"):
    """Something that speaks against a graph, or kept the trial from trying."""

    shape: str
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
    intact: bool
    detail: str


class ShapeEnded(Value, frozen=True, kw_only=True, tag="shape_ended", tag_field="record"):
    """All phases of one shape were run, or the trial stopped at a finding."""

    shape: str
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
    | Comparison
    | Block
    | Finding
    | NormalPathProbe
    | ShapeEnded
    | WorkerEnd
)
