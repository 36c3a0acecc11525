"""Evidence of whole ladders, and short questions to it."""

from __future__ import annotations

from typing import Any

from evidence_builder import (
    concurrent_runs,
    instance_run,
    memory_series,
    passing,
    rung,
    rung_records,
    shape_records,
    traffic_runs,
    trial,
)

from cudagraph_gate.gates import Evidence, Policy, decide, judge
from cudagraph_gate.gates.rungs import judge_rung, ladder
from cudagraph_gate.model import Decision, GateResult, GateStatus, Reason
from cudagraph_gate.records import Phase, Record, WorkerEnd

PASS, FAIL, UNKNOWN = GateStatus.PASS, GateStatus.FAIL, GateStatus.UNKNOWN
CRASHED = WorkerEnd(stage="pilot", outcome="crashed", exit_code=None, signal="SIGSEGV", reason="SIGSEGV")
FAILED = WorkerEnd(stage="pilot", outcome="failed", exit_code=21, reason="no module named model")
KILLED = WorkerEnd(stage="pilot", outcome="killed", exit_code=None, signal="SIGKILL", reason="SIGKILL")
HUNG = WorkerEnd(stage="pilot", outcome="timed_out", exit_code=None, reason="no progress for 60 s")

WRONG = {
    "instances": rung(Phase.INSTANCES, instance_run(wrong=2, detail="instance 1")),
    "concurrency": rung(Phase.CONCURRENCY, *concurrent_runs(wrong=1)),
    "traffic": rung(Phase.TRAFFIC, *traffic_runs(graph_ns=1_100_000)),
    "memory": rung(Phase.MEMORY, *memory_series(bytes_each=20_000)),
}
"""Logs of the later workers in which something does not hold."""


def later(**logs: tuple[Record, ...] | None) -> Evidence:
    """Evidence in which everything holds, a request mix too, but for the later workers' logs that are given.

    None leaves a worker out.
    """
    return passing(records=trial(rungs=rung_records(mix=("b1",), **logs), traffic=True))


def with_shape(*others: tuple[Record, ...], shapes: tuple[str, ...] = ("b1",), **change: Any) -> Evidence:
    """Evidence whose first shape is changed."""
    return passing(records=trial(shape_records(**change), *others, shapes=shapes))


def answer(number: int, evidence: Evidence, **policy: Any) -> tuple[GateStatus, Reason | None]:
    ended = judge_rung(number, evidence, Policy(**policy))
    return ended.status, ended.code


def climbed(evidence: Evidence) -> list[tuple[int, GateStatus]]:
    return [(ended.number, ended.status) for ended in ladder(evidence, Policy())]


def gate_6(evidence: Evidence, **policy: Any) -> GateResult:
    return judge(evidence, Policy(**policy)).gates[5]


def decided(evidence: Evidence) -> Decision:
    """The verdict without the gates that this version can't pass."""
    verdict = judge(evidence, Policy())
    return decide([gate for gate in verdict.gates if gate.number not in (5, 7)], verdict.conditions)
