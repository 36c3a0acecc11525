"""From gates to the verdict, its reasons and the exit code."""

from __future__ import annotations

import msgspec
import pytest
from artefact_builder import diagnosis, fingerprint, requests
from evidence_builder import (
    changed,
    compared,
    passing,
    shape_records,
    started,
    trial,
)
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.errors import ExitCode
from cudagraph_gate.gates import Policy, decide, exit_code, judge
from cudagraph_gate.model import Decision, GateResult, GateStatus, NotMeasured, Verdict
from cudagraph_gate.records import Record

statuses = st.lists(st.sampled_from(GateStatus), min_size=7, max_size=7)
conditions = st.lists(st.just("shape b8 excluded"), max_size=2)
BETTER = [GateStatus.FAIL, GateStatus.UNKNOWN, GateStatus.PASS]
FAVOUR = [Decision.NO_GO, Decision.INCONCLUSIVE, Decision.CONDITIONAL, Decision.GO]


def gates(*given_statuses: GateStatus) -> list[GateResult]:
    return [
        GateResult(number=i, name="g", status=status, measured={}, threshold={}, reason="")
        for i, status in enumerate(given_statuses, start=1)
    ]


# --- the rule -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_statuses", "given_conditions", "decision"),
    [
        (["pass", "pass"], [], Decision.GO),
        (["pass", "pass"], ["shape b8 excluded"], Decision.CONDITIONAL),
        (["pass", "unknown"], ["shape b8 excluded"], Decision.INCONCLUSIVE),
        (["unknown", "fail"], [], Decision.NO_GO),
        ([], [], Decision.INCONCLUSIVE),
    ],
)
def test_the_worst_gate_decides(given_statuses: list[str], given_conditions: list[str], decision: Decision):
    assert decide(gates(*map(GateStatus, given_statuses)), given_conditions) is decision


@given(statuses, conditions, st.integers(0, 6), st.sampled_from(GateStatus))
def test_the_verdict_never_improves_when_a_gate_worsens(
    before: list[GateStatus], given_conditions: list[str], which: int, other: GateStatus
):
    after = [*before]
    after[which] = min(before[which], other, key=BETTER.index)
    was, is_now = (decide(gates(*chosen), given_conditions) for chosen in (before, after))
    assert FAVOUR.index(is_now) <= FAVOUR.index(was)


@given(statuses, conditions)
def test_a_further_condition_never_improves_the_verdict(
    before: list[GateStatus], given_conditions: list[str]
):
    was = decide(gates(*before), given_conditions)
    is_now = decide(gates(*before), [*given_conditions, "serial use only"])
    assert FAVOUR.index(is_now) <= FAVOUR.index(was)


# --- judging evidence -----------------------------------------------------------------------------


def test_seven_gates_in_order():
    found = judge(passing(), Policy()).gates
    assert [(gate.number, gate.name) for gate in found] == [
        (1, "evidence"),
        (2, "segment"),
        (3, "environment"),
        (4, "lifecycle"),
        (5, "hard scenarios"),
        (6, "comparison"),
        (7, "drill"),
    ]


def test_what_is_not_tried_keeps_good_evidence_inconclusive():
    verdict = judge(passing(), Policy())
    assert verdict.verdict is Decision.INCONCLUSIVE
    assert [reason.split(":")[0] for reason in verdict.reasons] == ["gate 5 hard scenarios", "gate 7 drill"]
    assert (verdict.rehearsal, verdict.recorded_verdict, verdict.stale, verdict.conditions) == (
        None,
        None,
        (),
        (),
    )
    assert exit_code(verdict) is ExitCode.INCONCLUSIVE


def test_one_failing_gate_is_no_go_and_its_sentence_the_reason():
    verdict = judge(passing(diagnosis=diagnosis(requests=requests(unstable_share=0.5))), Policy())
    assert verdict.verdict is Decision.NO_GO
    assert verdict.reasons == (
        "gate 2 segment: 50.0 % of the requests ran another sequence of operations, the limit is 5.0 %",
    )
    assert exit_code(verdict) is ExitCode.NO_GO


def test_nothing_at_all_is_inconclusive():
    verdict = judge(passing(fingerprint=None, profile=None, diagnosis=None, records=()), Policy())
    assert verdict.verdict is Decision.INCONCLUSIVE
    assert isinstance(verdict.fingerprint, NotMeasured)
    assert all("\n" not in reason and reason.startswith("gate ") for reason in verdict.reasons)


@pytest.mark.parametrize(
    "simulated",
    [
        {"fingerprint": fingerprint(simulated=True)},
        {"diagnosis": changed(diagnosis(), simulated=True)},
        {"records": trial(simulated=True)},
    ],
)
def test_simulated_evidence_is_a_rehearsal(simulated: dict[str, object]):
    verdict = judge(passing(**simulated), Policy())
    assert (verdict.verdict, verdict.rehearsal) == (Decision.INCONCLUSIVE, Decision.INCONCLUSIVE)


