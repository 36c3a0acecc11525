"""Values that pass between the rooms and into the evidence folder: frozen, typed, in ns and bytes.

Absence is a :class:`NotMeasured` with its reason, never -1 and never a missing field.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec

SCHEMA_VERSION: Final = 1
"""Version of every JSON artefact. 1: first."""


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Base of everything here: immutable, keyword-only."""


class NotMeasured(Value, frozen=True, kw_only=True, tag="not_measured"):
    """A value that could not be measured, and why."""

    reason: str


Measured = int | NotMeasured
"""A count, ns or bytes, or the reason why there is none."""


class Cause(StrEnum):
    """Why the GPU was idle; each idle nanosecond has exactly one cause (``docs/definitions.md``)."""

    NO_REQUEST = "no_request"
    HOST_WORK = "host_work"
    HOST_API = "host_api"
    SYNC = "sync"
    LAUNCH_LATENCY = "launch_latency"
    DEPENDENCY = "dependency"
    GRAPH_GAP = "graph_gap"
    PROFILER = "profiler"
    RAMP = "ramp"
    UNKNOWN = "unknown"


SUBMISSION_CAUSES: Final = (Cause.HOST_WORK, Cause.HOST_API, Cause.LAUNCH_LATENCY)
"""Idle that replaying a graph can give back."""


class Reason(StrEnum):
    """Machine-readable reason codes of findings and gates."""

    FROZEN_HOST_STATE = "frozen-host-state"
    UNSTABLE_ADDRESS = "unstable-address"
    LIFETIME = "lifetime"
    ESCAPED_WORK = "escaped-work"
    CAPTURE_ILLEGAL = "capture-illegal"
    UNJOINED_STREAM = "unjoined-stream"
    CAPTURE_INTERFERENCE = "capture-interference"
    REPLAY_RACE = "replay-race"
    STATE_MUTATION = "state-mutation"
    RNG = "rng"
    GRADIENT = "gradient"
    PADDING = "padding"
    MEMORY_GROWTH = "memory-growth"
    MEMORY = "memory"
    NO_GAIN = "no-gain"
    REGRESS = "regress"
    CHURN = "churn"
    NO_GRAPH_USED = "no-graph-used"
    UNMEASURABLE = "unmeasurable"
    ENVIRONMENT = "environment"
    HANG = "hang"
    CRASH = "crash"
    WRONG_OUTPUT = "wrong-output"
    WORKLOAD = "workload"
    NOT_TRIED = "not-tried"


# --- what the environment is ----------------------------------------------------------------------


Scalar = str | int | float | bool
FieldValue = Scalar | tuple[str, ...]


class Fingerprint(Value, frozen=True, kw_only=True, tag="fingerprint"):
    """The environment a verdict holds for.

    ``identity`` must be equal for a verdict to stay valid; ``conditions`` (clocks now, free memory) are
    recorded but not compared; ``missing`` names what could not be read and why. ``digest`` is the SHA-256
    of ``identity``.
    """

    schema_version: int = SCHEMA_VERSION
    simulated: bool
    digest: str
    identity: dict[str, FieldValue]
    conditions: dict[str, FieldValue]
    missing: dict[str, str]


# --- what the timeline means ----------------------------------------------------------------------


class Counts(Value, frozen=True, kw_only=True, tag="counts"):
    """How often each name occurs."""

    by_name: dict[str, int]


class Distribution(Value, frozen=True, kw_only=True, tag="distribution"):
    """Percentiles of a sample, in ns."""

    count: int
    p50: int
    p95: int
    p99: int
    minimum: int
    maximum: int


class IdleInterval(Value, frozen=True, kw_only=True):
    """One idle interval of a device and what ended it."""

    start_ns: int
    """From the start of the window."""
    duration_ns: int
    cause: Cause
    """The cause of most of it."""
    next_operation: str
    host_call: str
    """The API call that took most of it on the submitting thread; empty if none."""
    range_name: str
    """Innermost user range around its start; empty if none."""


class DeviceIdle(Value, frozen=True, kw_only=True):
    """Busy and idle time of one device of one process over the window.

    ``busy_ns`` is the union over streams, ``sum_ns`` the sum of durations, ``compute_ns`` and ``copy_ns``
    the unions per engine. Where idle is measurable, ``busy_ns + sum(causes.values()) == window_ns``.
    """

    process: int
    device: int
    window_ns: int
    busy_ns: int
    sum_ns: int
    compute_ns: int
    copy_ns: int
    idle_ns: Measured
    causes: dict[Cause, int]
    """Empty where idle is not measurable."""
    operations: int
    streams: int
    top_idle: tuple[IdleInterval, ...] = ()


