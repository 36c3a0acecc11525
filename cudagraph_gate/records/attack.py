"""Records of the hard scenarios and of the drill."""

from __future__ import annotations

from typing import Literal

from cudagraph_gate.model import GateStatus, Measured, NotMeasured, Reason, Value
from cudagraph_gate.records.phases import Method


def scenario_stage(name: str) -> str:
    """The stage of a scenario's workers, in their ``WorkerEnd``."""
    return f"scenario {name}"


class AttackStarted(Value, frozen=True, kw_only=True, tag="attack_started", tag_field="record"):
    """The hard scenarios begin: which are run, and which are left out and why."""

    shape: str
    method: Method = "capture"
    scenarios: tuple[str, ...]
    skipped: dict[str, str]
    """Name to what left it out."""


class ScenarioStarted(Value, frozen=True, kw_only=True, tag="scenario_started", tag_field="record"):
    """One worker of a scenario has built the workload, and the fault comes next."""

    scenario: str
    part: int
    """0, or the number of the worker that replaced a lost one."""
    shape: str
    method: Method = "capture"


class Proof(Value, frozen=True, kw_only=True, tag="proof", tag_field="record"):
    """What was looked at after the fault: is everything else as before?"""

    scenario: str
    part: int
    name: str
    status: GateStatus
    detail: str = ""
    code: Reason | None = None


class ScenarioEnded(Value, frozen=True, kw_only=True, tag="scenario_ended", tag_field="record"):
    """What came of the fault, and how long it took to find out."""

    scenario: str
    part: int
    shape: str
    method: Method = "capture"
    status: GateStatus
    applies: bool = True
    """False where the fault has no meaning for this workload; ``seen`` says why."""
    seen: str
    code: Reason | None = None
    call: str = ""
    where: str = ""
    """Python file and line in the user's code, if known."""
    advice: str = ""
    elapsed_ns: int
    """Wall time of the worker until here."""


class DrillRun(Value, frozen=True, kw_only=True, tag="drill", tag_field="record"):
    """One block of the drill's traffic; the cache is turned off between ``graph`` and ``after``."""

    shape: str
    method: Method = "capture"
    stretch: Literal["before", "graph", "switch", "after"]
    """The normal path alone; served by graphs; the requests during which the cache is turned off; the
    normal path again."""
    order: int
    """Over all stretches."""
    threads: int = 1
    """That send requests at a time, each the next one when the last one is answered."""
    latencies_ns: tuple[int, ...]
    """Of all threads."""
    sent: int
    answered: int
    wrong: int
    """Answered requests whose outputs, or the state that they leave, differ from the normal path's."""
    detail: str = ""
    """The first difference."""
    graph_served: int
    in_flight: int = 0
    """Requests by graphs that were going on while the cache was turned off."""
    failure: str = ""
    """What a thread raised first."""
    device_used_bytes: Measured
    """After the last block of ``before`` and of ``after``, of the whole device: the garbage collected, and
    what the framework's allocator keeps for later given back."""
    allocator_bytes: Measured = NotMeasured(reason="the allocator was not asked")
    """What the framework's allocator holds then."""
    occupied_bytes: Measured = NotMeasured(reason="the allocator was not asked")
    """The part of it that arrays take up, or that nobody else can be given."""
