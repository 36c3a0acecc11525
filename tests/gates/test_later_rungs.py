"""The rungs that have workers of their own, and memory over time: what each log means for the verdict."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_builder import (
    MS,
    changed,
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
from ladder_evidence import (
    CRASHED,
    FAIL,
    FAILED,
    HUNG,
    KILLED,
    PASS,
    UNKNOWN,
    WRONG,
    answer,
    climbed,
    decided,
    gate_6,
    later,
)

from cudagraph_gate.gates import Policy, judge
from cudagraph_gate.gates.rungs import judge_rung
from cudagraph_gate.model import Decision, GateStatus, Reason
from cudagraph_gate.records import Finding, Phase, WorkerEnd

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
