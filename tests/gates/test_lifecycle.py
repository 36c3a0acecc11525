"""Gate 4: every cost measured, and paid back soon enough."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_builder import (
    COSTS,
    FINISHED,
    MS,
    Gate,
    changed,
    not_measured,
    own_records,
    shape_records,
    timed,
    trial,
)

from cudagraph_gate.gates import Policy
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.records import Cost, Finding, Method, Phase, PhaseStarted, Record, TrafficRun


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
    assert "whether a request saves anything is unsure (" in result.reason
    assert result.measured["break_even_worst_calls"]["reason"] in result.reason


def test_a_saving_inside_the_noise_is_no_break_even(gate: Gate):
    # The halves of the normal path are 20 % apart, the graph is 12 % below the lower one.
    normal = [block for i in range(8) for block in timed("normal", MS if i % 2 else 800_000, blocks=1)]
    normal = [changed(block, half="ab"[i % 2], order=i) for i, block in enumerate(normal)]
    result = gate(4, records=log(blocks=[*normal, *timed("graph", 700_000)]))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "noise floor" in result.reason


# --- phases ---------------------------------------------------------------------------------------

ALL = COSTS | {
    Phase.COLD_REQUEST: 90 * MS,
    Phase.WARM_UP: 8 * MS,
    Phase.REINSTANTIATE: 900_000,
    Phase.DESTROY: 40_000,
}


def test_the_warm_up_counts_and_what_both_paths_pay_does_not(gate: Gate):
    measured = gate(4, records=log(costs=ALL)).measured
    assert measured["one_time_cost_ns"] == 12_500_000
    assert measured["break_even_calls"] == 32  # 12.5 ms / 0.4 ms = 31.25
    told = {name: measured[f"{name}_ns"] for name in ("cold_request", "warm_up", "reinstantiate", "destroy")}
    assert told == {
        "cold_request": 90 * MS,
        "warm_up": 8 * MS,
        "reinstantiate": 900_000,
        "destroy": 40_000,
    }


def stalled(ns: int, method: Method) -> tuple[Record, ...]:
    """A log in which one of the steady replays took so much longer."""
    records = shape_records() if method == "capture" else own_records()
    return trial(
        tuple(
            changed(each, stalled_ns=ns)
            if isinstance(each, Cost) and each.phase is Phase.STEADY_REPLAY
            else each
            for each in records
        )
    )


@pytest.mark.parametrize("method", ["capture", "own"])
def test_a_replay_that_still_made_something_counts(gate: Gate, method: Method):
    before = gate(4, records=stalled(0, method)).measured["one_time_cost_ns"]
    result = gate(4, records=stalled(60_000 * MS, method))
    assert result.measured["one_time_cost_ns"] == before + 60_000 * MS
    assert (result.status, result.code) == (GateStatus.FAIL, Reason.NO_GAIN)


def test_an_older_log_lacks_phases_and_passes(gate: Gate):
    result = gate(4)
    assert result.status is GateStatus.PASS
    absent = "no record of it, the trial went past it"
    assert result.measured["reinstantiate_ns"] == {"type": "not_measured", "reason": absent}


def test_an_own_path_needs_its_making_and_steady_requests_alone(gate: Gate):
    costs = {Phase.CAPTURE: 800 * MS, Phase.STEADY_REPLAY: 600_000, Phase.WARM_UP: 8 * MS}
    result = gate(4, records=own(log(costs=costs)))
    assert result.status is GateStatus.PASS
    assert result.measured["break_even_calls"] == 2_000  # 800 ms / 0.4 ms: its warm-up is the normal path's
    assert "instantiate_ns" not in result.measured


def test_an_own_path_without_the_cost_of_its_making_is_unknown(gate: Gate):
    result = gate(4, records=own(log(costs={Phase.STEADY_REPLAY: 600_000})))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert result.reason.startswith("not measured: capture (")


def own(records: tuple[Record, ...]) -> tuple[Record, ...]:
    return tuple(changed(record, method="own") if hasattr(record, "method") else record for record in records)


# --- at worst -------------------------------------------------------------------------------------


def uneven_graph() -> list[Record]:
    """Blocks of 0.5 to 0.7 ms: a gain of 40 %, give or take less than 10 %."""
    medians = [500_000, 560_000, 580_000, 620_000, 640_000, 700_000]
    blocks = [block for ns in medians for block in timed("graph", ns, blocks=1)]
    return [*timed("normal", MS), *(changed(block, order=i) for i, block in enumerate(blocks))]


def test_break_even_at_the_pessimistic_end_of_the_gain_comes_later(gate: Gate):
    result = gate(4, records=log(blocks=uneven_graph()))
    calls, worst = (result.measured[f"break_even_{name}"] for name in ("calls", "worst_calls"))
    assert (calls, result.status) == (12, GateStatus.PASS)
    assert 13 <= worst <= 15  # 0.34 to 0.3 ms saved at least, of 4.5 ms
    assert f"breaks even after 12 requests, {worst} at worst" in result.reason


def test_a_limit_between_break_even_and_the_worst_of_it_is_unknown(gate: Gate):
    result = gate(4, records=log(blocks=uneven_graph()), policy=Policy(max_break_even_calls=12))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "the limit 12 lies between" in result.reason


def test_without_spread_the_worst_is_the_break_even(gate: Gate):
    assert gate(4).measured["break_even_worst_calls"] == 12


# --- traffic --------------------------------------------------------------------------------------


def traffic(**change: Any) -> tuple[Record, ...]:
    """A worker that replayed a mix of which every second request has shape b1: one each 50 ms."""
    arrivals = tuple(range(0, 1_000 * MS, 25 * MS))
    given = {
        "path": "normal",
        "level": 0.05,
        "order": 0,
        "declared": True,
        "shapes": ("b1", "b8"),
        "captured": ("b1",),
        "requests": tuple(i % 2 for i in range(len(arrivals))),
        "arrivals_ns": arrivals,
        "starts_ns": arrivals,
        "ends_ns": tuple(due + MS for due in arrivals),
    }
    return (PhaseStarted(shape="b1", phase=Phase.TRAFFIC), TrafficRun(**(given | change)))


def with_traffic(*parts: Record) -> tuple[Record, ...]:
    return (*trial(), *parts, FINISHED)


def test_break_even_in_minutes_is_at_the_shapes_own_rate(gate: Gate):
    result = gate(4, records=with_traffic(*traffic()))
    assert result.measured["requests_per_s"] == pytest.approx(20)
    assert result.measured["break_even_minutes"] == pytest.approx(0.01)  # 12 requests / 20 a second
    assert result.measured["break_even_worst_minutes"] == pytest.approx(0.01)
    assert "breaks even after 12 requests (0.01 minutes at the traffic's rate)" in result.reason


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((), "no arrival times were given, so the rate of requests is not known"),
        (traffic(declared=False), "no arrival times were given, so the rate of requests is not known"),
        (traffic(requests=(1,) * 40), "no request of the mix has shape b1"),
        (traffic(arrivals_ns=(0,) * 40), "all requests of the mix arrive at once: they have no rate"),
    ],
)
def test_without_a_rate_there_are_no_minutes(gate: Gate, parts: tuple[Record, ...], reason: str):
    result = gate(4, records=with_traffic(*parts))
    assert result.measured["break_even_minutes"] == {"type": "not_measured", "reason": reason}
    assert "minutes" not in result.reason