def test_a_simulated_failure_is_a_rehearsed_no_go():
    slow = trial(shape_records(graph_ns=2_000_000), simulated=True)
    verdict = judge(passing(records=slow), Policy())
    assert (verdict.verdict, verdict.rehearsal) == (Decision.INCONCLUSIVE, Decision.NO_GO)
    assert exit_code(verdict) is ExitCode.INCONCLUSIVE


def test_stale_evidence_says_what_it_was_and_is_inconclusive():
    slow = passing(records=trial(shape_records(graph_ns=2_000_000)))
    verdict = judge(slow, Policy(), stale=("driver_version",))
    assert (verdict.verdict, verdict.recorded_verdict) == (Decision.INCONCLUSIVE, Decision.NO_GO)
    assert verdict.stale == ("driver_version",)
    assert verdict.reasons[0].startswith("gate 3 environment: stale")


@pytest.mark.parametrize(
    ("left_out", "named"), [((), ()), (("b2", "b4"), ("b2", "b4")), (("b1", "b2"), ("b2",))]
)
def test_the_judged_shape_and_what_was_not_asked_for_are_named(
    left_out: tuple[str, ...], named: tuple[str, ...]
):
    first, *others = trial()
    verdict = judge(passing(records=(changed(first, left_out=left_out), *others)), Policy())
    assert (verdict.shape, verdict.shapes_left_out) == ("b1", named)


def test_the_policy_is_part_of_the_verdict():
    verdict = judge(passing(), Policy(min_gain=0.2))
    assert verdict.policy["min_gain"] == 0.2
    assert verdict.policy["max_break_even_calls"] == 10_000


def test_a_verdict_survives_its_file():
    verdict = judge(passing(fingerprint=None), Policy())
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict


@pytest.mark.parametrize(
    ("decision", "code"),
    [
        (Decision.GO, ExitCode.GO),
        (Decision.NO_GO, ExitCode.NO_GO),
        (Decision.CONDITIONAL, ExitCode.CONDITIONAL),
        (Decision.INCONCLUSIVE, ExitCode.INCONCLUSIVE),
    ],
)
def test_every_verdict_has_its_exit_code(decision: Decision, code: ExitCode):
    assert exit_code(changed(judge(passing(records=()), Policy()), verdict=decision)) is code


# --- other shapes ---------------------------------------------------------------------------------

BOUND = "serial use of the first shape only: rung 3, all shapes, fails: no shape but b1 holds"


def with_others(*others: tuple[Record, ...], shapes: tuple[str, ...] = ("b1", "b8", "b32")) -> Verdict:
    """The first shape holds, and so does b32 where it is one of ``shapes``."""
    third = [shape_records("b32")] if "b32" in shapes else []
    return judge(passing(records=trial(shape_records(), *others, *third, shapes=shapes)), Policy())


def with_second(*second: tuple[Record, ...]) -> Verdict:
    return with_others(*second, shapes=("b1", "b8"))


def test_other_shapes_that_hold_add_no_condition():
    assert with_second(shape_records("b8")).conditions == ()
    assert with_others(shape_records("b8")).conditions == ()


def test_another_shape_that_loses_is_excluded_and_fails_no_gate():
    verdict = with_others(shape_records("b8", graph_ns=1_200_000))
    (condition,) = verdict.conditions
    assert condition.startswith("shape b8 excluded: ")
    assert verdict.gates[5].status is GateStatus.PASS
    assert GateStatus.FAIL not in {gate.status for gate in verdict.gates}


def test_another_shape_with_wrong_outputs_is_excluded():
    wrong = [compared("outputs", i, shape="b8", equal=i < 5) for i in range(6)]
    (condition,) = with_others(shape_records("b8", comparisons=wrong)).conditions
    assert condition.startswith("shape b8 excluded: request 5: outputs differ")


def test_another_shape_that_was_not_tried_or_not_finished_is_excluded():
    assert with_others().conditions == ("shape b8 excluded: not tried",)
    (condition,) = with_others(shape_records("b8", completed=False)).conditions
    assert condition.startswith("shape b8 excluded: not everything was compared")


def test_where_no_other_shape_holds_the_first_one_is_all_that_may_be_used():
    verdict = with_second(shape_records("b8", graph_ns=1_200_000))
    bound, excluded = verdict.conditions
    assert bound == BOUND
    assert excluded.startswith("shape b8 excluded: ")
    assert verdict.gates[5].status is GateStatus.PASS


def test_where_no_other_shape_was_tried_it_is_undecided():
    verdict = with_second()
    assert verdict.conditions == ("shape b8 excluded: not tried",)
    assert verdict.gates[5].status is GateStatus.UNKNOWN
    assert verdict.gates[5].reason == "rung 3, all shapes: no other shape was tried"


def test_the_target_itself_is_never_excluded():
    log = (started("b1"), *shape_records("b1", graph_ns=2_000_000))
    verdict = judge(passing(records=log), Policy())
    assert (verdict.verdict, verdict.conditions) == (Decision.NO_GO, ())
