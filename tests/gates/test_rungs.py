"""The ladder: which rung holds, what it means for the verdict, and that nothing missing ever helps."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_builder import (
    KERNELS,
    MS,
    changed,
    compared,
    concurrent_runs,
    instance_run,
    memory_series,
    node_set,
    not_measured,
    passing,
    rung,
    rung_records,
    shape_records,
    timed,
    traffic_runs,
    trial,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.gates import Evidence, Policy, decide, judge
from cudagraph_gate.gates.rungs import judge_rung, ladder, shapes_that_hold
from cudagraph_gate.model import Decision, GateResult, GateStatus, Reason
from cudagraph_gate.records import Finding, PathIdle, Phase, PhaseStarted, Record, RungEnded, WorkerEnd

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
    assert found[2].reason == "there is one shape"
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


# --- 4 to 6: workers of their own -----------------------------------------------------------------

LATER = [(4, "instances"), (5, "concurrency"), (6, "traffic")]
CONDITIONS = {"instances": "serial use of one instance only", "concurrency": "serial use only"}


@pytest.mark.parametrize(("number", "name"), LATER[:2])
def test_a_bound_rung_that_fails_is_a_condition_and_fails_no_gate(number: int, name: str) -> None:
    evidence = later(**{name: WRONG[name]})
    assert answer(number, evidence) == (FAIL, Reason.REPLAY_RACE)
    (condition,) = judge(evidence, Policy()).conditions
    rung_name = {4: "several instances", 5: "concurrent requests"}[number]
    assert condition.startswith(f"{CONDITIONS[name]}: rung {number}, {rung_name}, fails: ")
    assert gate_6(evidence).status is PASS
    assert decided(evidence) is Decision.CONDITIONAL


def test_a_mix_that_gains_nothing_fails_gate_6() -> None:
    evidence = later(traffic=WRONG["traffic"])
    assert answer(6, evidence) == (FAIL, Reason.REGRESS)
    assert gate_6(evidence).reason.startswith("rung 6, traffic mix: at the recorded rate")
    assert decided(evidence) is Decision.NO_GO


@pytest.mark.parametrize("name", ["instances", "concurrency"])
def test_a_mix_that_was_tried_and_fails_counts_above_a_rung_that_does_not_hold(name: str) -> None:
    evidence = later(**{name: WRONG[name]}, traffic=WRONG["traffic"])
    assert gate_6(evidence).reason.startswith("rung 6, traffic mix: ")
    assert decided(evidence) is Decision.NO_GO


@pytest.mark.parametrize("name", ["instances", "concurrency"])
def test_a_declared_mix_must_be_tried_where_a_rung_only_binds_the_use(name: str) -> None:
    evidence = later(**{name: WRONG[name]}, traffic=None)
    assert (gate_6(evidence).status, gate_6(evidence).code) == (UNKNOWN, Reason.NOT_TRIED)
    assert decided(evidence) is Decision.INCONCLUSIVE


@pytest.mark.parametrize(("number", "name"), LATER)
def test_a_rung_without_records_is_undecided(number: int, name: str) -> None:
    evidence = later(**{name: None})
    ended = judge_rung(number, evidence, Policy())
    assert (ended.status, ended.code, ended.reason) == (UNKNOWN, Reason.NOT_TRIED, "it was not tried")
    assert (gate_6(evidence).status, gate_6(evidence).code) == (UNKNOWN, Reason.NOT_TRIED)
    assert decided(evidence) is Decision.INCONCLUSIVE


@pytest.mark.parametrize(("number", "name"), LATER)
def test_a_worker_that_could_not_load_the_workload_is_named(number: int, name: str) -> None:
    ended = judge_rung(number, later(**{name: (FAILED,)}), Policy())
    assert (ended.status, ended.code) == (UNKNOWN, Reason.NOT_TRIED)
    assert ended.reason == "it was not tried: a worker failed (no module named model)"


@pytest.mark.parametrize(("number", "name"), LATER)
@pytest.mark.parametrize(("end", "code"), [(CRASHED, Reason.CRASH), (HUNG, Reason.HANG)])
def test_a_worker_that_crashed_or_hung_fails_its_rung(
    number: int, name: str, end: WorkerEnd, code: Reason
) -> None:
    phase = Phase(name)
    evidence = later(**{name: rung(phase, end=end)})
    assert answer(number, evidence) == (FAIL, code)
    assert f"in phase {phase}" in judge_rung(number, evidence, Policy()).reason
    assert decided(evidence) is (Decision.NO_GO if number == 6 else Decision.CONDITIONAL)


WHOLE: dict[str, list[Any]] = {
    "instances": [instance_run()],
    "concurrency": concurrent_runs(),
    "traffic": traffic_runs(),
}


@pytest.mark.parametrize("end", [None, KILLED, FAILED])
@pytest.mark.parametrize(("number", "name"), LATER)
def test_good_records_of_a_worker_that_was_not_seen_to_finish_are_undecided(
    number: int, name: str, end: WorkerEnd | None
) -> None:
    evidence = later(**{name: rung(Phase(name), *WHOLE[name], end=end)})
    assert answer(number, evidence) == (UNKNOWN, Reason.NOT_TRIED)
    assert decided(evidence) is Decision.INCONCLUSIVE


@pytest.mark.parametrize(("number", "name"), LATER)
def test_findings_of_a_rung_count_beside_its_records(number: int, name: str) -> None:
    phase = Phase(name)
    found = Finding(shape="b1", phase=phase, code=Reason.MEMORY, message="no memory is left")
    assert answer(number, later(**{name: rung(phase, *WHOLE[name], found)})) == (FAIL, Reason.MEMORY)
    noted = changed(found, blocks=False)
    assert answer(number, later(**{name: rung(phase, *WHOLE[name], noted)})) == (PASS, None)


def test_a_finding_that_decides_nothing_hides_no_wrong_outputs() -> None:
    found = Finding(shape="b1", phase=Phase.INSTANCES, code=Reason.NOT_TRIED, message="not all was tried")
    log = rung(Phase.INSTANCES, instance_run(wrong=1), found)
    assert answer(4, later(instances=log)) == (FAIL, Reason.REPLAY_RACE)


def test_records_of_another_shape_do_not_hold_for_the_target() -> None:
    for other in (rung_records("b8"), rung_records("b8", memory=rung(Phase.MEMORY, *memory_series()))):
        evidence = passing(records=trial(rungs=other))
        assert answer(4, evidence) == (UNKNOWN, Reason.NOT_TRIED)
        assert decided(evidence) is Decision.INCONCLUSIVE
    mislabelled = rung(Phase.INSTANCES, instance_run("b8"))
    assert answer(4, later(instances=mislabelled)) == (UNKNOWN, Reason.NOT_TRIED)


def test_rungs_of_an_older_trial_do_not_hold_for_a_newer_one() -> None:
    again = passing(records=(*trial(), *trial(rungs=())))
    assert climbed(again)[-1] == (4, UNKNOWN)
    assert decided(again) is Decision.INCONCLUSIVE


def test_a_newer_trial_without_the_mix_does_not_forget_that_it_failed() -> None:
    mixed = trial(rungs=(*rung_records(), *WRONG["traffic"]), traffic=True)
    again = passing(records=(*mixed, *trial()))
    assert climbed(again)[-1] == (6, UNKNOWN)
    assert decided(again) is Decision.INCONCLUSIVE


def test_an_explicit_graph_that_holds_does_not_answer_for_a_captured_one() -> None:
    explicit = tuple(changed(record, method="explicit") for record in shape_records())
    slow = trial(shape_records(graph_ns=2 * MS), explicit)
    assert decided(passing(records=slow)) is Decision.NO_GO
    alone = passing(records=trial(explicit))
    assert climbed(alone) == [(1, UNKNOWN)]
    assert decided(alone) is Decision.INCONCLUSIVE


def test_a_mix_served_by_a_graph_that_another_policy_excludes_is_undecided() -> None:
    shapes = ("b1", "b8", "b32")
    parts = [shape_records(), shape_records("b8", graph_ns=800_000), shape_records("b32")]
    evidence = passing(records=trial(*parts, shapes=shapes, traffic=True))
    assert answer(6, evidence) == (PASS, None)
    ended = judge_rung(6, evidence, Policy(min_gain=0.3))
    assert (ended.status, ended.code) == (UNKNOWN, Reason.NOT_TRIED)
    assert ended.reason == "the mix was served by graphs of b8, which are excluded"


def test_another_policy_judges_the_same_records_differently() -> None:
    evidence = later()
    assert answer(4, evidence, max_memory_bytes=64 << 20) == (PASS, None)
    assert answer(4, evidence, max_memory_bytes=(64 << 20) - 1) == (FAIL, Reason.MEMORY)
    for number, _name in LATER:
        assert answer(number, evidence, min_gain=0.39) == (PASS, None)
        assert answer(number, evidence, min_gain=0.41) == (FAIL, Reason.NO_GAIN)


# --- memory over time -----------------------------------------------------------------------------


def test_memory_over_time_must_be_known() -> None:
    evidence = later(memory=None)
    assert (gate_6(evidence).status, gate_6(evidence).code) == (UNKNOWN, Reason.NOT_TRIED)
    assert gate_6(evidence).reason == "memory over time was not measured"
    partly = later(memory=rung(Phase.MEMORY, *memory_series(without=("aborted",))))
    assert gate_6(partly).reason.startswith("memory over time was not measured for aborted")


def test_a_leak_fails_gate_6_and_no_rung() -> None:
    evidence = later(memory=WRONG["memory"])
    assert climbed(evidence)[-1] == (6, PASS)
    assert (gate_6(evidence).status, gate_6(evidence).code) == (FAIL, Reason.MEMORY_GROWTH)


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [(CRASHED, FAIL, Reason.CRASH), (HUNG, FAIL, Reason.HANG), (KILLED, UNKNOWN, Reason.NOT_TRIED)],
)
def test_the_worker_that_repeats_must_finish(end: WorkerEnd, status: GateStatus, code: Reason) -> None:
    result = gate_6(later(memory=rung(Phase.MEMORY, *memory_series(), end=end)))
    assert (result.status, result.code) == (status, code)


def test_a_leak_fails_where_a_rung_is_only_a_condition() -> None:
    evidence = later(memory=WRONG["memory"], instances=WRONG["instances"])
    assert decided(evidence) is Decision.NO_GO


# --- a path of the workload's own -----------------------------------------------------------------


def own() -> Evidence:
    """``build_graphed`` holds: each request launches one graph."""
    idle = PathIdle(
        shape="b1",
        method="own",
        path="graph",
        requests=8,
        window_ns=8 * MS,
        busy_ns=4 * MS,
        operations=64,
        graph_launches=8,
    )
    records = tuple(changed(record, method="own") for record in shape_records(more=[idle]))
    return passing(records=trial(records))


def test_an_own_path_has_no_rungs_of_instances_and_threads_and_is_for_serial_use() -> None:
    assert climbed(own()) == [(1, PASS), (2, PASS), (3, PASS)]
    conditions = judge(own(), Policy()).conditions
    assert conditions == (
        "serial use only: a graph path of the workload's own is tried with one request at a time",
    )
    assert decided(own()) is Decision.CONDITIONAL


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
