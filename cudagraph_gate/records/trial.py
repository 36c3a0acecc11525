"""Records of how a trial went: what it tried, what it found, how it ended."""

from __future__ import annotations

from typing import Literal

from cudagraph_gate.model import SCHEMA_VERSION, Measured, NotMeasured, Reason, Value
from cudagraph_gate.records.phases import Method, Phase


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
    left_out: tuple[str, ...] = ()
    """Shapes that the workload declares and that were not asked for."""


class PhaseStarted(Value, frozen=True, kw_only=True, tag="phase_started", tag_field="record"):
    """A phase of one shape begins; a log that ends here says what was going on."""

    shape: str
    method: Method = "capture"
    phase: Phase


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
    elapsed: Measured = NotMeasured(reason="how long it took was not noted")
    """ns of wall time from its job to its end."""
