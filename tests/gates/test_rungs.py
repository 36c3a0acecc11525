"""The ladder: which rung holds, what it means for the verdict, and that nothing missing ever helps."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_builder import (
    KERNELS,
    MS,
    compared,
    node_set,
    not_measured,
    own_records,
    passing,
    rung,
    shape_records,
    timed,
    trial,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from ladder_evidence import (
    CRASHED,
    FAIL,
    KILLED,
    PASS,
    UNKNOWN,
    WRONG,
    answer,
    climbed,
    decided,
    gate_6,
    later,
    with_shape,
)

from cudagraph_gate.gates import Evidence, Policy, judge
from cudagraph_gate.gates.rungs import judge_rung, ladder, shapes_that_hold
from cudagraph_gate.model import Decision, GateStatus, Reason
from cudagraph_gate.records import Finding, Phase, PhaseStarted, Record, RungEnded

# --- the whole ladder -----------------------------------------------------------------------------


def test_every_rung_holds() -> None:
    found = ladder(later(), Policy())
    assert [(ended.number, ended.name, ended.status) for ended in found] == [
        (1, "fixed input", PASS),
        (2, "fresh inputs", PASS),
        (3, "all shapes", PASS),
        (4, "several instances", PASS),
        (5, "concurrent requests", PASS),
        (6, "traffic mix", PASS),
    ]
    assert found[0].reason == "8 nodes, the same kernels as the normal path"
    assert found[2].reason == "only shape b1 was asked for"
    assert decided(later()) is Decision.GO
    assert gate_6(later()).status is PASS


def test_without_a_request_mix_there_are_five() -> None:
    assert climbed(passing())[-1] == (5, PASS)
    assert decided(passing()) is Decision.GO


@pytest.mark.parametrize(
    ("evidence", "number", "status"),
    [
        (with_shape(replay_ns=990_000), 1, FAIL),
        (with_shape(nodes=node_set(normal_kernels=not_measured())), 1, UNKNOWN),
        (with_shape(graph_ns=990_000, replay_ns=600_000), 2, FAIL),
        (with_shape(memory_points=()), 2, UNKNOWN),
        (with_shape(shapes=("b1", "b8")), 3, UNKNOWN),
        (with_shape(shape_records("b8", graph_ns=2 * MS), shapes=("b1", "b8")), 3, FAIL),
        (later(instances=WRONG["instances"]), 4, FAIL),
        (later(instances=None), 4, UNKNOWN),
        (later(concurrency=WRONG["concurrency"]), 5, FAIL),
        (later(concurrency=None), 5, UNKNOWN),
        (later(), 6, PASS),
    ],
)
def test_the_ladder_ends_at_the_first_rung_that_does_not_hold(
    evidence: Evidence, number: int, status: GateStatus
) -> None:
    below = [(each, PASS) for each in range(1, number)]
    assert climbed(evidence) == [*below, (number, status)]
    assert decided(evidence) is not Decision.GO or status is PASS


def test_nothing_tried_ends_at_the_first_rung() -> None:
    (first,) = ladder(passing(records=()), Policy())
    assert (first.number, first.status, first.reason) == (1, UNKNOWN, "shape b1 was not tried")
    assert answer(2, passing(records=())) == (UNKNOWN, Reason.NOT_TRIED)


# --- 1 and 2: one shape ---------------------------------------------------------------------------


def test_a_bare_replay_that_gains_too_little_fails_rung_1_and_gate_6() -> None:
    slow = with_shape(replay_ns=990_000)
    ended = judge_rung(1, slow, Policy())
    assert (ended.status, ended.code) == (FAIL, Reason.NO_GAIN)
    assert ended.reason == "a bare replay gains 1.0 %, at most 1.0 %; the minimum is 5.0 %"
    # Whole requests of this log gain 40 %: without the rung, all other rungs would not be asked for.
    assert judge_rung(2, slow, Policy()).status is PASS
    assert (gate_6(slow).status, gate_6(slow).code) == (FAIL, Reason.NO_GAIN)
    assert decided(slow) is Decision.NO_GO


def test_the_copy_of_the_inputs_that_eats_the_gain_fails_rung_2_alone() -> None:
    copied = with_shape(graph_ns=990_000, copy_in_ns=390_000)
    assert answer(1, copied) == (PASS, None)
    assert answer(2, copied) == (FAIL, Reason.NO_GAIN)
    assert "copying the inputs into static buffers takes 390 µs" in judge_rung(2, copied, Policy()).reason


def test_a_log_without_bare_replays_leaves_the_gain_to_rung_2() -> None:
    blocks = [*timed("normal", MS), *timed("graph", 990_000, cpu_ns=50_000)]
    assert answer(1, with_shape(blocks=blocks)) == (PASS, None)
    assert answer(2, with_shape(blocks=blocks)) == (FAIL, Reason.NO_GAIN)


def test_kernels_that_the_graph_lacks_fail_rung_1() -> None:
    lacking = with_shape(nodes=node_set(kernels=KERNELS | {"gemm": 3}))
    assert answer(1, lacking) == (FAIL, Reason.ESCAPED_WORK)


FAULTS: list[dict[str, Any]] = [
    {"nodes": node_set(kernels={})},
    {"nodes": node_set(normal_kernels=not_measured())},
    {"graph_ns": 1_200_000},
    {"graph_cpu_ns": 500_000},
    {"costs": {Phase.CAPTURE: MS}},
    {"comparisons": [compared("outputs", each) for each in range(3)]},
    {"comparisons": [compared("outputs", each, equal=each != 2) for each in range(6)]},
    {"memory_points": ()},
    {"blocks": ()},
    {"completed": False},
    {"more": [Finding(shape="b1", phase=Phase.TIMING, code=Reason.WORKLOAD, message="it went wrong")]},
    {"replay_ns": 990_000},
]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_stops_the_ladder_at_its_first_rungs_stops_a_gate_too(fault: dict[str, Any]) -> None:
    evidence = with_shape(**fault)
    assert climbed(evidence)[-1][0] < 3
    assert {gate.status for gate in judge(evidence, Policy()).gates if gate.number in (2, 4, 6)} - {PASS}


# --- 3: all shapes --------------------------------------------------------------------------------

THREE = ("b1", "b8", "b32")


def test_all_shapes_that_hold_are_named_in_the_order_of_the_log() -> None:
    evidence = with_shape(shape_records("b8"), shape_records("b32"), shapes=THREE)
    assert judge_rung(3, evidence, Policy()).reason == "all 3 shapes hold"
    assert shapes_that_hold(evidence, Policy()) == THREE


def test_one_shape_that_fails_is_left_out() -> None:
    evidence = with_shape(shape_records("b8", graph_ns=2 * MS), shape_records("b32"), shapes=THREE)
    ended = judge_rung(3, evidence, Policy())
    assert (ended.status, ended.reason) == (PASS, "b8 excluded, the other shapes hold")
    assert shapes_that_hold(evidence, Policy()) == ("b1", "b32")
    assert decided(evidence) is Decision.CONDITIONAL


def test_no_other_shape_that_holds_fails() -> None:
    evidence = with_shape(shape_records("b8", graph_ns=2 * MS), shapes=("b1", "b8"))
    assert answer(3, evidence) == (FAIL, Reason.NO_GAIN)
    assert decided(evidence) is Decision.CONDITIONAL


def test_a_shape_holds_or_not_by_the_policy() -> None:
    evidence = with_shape(shape_records("b8", graph_ns=800_000), shapes=("b1", "b8"))
    assert answer(3, evidence) == (PASS, None)
    assert answer(3, evidence, min_gain=0.3) == (FAIL, Reason.NO_GAIN)


# --- a path of the workload's own -----------------------------------------------------------------


def own(**change: Any) -> Evidence:
    """``build_graphed`` holds: each request launches one graph and does the normal path's work."""
    return passing(records=trial(own_records(**change)))


