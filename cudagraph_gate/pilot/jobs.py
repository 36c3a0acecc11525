"""What a worker process is asked to do, and what it says while it does it."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from cudagraph_gate.device import DeviceChoice
from cudagraph_gate.model import Value
from cudagraph_gate.records import Method

DEFAULT_SEED: Final = 20_240


WAITS_FOR_JOB: Final = "wait"
"""Argument of a worker that reads from stdin: a line of modules to import, then its job."""

RungKind = Literal["instances", "concurrency", "memory", "traffic"]


class ProfileJob(Value, frozen=True, kw_only=True, tag="profile"):
    """Record the normal path of one shape: fingerprint, request times, timeline."""

    folder: str
    workload: str
    device: DeviceChoice
    shapes: str | None
    """What ``--shapes`` said (None: it was not given; empty: bare); the first shape of it is recorded."""
    seed: int = DEFAULT_SEED
    duration_s: float | None = None
    """Record requests for so long; None: as many as ``iterations``."""
    iterations: int | None = None
    """Record so many requests; None: as many as usual, or as fit into ``duration_s``."""
    range_name: str = ""
    """User ranges of this name mark requests; empty: each call of the step is one."""


class ScriptJob(Value, frozen=True, kw_only=True, tag="script"):
    """Record a whole script run with its arguments."""

    folder: str
    script: str
    arguments: tuple[str, ...]
    duration_s: float | None = None
    """End the script after so long; None: it ends by itself."""
    iterations: int | None = None
    """End the script when so many ranges of ``range_name`` have ended."""
    range_name: str = ""
    """User ranges of this name mark requests."""
    trace_children: bool = False
    """Record Python processes that the script starts, too."""


class TrialJob(Value, frozen=True, kw_only=True, tag="trial"):
    """Try a graph for one shape."""

    folder: str
    workload: str
    device: DeviceChoice
    shapes: str | None
    shape: str | None
    """None: the first one; that worker also opens the trial's log and answers with all names."""
    method: Method | None = None
    """None: the workload's own graph path where it has one, else capture."""
    flush_l2: bool = False
    """Overwrite the L2 cache before each timed request."""
    seed: int = DEFAULT_SEED


class RungJob(Value, frozen=True, kw_only=True, tag="rung"):
    """One of the trials that need a worker of their own, after the shapes were tried."""

    kind: RungKind
    folder: str
    workload: str
    device: DeviceChoice
    shapes: str | None
    shape: str
    """The target; of ``traffic`` the shape that the log calls it by."""
    method: Method = "capture"
    captured: tuple[str, ...] = ()
    """Of ``traffic``: shapes that held and are served by graphs."""
    seed: int = DEFAULT_SEED


class ScenarioJob(Value, frozen=True, kw_only=True, tag="scenario"):
    """Inject one fault and look at what is left; ``part`` 1 replaces the process that part 0 lost."""

    scenario: str
    part: int = 0
    folder: str
    workload: str
    device: DeviceChoice
    shapes: str | None
    shape: str
    method: Method = "capture"
    seed: int = DEFAULT_SEED


class ProbeJob(Value, frozen=True, kw_only=True, tag="probe"):
    """Find out what this machine can measure and which graph features work."""

    device: DeviceChoice


Job = ProfileJob | ScriptJob | TrialJob | RungJob | ScenarioJob | ProbeJob


class Progress(Value, frozen=True, kw_only=True, tag="progress"):
    """A phase begins; the parent's time limit starts anew."""

    text: str
    phase: str = ""
    done: int = 0
    """Steps of the job that are over, of ``total``."""
    total: int = 0
    limit_s: float | None = None
    """Longest time until the next message, where it is to be shorter than the parent's own limit."""


class Answer(Value, frozen=True, kw_only=True, tag="answer"):
    """The job's result, where it is not a file in the run folder."""

    values: dict[str, Any]


class Failure(Value, frozen=True, kw_only=True, tag="failure"):
    """Why the worker gives up: the parts of a CgateError, or the traceback of a bug of ours."""

    exit_code: int
    what: str
    where: str | None = None
    hint: str | None = None
    traceback: str = ""


class Done(Value, frozen=True, kw_only=True, tag="done"):
    """The job is over: a process that ends without saying so was ended by the user's code."""


Message = Progress | Answer | Failure | Done


def encode(message: Message) -> bytes:
    """One line."""
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """The message of one line."""
    message: Message = msgspec.json.decode(line, type=Message)
    return message


def encode_job(job: Job) -> str:
    """A job as the worker's argument."""
    return msgspec.json.encode(job).decode()


def decode_job(text: str) -> Job:
    """The job of a worker's argument."""
    job: Job = msgspec.json.decode(text, type=Job)
    return job
