"""Gate 5: every scenario must have ended as it must, and proved what it had to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from attack_evidence import attack, attacked_trial, end, ended, held, proof
from evidence_builder import passing, trial

from cudagraph_gate.gates import Policy, judge, view_trial
from cudagraph_gate.gates.scenarios import hard_scenario_checks, scenario_check, view_attack
from cudagraph_gate.model import DRILL, SCENARIO_BY_NAME, SCENARIOS, GateResult, GateStatus, Reason
from cudagraph_gate.records import Record, ScenarioStarted

PASS, FAIL, UNKNOWN = GateStatus.PASS, GateStatus.FAIL, GateStatus.UNKNOWN
NAME = "capture-failure"
TWO_WORKERS = next(scenario for scenario in SCENARIOS if scenario.ends == ("finished", "finished"))
MEANT_TO_HANG = next(scenario for scenario in SCENARIOS if "timed_out" in scenario.ends)


def gate(records: Sequence[Record]) -> GateResult:
    (found,) = [each for each in judge(passing(records=tuple(records)), Policy()).gates if each.number == 5]
    return found


def answer(**logs: Any) -> tuple[GateStatus, Reason | None]:
    """The gate where one scenario's log is another."""
    found = gate(attacked_trial({name.replace("_", "-"): log for name, log in logs.items()}))
    return found.status, found.code


def test_it_holds_where_every_scenario_ended_as_it_must() -> None:
    found = gate(attacked_trial())
    assert (found.status, found.code) == (PASS, None)
    assert set(found.measured) == {scenario.name for scenario in SCENARIOS} - {DRILL}
    assert found.measured[NAME]["elapsed_ns"] == 2_000_000_000


def test_without_any_attack_it_is_unknown() -> None:
    found = gate(trial())
    assert (found.status, found.code, found.reason) == (
        UNKNOWN,
        Reason.NOT_TRIED,
        "no hard scenario was tried",
    )


@pytest.mark.parametrize("scenario", [each.name for each in SCENARIOS if each.name != DRILL])
def test_each_scenario_that_was_skipped_leaves_it_unknown(scenario: str) -> None:
    found = gate(attacked_trial(skipped={scenario: "--skip"}))
    assert (found.status, found.code) == (UNKNOWN, Reason.NOT_TRIED)
    assert found.reason == f"scenario {scenario} was skipped (--skip)"


def test_several_that_were_skipped_are_said_in_one_sentence() -> None:
    names = ("hang", "device-fault", "model-switch", "topology-change")
    found = gate(attacked_trial(skipped=dict.fromkeys(names, "--quick")))
    assert found.status is UNKNOWN
    assert found.reason == "scenarios hang, device-fault, model-switch and 1 more were skipped (--quick)"


def test_a_skipped_drill_is_not_this_gates_affair() -> None:
    assert gate(attacked_trial(skipped={DRILL: "--skip"})).status is PASS


@pytest.mark.parametrize("scenario", [each.name for each in SCENARIOS if each.name != DRILL])
def test_each_scenario_that_was_not_reached_leaves_it_unknown(scenario: str) -> None:
    found = gate(attacked_trial({scenario: ()}))
    assert (found.status, found.reason) == (UNKNOWN, f"scenario {scenario} was not reached")


def test_what_came_of_the_fault_refuses_with_call_place_and_advice() -> None:
    came = ended(
        NAME,
        status=FAIL,
        code=Reason.CAPTURE_INTERFERENCE,
        seen="2 of 20 captures failed",
        call="cuMemAlloc",
        where="model.py:7",
        advice="capture first",
    )
    found = gate(attacked_trial({NAME: (came, end(NAME))}))
    assert (found.status, found.code) == (FAIL, Reason.CAPTURE_INTERFERENCE)
    assert found.reason == (
        "scenario capture-failure: 2 of 20 captures failed (in cuMemAlloc, at model.py:7); capture first"
    )


def test_a_proof_that_fails_refuses() -> None:
    bad = proof(NAME, status=FAIL, code=Reason.MEMORY_GROWTH, detail="+64.0 MiB are not given back")
    found = gate(attacked_trial({NAME: (bad, ended(NAME), end(NAME))}))
    assert (found.status, found.code) == (FAIL, Reason.MEMORY_GROWTH)
    assert found.reason == "scenario capture-failure and then memory: +64.0 MiB are not given back"


