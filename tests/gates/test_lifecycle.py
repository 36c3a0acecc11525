"""Gate 4: every cost measured, and paid back soon enough."""

from __future__ import annotations

import pytest
from evidence_builder import COSTS, MS, Gate, not_measured, shape_records, timed, trial

from cudagraph_gate.gates import Policy
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.records import Finding, Phase, Record


def log(**change: object) -> tuple[Record, ...]:
    return trial(shape_records(**change))


def test_break_even_is_the_one_time_cost_over_the_saving(gate: Gate):
    result = gate(4)
    assert (result.status, result.code) == (GateStatus.PASS, None)
    assert result.measured["saved_ns"] == 400_000
    assert result.measured["break_even_calls"] == 12  # 4.5 ms / 0.4 ms = 11.25
    assert result.measured["capture_ns"] == 2 * MS
    assert result.threshold == {"max_break_even_calls": 10_000}


def test_a_first_replay_no_slower_than_later_ones_costs_nothing_extra(gate: Gate):
    costs = COSTS | {Phase.FIRST_REPLAY: 500_000}
    assert gate(4, records=log(costs=costs)).measured["break_even_calls"] == 9  # 3.5 ms / 0.4 ms = 8.75


@pytest.mark.parametrize(("limit", "status"), [(12, GateStatus.PASS), (11, GateStatus.FAIL)])
def test_the_limit_on_break_even_decides(gate: Gate, limit: int, status: GateStatus):
    result = gate(4, policy=Policy(max_break_even_calls=limit))
    assert result.status is status
    assert "breaks even after 12 requests" in result.reason


@pytest.mark.parametrize("graph_ns", [1 * MS, 1_200_000])
def test_without_saving_it_never_breaks_even(gate: Gate, graph_ns: int):
    result = gate(4, records=log(graph_ns=graph_ns))
    assert (result.status, result.code) == (GateStatus.FAIL, Reason.NO_GAIN)
    assert "never breaks even" in result.reason


@pytest.mark.parametrize("phase", COSTS)
def test_a_cost_that_was_not_measured_is_unknown_and_quoted(gate: Gate, phase: Phase):
    result = gate(4, records=log(costs=COSTS | {phase: not_measured("the clock stood still")}))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert result.reason == f"not measured: {phase} (the clock stood still)"
    assert result.measured[f"{phase}_ns"] == {"type": "not_measured", "reason": "the clock stood still"}


def test_a_cost_without_a_record_is_unknown(gate: Gate):
    costs = {phase: cost for phase, cost in COSTS.items() if phase is not Phase.UPDATE}
    result = gate(4, records=log(costs=costs))
    assert result.status is GateStatus.UNKNOWN
    assert result.reason == "not measured: update (no record of it, the trial went past it)"
    assert result.measured["break_even_calls"] == 12


def test_costs_that_are_missing_for_one_reason_say_it_once(gate: Gate):
    few = {phase: cost for phase, cost in COSTS.items() if phase is Phase.CAPTURE}
    reason = gate(4, records=log(costs=few)).reason
    assert reason.startswith("not measured: instantiate, upload, first_replay, steady_replay, update (")
    assert reason.count("no record of it") == 1


def test_without_timed_blocks_there_is_no_break_even(gate: Gate):
    result = gate(4, records=log(blocks=timed("normal", MS)))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "0 timed blocks of the graph path" in result.reason


@pytest.mark.parametrize("phase", [Phase.INSTANTIATE, Phase.UPDATE, Phase.DESTROY])
def test_a_blocking_finding_of_the_lifecycle_fails(gate: Gate, phase: Phase):
    finding = Finding(shape="b1", phase=phase, code=Reason.MEMORY, message="no memory left")
    result = gate(4, records=log(more=[finding]))
    assert (result.status, result.code) == (GateStatus.FAIL, Reason.MEMORY)


def test_a_saving_that_may_be_noise_is_no_break_even(gate: Gate):
    swinging = [900_000, 1_080_000] * 5
    blocks = [block for ns in swinging for block in timed("graph", ns, blocks=1)]
    result = gate(4, records=log(blocks=[*timed("normal", MS), *blocks]))
    assert result.measured["saved_ns"] > 0
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "whether a request saves anything is unsure" in result.reason
