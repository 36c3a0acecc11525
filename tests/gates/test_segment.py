"""Gate 2: captured whole, and the same on every request."""

from __future__ import annotations

import pytest
from artefact_builder import diagnosis, requests
from evidence_builder import (
    KERNELS,
    Gate,
    compared,
    node_set,
    not_measured,
    passing,
    shape_records,
    started,
    trial,
)

from cudagraph_gate.gates import Policy, judge
from cudagraph_gate.model import Counts, GateStatus, NotMeasured, Reason
from cudagraph_gate.records import (
    Finding,
    NormalPathProbe,
    PathIdle,
    Phase,
    PhaseStarted,
    Record,
    WorkerEnd,
)


def until(phase: Phase, *more: Record) -> tuple[Record, ...]:
    """A log that ends in ``phase``."""
    phases = list(Phase)
    begun = phases[: phases.index(phase) + 1]
    return (started(), *(PhaseStarted(shape="b1", phase=one) for one in begun), *more)


def ended(outcome: str, **change: object) -> WorkerEnd:
    return WorkerEnd(stage="pilot", outcome=outcome, exit_code=1, **change)


def found(phase: Phase, code: Reason, **change: object) -> Finding:
    return Finding(shape="b1", phase=phase, code=code, message="it went wrong", **change)


def captured(**change: object) -> tuple[Record, ...]:
    return trial(shape_records(nodes=node_set(**change)))


def test_the_same_kernels_and_stable_requests_pass(gate: Gate):
    result = gate(2)
    assert (result.status, result.code) == (GateStatus.PASS, None)
    assert result.measured["nodes"] == 8
    assert result.measured["unstable_share"] == 0
    assert result.reason.endswith("8 nodes, the same kernels as the normal path")


def test_a_blocking_finding_fails_with_its_code_call_and_place(gate: Gate):
    illegal = found(Phase.CAPTURE, Reason.CAPTURE_ILLEGAL, call="cuMemAlloc", where="model.py:12")
    result = gate(2, records=until(Phase.CAPTURE, illegal))
    assert (result.status, result.code) == (GateStatus.FAIL, Reason.CAPTURE_ILLEGAL)
    assert result.reason == "it went wrong (in cuMemAlloc, at model.py:12)"


def test_a_finding_that_does_not_block_decides_nothing(gate: Gate):
    noted = found(Phase.CAPTURE, Reason.LIFETIME, blocks=False)
    assert gate(2, records=trial(shape_records(more=[noted]))).status is GateStatus.PASS


def test_a_finding_after_the_capture_is_another_gates(gate: Gate):
    later = trial(shape_records(more=[found(Phase.INSTANTIATE, Reason.MEMORY)]))
    assert gate(2, records=later).status is GateStatus.PASS
    assert gate(4, records=later).code is Reason.MEMORY


@pytest.mark.parametrize("code", [Reason.WORKLOAD, Reason.CRASH, Reason.HANG])
def test_a_workload_that_fails_before_the_capture_is_unknown(gate: Gate, code: Reason):
    result = gate(2, records=until(Phase.WARM_UP, found(Phase.WARM_UP, code)))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.WORKLOAD)


def test_what_kept_the_trial_from_trying_is_unknown(gate: Gate):
    result = gate(2, records=until(Phase.CAPTURE, found(Phase.CAPTURE, Reason.NOT_TRIED)))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.NOT_TRIED)


def test_a_normal_path_broken_by_the_capture_fails(gate: Gate):
    probe = NormalPathProbe(shape="b1", intact=False, detail="the stream still captures")
    result = gate(2, records=until(Phase.CAPTURE, probe))
    assert (result.status, result.code) == (GateStatus.FAIL, Reason.WRONG_OUTPUT)
    assert "the stream still captures" in result.reason


def test_missing_kernels_fail_and_three_are_named(gate: Gate):
    result = gate(2, records=captured(kernels={}, nodes=2))
    assert (result.status, result.code) == (GateStatus.FAIL, Reason.ESCAPED_WORK)
    assert "misses kernels" in result.reason
    assert result.reason.endswith("gemm (4 x), softmax (2 x), add (1 x) and 1 more")
    assert result.measured["missing_kernels"] == KERNELS


def test_fewer_launches_of_a_kernel_are_missing_kernels(gate: Gate):
    result = gate(2, records=captured(kernels=KERNELS | {"gemm": 3}))
    assert result.measured["missing_kernels"] == {"gemm": 1}
    assert result.status is GateStatus.FAIL


FUSED = {"fused": 1, "add": 1, "copy": 1}
"""Another code path: ``gemm`` and ``softmax`` are replaced by one kernel."""


