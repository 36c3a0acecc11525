"""What the gates answer."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from cudagraph_gate.model.base import SCHEMA_VERSION, NotMeasured, Reason, Value
from cudagraph_gate.model.environment import Fingerprint


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
    shape: str = ""
    """The shape that the gates judge; empty where none was recorded."""
    shapes_left_out: tuple[str, ...] = ()
    """Shapes that the workload declares, and that no part of the evidence is about."""
    run: str
    fingerprint: Fingerprint | NotMeasured
    policy: dict[str, Any]