SERIAL = "serial use only: a graph path of the workload's own is tried with one request at a time"


def test_an_own_path_has_no_rungs_of_instances_and_threads_and_is_for_serial_use() -> None:
    assert climbed(own()) == [(1, PASS), (2, PASS), (3, PASS)]
    assert judge(own(), Policy()).conditions == (SERIAL,)
    assert decided(own()) is Decision.CONDITIONAL


@pytest.mark.parametrize(
    ("busy_ns", "conditions", "status"),
    [(450_000, 1, PASS), (449_000, 2, PASS), (300_000, 2, PASS), (299_000, 2, UNKNOWN)],
)
def test_an_own_path_that_keeps_the_gpu_less_busy_is_bound_and_then_undecided(
    busy_ns: int, conditions: int, status: GateStatus
) -> None:
    verdict = judge(own(busy_ns=busy_ns), Policy())
    assert len(verdict.conditions) == conditions
    assert verdict.gates[1].status is status
    assert answer(1, own(busy_ns=busy_ns))[0] is status


# --- nothing that is missing or worse ever helps ----------------------------------------------------

FAVOUR = [Decision.NO_GO, Decision.INCONCLUSIVE, Decision.CONDITIONAL, Decision.GO]
STATES = ("held", "gone", "wrong", "crashed", "killed")