def test_other_kernels_fail_where_outputs_differ(gate: Gate):
    wrong = [compared("outputs", request, equal=request != 3) for request in range(5)]
    result = gate(2, records=trial(shape_records(nodes=node_set(kernels=FUSED), comparisons=wrong)))
    assert (result.status, result.code) == (GateStatus.FAIL, Reason.ESCAPED_WORK)
    assert "the graph holds other work than the normal path runs" in result.reason
    assert result.measured["extra_kernels"] == {"fused": 1}


def test_other_kernels_fail_where_too_few_outputs_were_compared(gate: Gate):
    few = [compared("outputs", request) for request in range(4)]
    result = gate(2, records=trial(shape_records(nodes=node_set(kernels=FUSED), comparisons=few)))
    assert result.code is Reason.ESCAPED_WORK


def test_other_kernels_with_agreeing_outputs_are_another_code_path_and_a_condition():
    verdict = judge(passing(records=captured(kernels=FUSED)), Policy())
    assert verdict.gates[1].status is GateStatus.PASS
    assert "other work than the normal path runs" in verdict.gates[1].reason
    assert verdict.conditions == (
        "while capturing, shape b1 takes another code path (without 6 of the normal path's operations, with "
        "1 others): compare outputs again after every change of a library",
    )


def test_kernels_are_named_without_template_arguments(gate: Gate):
    mangled = "_ZN2at6native29vectorized_elementwise_kernelILi4EEEvi"
    result = gate(2, records=captured(kernels=KERNELS | {mangled: 2}))
    assert "at::native::vectorized_elementwise_kernel (2 x)" in result.reason


def test_more_kernels_pass_with_a_note(gate: Gate):
    result = gate(2, records=captured(kernels=KERNELS | {"fill": 2}))
    assert result.status is GateStatus.PASS
    assert "more kernels than the normal path: fill (2 x)" in result.reason


def test_an_empty_graph_fails(gate: Gate):
    result = gate(2, records=captured(nodes=0, kernels={}, normal_kernels=not_measured()))
    assert (result.status, result.code) == (GateStatus.FAIL, Reason.ESCAPED_WORK)
    assert "the graph is empty" in result.reason


def test_a_graph_of_copies_alone_is_compared_too(gate: Gate):
    copies = captured(nodes=1, kinds={"memcpy": 1}, kernels={}, normal_kernels=Counts(by_name={}))
    assert gate(2, records=copies).status is GateStatus.PASS


def test_unknown_normal_kernels_are_unknown(gate: Gate):
    result = gate(2, records=captured(normal_kernels=not_measured("no CUPTI")))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "no CUPTI" in result.reason


def test_requests_that_differ_too_often_fail(gate: Gate):
    result = gate(2, diagnosis=diagnosis(requests=requests(unstable_share=0.25)))
    assert (result.status, result.code) == (GateStatus.FAIL, Reason.CHURN)
    assert result.reason == "25.0 % of the requests ran another sequence of operations, the limit is 5.0 %"


def test_a_share_at_the_limit_passes(gate: Gate):
    assert gate(2, diagnosis=diagnosis(requests=requests(unstable_share=0.05))).status is GateStatus.PASS


@pytest.mark.parametrize("given", [None, diagnosis(requests=not_measured("no request ranges"))])
def test_unknown_stability_is_unknown(gate: Gate, given: object):
    assert gate(2, diagnosis=given).status is GateStatus.UNKNOWN


def test_a_log_that_ended_before_the_capture_is_unknown_with_its_phase(gate: Gate):
    result = gate(2, records=until(Phase.EXPECTED))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.NOT_TRIED)
    assert result.reason == "the trial of shape b1 ended in phase expected"


def test_a_worker_that_failed_before_the_capture_is_named(gate: Gate):
    result = gate(2, records=until(Phase.BUILD, ended("failed", reason="KeyError: 'weights'")))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.WORKLOAD)
    assert "phase build: its worker failed (KeyError: 'weights')" in result.reason


@pytest.mark.parametrize(("outcome", "code"), [("crashed", Reason.CRASH), ("timed_out", Reason.HANG)])
@pytest.mark.parametrize("phase", [Phase.CAPTURE, Phase.FIRST_REPLAY, Phase.TIMING])
def test_a_crash_from_the_capture_on_fails(gate: Gate, phase: Phase, outcome: str, code: Reason):
    end = ended(outcome, signal="SIGSEGV", phase=phase)
    result = gate(2, records=until(phase, end))
    assert (result.status, result.code) == (GateStatus.FAIL, code)
    assert f"phase {phase}" in result.reason
    assert "SIGSEGV" in result.reason


def test_a_crash_after_good_nodes_fails(gate: Gate):
    crash = ended("crashed", signal="SIGABRT")
    assert gate(2, records=(started(), *shape_records(), crash)).code is Reason.CRASH


