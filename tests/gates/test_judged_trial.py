"""A trial under a policy: every answer is worked out once and stays the same for all who ask."""

from __future__ import annotations

import pytest
from artefact_builder import fingerprint
from evidence_builder import passing, rung_records, shape_records, trial

from cudagraph_gate.gates import Evidence, Policy, judge
from cudagraph_gate.gates.judged_trial import JudgedTrial
from cudagraph_gate.gates.rungs import climb, ladder, shapes_that_hold
from cudagraph_gate.model import Decision, NotMeasured
from cudagraph_gate.records import RungEnded


def two_shapes(**change: object) -> Evidence:
    """The second one may be changed."""
    parts = (shape_records(), shape_records("b8", **change))
    return passing(records=trial(*parts, shapes=("b1", "b8"), traffic=True))


def test_checks_and_intervals_are_worked_out_once() -> None:
    judged = JudgedTrial(two_shapes(), Policy())
    assert judged.target is not None
    assert judged.checks(judged.target) is judged.checks(judged.target)
    assert judged.instances is judged.instances
    assert judged.concurrency is judged.concurrency
    assert judged.traffic is judged.traffic
    assert not isinstance(judged.traffic, NotMeasured)
    assert judged.traffic.judged is judged.traffic.judged


def test_shapes_hold_or_are_left_out_with_the_reason() -> None:
    judged = JudgedTrial(two_shapes(graph_ns=2_000_000), Policy())
    (second,) = judged.view.others
    assert judged.holding == ("b1",)
    assert judged.refused(second)
    assert judged.exclusion(second).startswith("never breaks even")
    assert JudgedTrial(two_shapes(), Policy()).holding == ("b1", "b8")


def test_another_policy_is_another_trial() -> None:
    evidence = two_shapes(graph_ns=800_000)
    assert shapes_that_hold(evidence, Policy()) == ("b1", "b8")
    assert shapes_that_hold(evidence, Policy(min_gain=0.3)) == ("b1",)


def test_a_trial_without_records_has_no_target() -> None:
    judged = JudgedTrial(passing(records=()), Policy())
    assert judged.target is None
    assert judged.holding == ()
    assert judged.instances is None
    assert judged.traffic == NotMeasured(reason="the request mix was not replayed")


def told(rungs: tuple[RungEnded, ...]) -> list[tuple[int, str, str]]:
    return [(rung.number, rung.status, rung.reason) for rung in rungs]


@pytest.mark.parametrize("left_out", ["instances", "concurrency", "memory", "traffic"])
def test_the_ladder_is_the_same_whoever_climbs_it(left_out: str) -> None:
    evidence = passing(records=trial(rungs=rung_records(mix=("b1",), **{left_out: None}), traffic=True))
    assert told(climb(JudgedTrial(evidence, Policy()))) == told(ladder(evidence, Policy()))


@pytest.mark.parametrize("graph_ns", [600_000, 970_000, 2_000_000])
@pytest.mark.parametrize("simulated", [False, True])
def test_stale_evidence_tells_the_verdict_that_it_had(graph_ns: int, simulated: bool) -> None:
    evidence = passing(
        records=trial(shape_records(graph_ns=graph_ns), simulated=simulated),
        fingerprint=fingerprint(simulated=simulated),
    )
    stale = judge(evidence, Policy(), stale=("gpu_name",))
    assert stale.verdict is Decision.INCONCLUSIVE
    assert stale.recorded_verdict is judge(evidence, Policy()).verdict