class CallSummary(Value, frozen=True, kw_only=True):
    """Calls of one API function."""

    name: str
    count: int
    total_ns: int


class Launches(Value, frozen=True, kw_only=True):
    """How work was submitted. TKLQT: sum of (kernel start - launch call start), a graph launch once."""

    submissions: int
    graph_launches: int
    submission_gap: Distribution | NotMeasured
    tklqt_ns: Measured
    blocking_calls: tuple[CallSummary, ...] = ()


class RangeSummary(Value, frozen=True, kw_only=True):
    """All ranges of one name."""

    name: str
    domain: str
    count: int
    wall_ns: int
    busy_ns: int
    operations: int


class Requests(Value, frozen=True, kw_only=True, tag="requests"):
    """The recorded requests: wall time under the recorder, medians per request of everything else."""

    count: int
    wall: Distribution
    busy_ns: int
    operations: int
    submissions: int
    blocking_calls: int
    kernels: dict[str, int]
    """Kernel name to launches in one request (median over requests)."""
    stable: bool
    """Whether every request ran the same sequence of operations."""
    unstable_share: float
    """Share of requests whose sequence differs from the commonest one."""
    submission_idle_ns: Measured
    """Median idle of ``SUBMISSION_CAUSES`` inside a request."""


class Prediction(Value, frozen=True, kw_only=True, tag="prediction"):
    """What a graph would give one request, from the normal path alone."""

    normal_ns: int
    """Median request without the recorder."""
    replay_ns: int
    replay_low_ns: int
    replay_high_ns: int
    copy_in_ns: int
    """Measured median time to copy the request's inputs into static buffers."""
    request_ns: int
    """Predicted graph request: copy in, replay, synchronise."""
    gain: float
    """1 - request_ns / normal_ns; negative when the graph would be slower."""
    upper_bound_ns: Measured
    """Idle per request that submission caused: what a graph can give back at most."""
    assumptions: tuple[str, ...]


class Diagnosis(Value, frozen=True, kw_only=True):
    """The whole analysis of one timeline."""

    schema_version: int = SCHEMA_VERSION
    source: str
    level: str
    simulated: bool
    resolution_ns: int
    problems: tuple[str, ...]
    devices: tuple[DeviceIdle, ...]
    launches: Launches
    ranges: tuple[RangeSummary, ...]
    requests: Requests | NotMeasured
    prediction: Prediction | NotMeasured
    conclusion: str
    """One sentence for a person."""


class ProfileTimes(Value, frozen=True, kw_only=True):
    """Requests of the normal path timed without the recorder, and the cost of static inputs."""

    schema_version: int = SCHEMA_VERSION
    shape: str
    shape_value: str
    """What ``build`` was given for it, as text: one name means one value in a run."""
    cold_ns: int
    latency: Distribution
    cpu_ns: int
    """Median CPU time of the submitting thread per request."""
    recorded_latency: Distribution
    """The same requests under the recorder: their ratio is the recorder's inflation."""
    copy_in_ns: int
    input_bytes: dict[str, int]
    iterations: int


# --- what the verdict is --------------------------------------------------------------------------


class GateStatus(StrEnum):
    """Answer of one gate."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Decision(StrEnum):
    """The four verdicts."""

    GO = "GO"
    CONDITIONAL = "CONDITIONAL"
    NO_GO = "NO-GO"
    INCONCLUSIVE = "INCONCLUSIVE"


class GateResult(Value, frozen=True, kw_only=True):
    """One gate's answer, with what it rests on."""

    number: int
    name: str
    status: GateStatus
    measured: dict[str, Any]
    threshold: dict[str, Any]
    reason: str
    code: Reason | None = None
    evidence: tuple[str, ...] = ()
    """Artefacts of the run folder."""


class Verdict(Value, frozen=True, kw_only=True):
    """The verdict, for the recorded environment only."""

    schema_version: int = SCHEMA_VERSION
    verdict: Decision
    rehearsal: Decision | None
    """On the simulated device: what the verdict would be if this were a GPU."""
    recorded_verdict: Decision | None
    """Set when the evidence is stale here: what it said where it was recorded."""
    stale: tuple[str, ...]
    """Fingerprint fields that differ between the recording and this machine."""
    reasons: tuple[str, ...]
    conditions: tuple[str, ...]
    gates: tuple[GateResult, ...]
    workload: str
    run: str
    fingerprint: Fingerprint | NotMeasured
    policy: dict[str, Any]