def test_a_crash_before_the_capture_is_unknown(gate: Gate):
    result = gate(2, records=until(Phase.WARM_UP, ended("crashed", signal="SIGSEGV")))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.WORKLOAD)
    assert "before any capture" in result.reason


@pytest.mark.parametrize("number", [2, 4, 6])
def test_nothing_tried_is_unknown(gate: Gate, number: int):
    result = gate(number, records=())
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.NOT_TRIED)
    assert "shape b1 was not tried" in result.reason


def test_a_worker_that_died_before_any_shape_is_named(gate: Gate):
    result = gate(2, records=(started(), ended("failed", reason="no module named model")))
    assert "shape b1 was not tried: a worker failed (no module named model)" in result.reason


def test_a_signal_is_named_once(gate: Gate):
    end = ended("crashed", signal="SIGSEGV", reason="SIGSEGV, last in model.py:7 (step)")
    result = gate(2, records=until(Phase.FIRST_REPLAY, end))
    assert result.reason.endswith("its worker crashed (SIGSEGV, last in model.py:7 (step))")


def test_without_profile_and_log_no_shape_was_tried(gate: Gate):
    assert "no shape was tried" in gate(2, profile=None, records=()).reason


# --- copies, and requests that differ ---------------------------------------------------------------


def test_a_copy_that_the_graph_lacks_fails(gate: Gate):
    kinds = {"kernel": 8, "memset": 1}
    for missing, copies in (("memcpy (2 x)", {"memcpy": 2, "memset": 1}), ("memset (1 x)", {"memset": 2})):
        nodes = node_set(kinds=kinds, normal_copies=Counts(by_name=copies))
        result = gate(2, records=trial(shape_records(nodes=nodes)))
        assert (result.status, result.code) == (GateStatus.FAIL, Reason.ESCAPED_WORK)
        assert f"misses work that the normal path runs: {missing}" in result.reason


def test_the_same_copies_and_more_pass(gate: Gate):
    nodes = node_set(kinds={"kernel": 8, "memcpy": 2}, normal_copies=Counts(by_name={"memcpy": 1}))
    assert gate(2, records=trial(shape_records(nodes=nodes))).status is GateStatus.PASS


def test_kernels_instead_of_a_copy_are_another_code_path(gate: Gate):
    nodes = node_set(kernels=KERNELS | {"copy_kernel": 1}, normal_copies=Counts(by_name={"memcpy": 1}))
    records = trial(shape_records(nodes=nodes))
    assert gate(2, records=records).status is GateStatus.PASS
    (condition,) = judge(passing(records=records), Policy()).conditions
    assert "another code path (without 1 of" in condition


def replays_recorded(**change: object) -> PathIdle:
    """Ten replays of the eight nodes, and the copies of their inputs."""
    seen = {"requests": 10, "operations": 90, "graph_launches": 10, "graph_operations": 80} | change
    return PathIdle(shape="b1", path="graph", window_ns=1_000, busy_ns=900, **seen)  # type: ignore[arg-type]


UNCOUNTED = NotMeasured(reason="not counted")


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, GateStatus.PASS),
        ({"graph_operations": 79}, GateStatus.UNKNOWN),
        ({"graph_operations": 81}, GateStatus.UNKNOWN),
        ({"graph_launches": 9}, GateStatus.UNKNOWN),
        ({"graph_operations": UNCOUNTED}, GateStatus.PASS),
        ({"graph_launches": UNCOUNTED, "graph_operations": UNCOUNTED}, GateStatus.PASS),
    ],
)
def test_a_recorder_that_does_not_see_each_node_of_each_replay_is_not_trusted(
    gate: Gate, change: dict[str, object], status: GateStatus
):
    result = gate(2, records=trial(shape_records(more=(replays_recorded(**change),))))
    assert result.status is status
    if status is GateStatus.UNKNOWN:
        assert result.code is Reason.UNMEASURABLE
        assert "of 10 replays of 8 nodes it saw" in result.reason


def test_of_nodes_that_leave_several_operations_or_none_nothing_is_expected(gate: Gate):
    nodes = node_set(kinds={"kernel": 7, "graph": 1})
    log = trial(shape_records(nodes=nodes, more=(replays_recorded(graph_operations=99),)))
    assert gate(2, records=log).status is GateStatus.PASS


def test_few_requests_of_another_sequence_are_a_condition():
    rare = diagnosis(requests=requests(stable=False, unstable_share=0.04))
    (condition,) = judge(passing(diagnosis=rare), Policy()).conditions
    assert condition == "requests that run another sequence of operations (4.0 %) take the normal path"
    assert judge(passing(), Policy()).conditions == ()
