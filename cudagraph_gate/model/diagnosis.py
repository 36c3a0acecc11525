"""What a timeline means."""

from __future__ import annotations

from typing import Final

from cudagraph_gate.model.base import SCHEMA_VERSION, Cause, Limiter, Measured, NotMeasured, Value
from cudagraph_gate.model.segments import CallSummary, Segment
from cudagraph_gate.model.statistics import Distribution, Histogram

OLDER: Final = NotMeasured(reason="the run was made by a version that did not measure this")
"""Stands where an artefact of an older version lacks a field that was added since."""


class IdleCauses(Value, frozen=True, kw_only=True, tag="idle_causes"):
    """Idle time by cause; causes without any are left out."""

    by_cause: dict[Cause, int]


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


class HostWork(Value, frozen=True, kw_only=True, tag="host_work"):
    """The ``host_work`` idle of a device by what its submitting threads did meanwhile.

    Where CPU time was recorded for only a part of it, the three add up to the whole.
    """

    on_cpu_ns: int
    waiting_ns: int
    """Off the CPU: input and output, locks, other threads, or no free core."""
    unsampled_ns: int


class IdleGaps(Value, frozen=True, kw_only=True, tag="idle_gaps"):
    """The idle intervals of a device by length: many short gaps, or a few long holes."""

    count: int
    median_ns: int
    longest_ns: int
    long_ns: int
    """Longer gaps are too long to be a matter of launching (docs/definitions.md, Limiter)."""
    short_ns: int
    """Idle time in gaps of at most ``long_ns``."""
    histogram: Histogram
    idle_ns: tuple[int, ...]
    """Idle time in each bucket of the histogram."""


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
    host_work: HostWork | NotMeasured = OLDER
    idle_gaps: IdleGaps | NotMeasured = OLDER
    top_idle: tuple[IdleInterval, ...] = ()


class ThreadSubmissions(Value, frozen=True, kw_only=True):
    """Submission calls of one host thread and the gaps between them."""

    process: int
    thread: int
    submissions: int
    gap: Distribution | NotMeasured
    histogram: Histogram | NotMeasured


class LaunchPhases(Value, frozen=True, kw_only=True, tag="launch_phases"):
    """Kernel launches in the phases of Nsight Systems; a graph launch counts once, by its first node."""

    launches: int
    api: Distribution
    """Duration of the launch call."""
    queue: Distribution | NotMeasured
    """End of the call to start of the kernel, of those launches whose kernel started after the call's end."""
    queued: int
    """Launches with a queue time; for the others it is absent, not zero."""
    kernel: Distribution


class QueueDepth(Value, frozen=True, kw_only=True, tag="queue_depth"):
    """Submitted operations that have not ended, over the window; a graph launch counts once."""

    mean: float
    maximum: int
    empty_share: float
    """Share of the window in which nothing was submitted and unfinished: the host was behind."""
    over_time: tuple[float, ...]
    """Mean depth in equal parts of the window, in time order."""


class Launches(Value, frozen=True, kw_only=True):
    """How work was submitted. TKLQT: sum of (kernel start - launch call start), a graph launch once."""

    submissions: int
    graph_launches: int
    submission_gap: Distribution | NotMeasured
    tklqt_ns: Measured
    phases: LaunchPhases | NotMeasured = OLDER
    queue_depth: QueueDepth | NotMeasured = OLDER
    threads: tuple[ThreadSubmissions, ...] = ()
    by_call: tuple[CallSummary, ...] = ()
    """Submission calls by API function, most time first."""
    blocking_calls: tuple[CallSummary, ...] = ()


class RangeSummary(Value, frozen=True, kw_only=True):
    """All ranges of one name."""

    name: str
    domain: str
    count: int
    wall_ns: int
    busy_ns: int
    operations: int
    submissions: int = 0
    idle: IdleCauses | NotMeasured = OLDER
    """Idle of the device that was idle for submission longest, by cause, while the ranges were open."""


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
    idle: IdleCauses | NotMeasured = OLDER
    """Idle inside all requests together, by cause, of the device that was idle for submission longest."""


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
    segments: tuple[Segment, ...] | NotMeasured = OLDER
    """Repeating sequences of operations, the one with the most to gain first."""
    limiter: Limiter = Limiter.UNKNOWN
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