def test_a_proof_that_could_not_be_made_leaves_it_unknown() -> None:
    open_proof = proof(NAME, status=UNKNOWN, code=Reason.UNMEASURABLE)
    assert answer(capture_failure=(open_proof, ended(NAME), end(NAME))) == (UNKNOWN, Reason.UNMEASURABLE)


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        ("crashed", FAIL, Reason.CRASH),
        ("timed_out", FAIL, Reason.HANG),
        ("killed", UNKNOWN, Reason.NOT_TRIED),
        ("failed", UNKNOWN, Reason.NOT_TRIED),
        ("finished", UNKNOWN, Reason.NOT_TRIED),
    ],
)
def test_a_worker_that_ends_without_an_answer(outcome: str, status: GateStatus, code: Reason) -> None:
    started = ScenarioStarted(scenario=NAME, part=0, shape="b1")
    assert answer(capture_failure=(started, end(NAME, outcome))) == (status, code)


def test_a_log_that_ends_before_the_worker_leaves_it_unknown() -> None:
    assert answer(capture_failure=(ended(NAME),)) == (UNKNOWN, Reason.NOT_TRIED)


def test_what_does_not_apply_holds() -> None:
    aside = ended(NAME, applies=False, seen="the graph path is the workload's own")
    found = gate(attacked_trial({NAME: (aside, end(NAME))}))
    assert found.status is PASS
    assert found.measured[NAME]["applies"] is False


# --- scenarios that lose their process ------------------------------------------------------------


def hung(outcome: str, *, started: bool = True) -> list[Record]:
    name = MEANT_TO_HANG.name
    first: list[Record] = [ScenarioStarted(scenario=name, part=0, shape="b1")] if started else []
    return [*first, end(name, outcome), *held(MEANT_TO_HANG)[2:]]


def test_a_worker_that_is_meant_to_hang_must_be_seen_to_begin() -> None:
    assert answer(**{MEANT_TO_HANG.name: hung("timed_out")}) == (PASS, None)
    assert answer(**{MEANT_TO_HANG.name: hung("timed_out", started=False)}) == (UNKNOWN, Reason.NOT_TRIED)


def test_a_worker_that_is_meant_to_hang_and_goes_on_shows_nothing() -> None:
    assert answer(**{MEANT_TO_HANG.name: hung("finished")}) == (UNKNOWN, Reason.UNMEASURABLE)


def test_a_worker_that_is_meant_to_hang_and_crashes_refuses() -> None:
    assert answer(**{MEANT_TO_HANG.name: hung("crashed")}) == (FAIL, Reason.CRASH)


def test_the_process_that_replaces_a_lost_one_must_be_right() -> None:
    name = TWO_WORKERS.name
    first = held(TWO_WORKERS)[: len(held(TWO_WORKERS)) // 2]
    bad = ended(name, 1, status=FAIL, code=Reason.WRONG_OUTPUT, seen="request 0 differs")
    records = (*trial(), *attack({name: (*first, bad, end(name))}))
    found = gate(records)
    assert (found.status, found.code) == (FAIL, Reason.WRONG_OUTPUT)
    assert "after its process was replaced" in found.reason
    assert gate((*trial(), *attack({name: tuple(first)}))).status is UNKNOWN


# --- which attack counts --------------------------------------------------------------------------


def test_an_attack_on_an_older_trial_does_not_count() -> None:
    assert gate((*attacked_trial(), *trial())).status is UNKNOWN


def test_the_newest_attack_counts_and_no_older_one_fills_its_gaps() -> None:
    records = (*attacked_trial(), *attack(skipped={NAME: "--skip"}))
    assert gate(records).status is UNKNOWN


@pytest.mark.parametrize("other", [{"shape": "b8"}, {"method": "own"}])
def test_an_attack_on_another_graph_does_not_count(other: dict[str, str]) -> None:
    assert gate((*trial(), *attack(**other))).status is UNKNOWN


def test_the_attack_leaves_the_trials_own_records_alone() -> None:
    plain, attacked = (view_trial(passing(records=records)) for records in (trial(), attacked_trial()))
    assert plain == attacked


def test_each_scenario_is_judged_alone() -> None:
    records = attacked_trial({NAME: (ended(NAME, status=FAIL, code=Reason.CRASH), end(NAME))})
    attacked = view_attack(records, view_trial(passing(records=records)))
    assert attacked is not None
    statuses = {each.name: scenario_check(attacked, each).status for each in SCENARIOS}
    assert statuses.pop(NAME) is FAIL
    assert set(statuses.values()) == {PASS}
    assert len(hard_scenario_checks(attacked)) == len(SCENARIOS) - 1 == len(SCENARIO_BY_NAME) - 1