def in_state(name: str, state: str) -> dict[str, tuple[Record, ...] | None]:
    """The log of one later worker; nothing for one that held."""
    made = {
        "held": {},
        "gone": {name: None},
        "wrong": {name: WRONG[name]},
        "crashed": {name: rung(Phase(name), end=CRASHED)},
        "killed": {name: rung(Phase(name), end=KILLED)},
    }
    return made[state]


states = st.fixed_dictionaries({name: st.sampled_from(STATES) for name in WRONG})


@given(states)
@settings(deadline=None, max_examples=40)
def test_only_a_whole_ladder_is_free_of_conditions(chosen: dict[str, str]) -> None:
    logs: dict[str, Any] = {}
    for name, state in chosen.items():
        logs |= in_state(name, state)
    decision = decided(later(**logs))
    assert (decision is Decision.GO) == (set(chosen.values()) == {"held"})
    refused = {"wrong", "crashed"} & {chosen["memory"], chosen["traffic"]}
    assert (decision is Decision.NO_GO) == bool(refused)


@given(states, st.sampled_from(["memory", "traffic"]), st.sampled_from(STATES))
@settings(deadline=None, max_examples=25)
def test_worsening_what_held_never_improves_the_verdict(
    chosen: dict[str, str], which: str, worse: str
) -> None:
    before: dict[str, Any] = {}
    for name, state in (chosen | {which: "held"}).items():
        before |= in_state(name, state)
    after = before | in_state(which, worse)
    assert FAVOUR.index(decided(later(**after))) <= FAVOUR.index(decided(later(**before)))


@given(st.integers(0, 200))
@settings(deadline=None, max_examples=40)
def test_a_log_that_ends_early_is_never_better_than_the_whole(length: int) -> None:
    records = later().records
    kept = records[: len(records) * length // 200]
    decision = decided(passing(records=kept))
    assert (decision is Decision.GO) == (kept == records)
    assert decision is not Decision.CONDITIONAL


def test_what_the_trial_logged_of_its_rungs_decides_nothing() -> None:
    claimed = tuple(RungEnded(number=each, name="", status=PASS, reason="") for each in range(1, 7))
    evidence = passing(records=(*trial(rungs=(), traffic=True), *claimed))
    assert decided(evidence) is Decision.INCONCLUSIVE


def test_a_phase_that_only_began_holds_nothing() -> None:
    begun = later(traffic=(PhaseStarted(shape="b1", phase=Phase.TRAFFIC),))
    assert answer(6, begun) == (UNKNOWN, Reason.NOT_TRIED)
