"""The base of every value, absence, and the words that all rooms share."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

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


class Limiter(StrEnum):
    """What keeps the GPU from doing more: the GPU itself, or the largest part of its idle time."""

    GPU = "gpu"
    """It is busy nearly all the time: slow kernels, not gaps."""
    SUBMISSION = "submission"
    """The host can't submit as fast as the GPU works: what a graph can help."""
    NO_REQUEST = "no_request"
    """Nobody asks for work."""
    HOST_WAIT = "host_wait"
    """The submitting thread waits, off the CPU, for a loader, a disk, a network or a lock."""
    HOST_WORK = "host_work"
    """The host computes something else between pieces of GPU work."""
    SYNC = "sync"
    DEPENDENCY = "dependency"
    PROFILER = "profiler"
    UNKNOWN = "unknown"
    """Idle is not measurable, or most of it has no known cause."""


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
