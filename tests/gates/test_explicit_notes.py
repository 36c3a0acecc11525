"""An explicit graph that is wrong is said to be, and the captured one beside it is judged."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_builder import FINISHED, KERNELS, changed, compared, node_set, passing, shape_records, trial
from ladder_evidence import decided, gate_6

from cudagraph_gate.gates import Evidence, Policy, judge
from cudagraph_gate.gates.explicit import JUDGED
from cudagraph_gate.model import Decision, GateStatus, Reason
from cudagraph_gate.records import Finding, Phase, WorkerEnd

CRASHED = WorkerEnd(
    stage="pilot", outcome="crashed", exit_code=None, signal="SIGSEGV", reason="SIGSEGV", phase="instantiate"
)
AGAIN = compared("normal_again", 6)


def beside(end: WorkerEnd = FINISHED, **change: Any) -> Evidence:
    """A captured graph that holds, and an explicit one that is changed."""
    explicit = tuple(changed(record, method="explicit") for record in shape_records(**change))
    return passing(records=trial(shape_records(), (FINISHED, *explicit, end)))


def conditions(evidence: Evidence) -> tuple[str, ...]:
    return judge(evidence, Policy()).conditions


def outputs(wrong: int) -> list[Any]:
    """Six requests, one of which differs in ``y``."""
    differing = {"equal": False, "exact": False, "max_abs_error": 0.5, "detail": "y"}
    return [compared("outputs", each, **(differing if each == wrong else {})) for each in range(6)]


def test_an_explicit_graph_that_holds_says_nothing() -> None:
    assert conditions(beside()) == ()
    assert decided(beside()) is Decision.GO


def test_wrong_outputs_are_a_condition_that_says_where() -> None:
    evidence = beside(comparisons=[*outputs(2), AGAIN])
    assert conditions(evidence) == (
        "the explicit graph of shape b1 is wrong: request 2: outputs differ from the normal path, y "
        f"(error 0.5, tolerance 1e-06); {JUDGED}",
    )
    assert decided(evidence) is Decision.CONDITIONAL
    assert gate_6(evidence).status is GateStatus.PASS
    told = gate_6(evidence).measured["explicit"]["b1"]
    assert (told["outputs_agree"], told["wrong"]) == (False, conditions(evidence)[0])


def test_work_that_it_lacks_is_named() -> None:
    (condition,) = conditions(beside(nodes=node_set(kernels=KERNELS | {"gemm": 3})))
    assert condition.startswith("the explicit graph of shape b1 is wrong: the graph misses kernels")
    assert "gemm (1 x)" in condition


def test_one_that_crashes_is_a_condition_too() -> None:
    (condition,) = conditions(beside(CRASHED))
    assert condition.startswith("the explicit graph of shape b1 can't be used: the trial of shape b1 ended")
    assert "its worker crashed (SIGSEGV)" in condition


def test_one_that_is_refused_before_it_runs_is_told_and_binds_nothing() -> None:
    refused = Finding(
        shape="b1",
        phase=Phase.INSTANTIATE,
        code=Reason.CAPTURE_ILLEGAL,
        message="the driver refuses a node",
        where="model.py:7",
    )
    evidence = beside(more=[refused])
    assert conditions(evidence) == ()
    assert gate_6(evidence).measured["explicit"]["b1"]["wrong"] == (
        f"the explicit graph of shape b1 can't be used: the driver refuses a node (at model.py:7); {JUDGED}"
    )


@pytest.mark.parametrize("change", [{"graph_ns": 2_000_000}, {"completed": False}, {"costs": {}}])
def test_one_that_is_slow_or_was_not_finished_is_not_called_wrong(change: dict[str, Any]) -> None:
    assert conditions(beside(**change)) == ()


def test_outputs_that_were_not_compared_do_not_agree() -> None:
    evidence = beside(comparisons=())
    assert gate_6(evidence).measured["explicit"]["b1"]["outputs_agree"] is False


def test_a_wrong_explicit_graph_improves_no_verdict() -> None:
    explicit = tuple(
        changed(record, method="explicit") for record in shape_records(comparisons=[*outputs(0), AGAIN])
    )
    slow = passing(records=trial(shape_records(graph_ns=2_000_000), (FINISHED, *explicit)))
    assert decided(slow) is Decision.NO_GO
