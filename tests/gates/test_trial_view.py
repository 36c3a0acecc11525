"""The pilot log sorted by shape."""

from __future__ import annotations

from evidence_builder import (
    FINISHED,
    changed,
    diagnosis,
    fingerprint,
    passing,
    profile,
    shape_records,
    started,
    trial,
)

from cudagraph_gate.gates import Evidence, view_trial
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.records import Cost, Phase, PhaseStarted, WorkerEnd

CRASHED = WorkerEnd(stage="pilot", outcome="crashed", exit_code=-11, signal="SIGSEGV")


def test_records_are_sorted_by_shape():
    log = trial(shape_records("b1"), shape_records("b8", graph_ns=1), shapes=("b1", "b8"))
    shapes = view_trial(passing(records=log)).shapes
    assert list(shapes) == ["b1", "b8"]
    assert {block.shape for block in shapes["b8"].blocks("graph")} == {"b8"}
    assert shapes["b1"].costs[Phase.CAPTURE] == 2_000_000
    assert shapes["b1"].completed


def test_the_target_is_the_profiled_shape():
    log = trial(shape_records("b8"), shape_records("b1"), shapes=("b8", "b1"))
    view = view_trial(passing(records=log))
    assert view.target is not None
    assert (view.target.shape, [other.shape for other in view.others]) == ("b1", ["b8"])


def test_without_a_profile_the_first_tried_shape_is_the_target():
    log = trial(shape_records("b8"), shape_records("b1"))
    target = view_trial(passing(profile=None, records=log)).target
    assert target is not None
    assert target.shape == "b8"


def test_a_profiled_shape_that_was_not_tried_is_an_empty_target():
    target = view_trial(passing(profile=profile(shape="b64"))).target
    assert target is not None
    assert (target.shape, target.records, target.last_phase) == ("b64", (), None)


def test_nothing_at_all_has_no_target():
    view = view_trial(Evidence(workload="w", run="r"))
    assert (view.target, view.others, view.declared) == (None, (), ())


def test_a_shape_that_is_tried_again_counts_with_its_newest_trial():
    first = (started("b1"), PhaseStarted(shape="b1", phase=Phase.CAPTURE), CRASHED)
    target = view_trial(passing(records=(*first, *trial()))).target
    assert target is not None
    assert target.end == FINISHED


def test_a_shape_keeps_its_records_when_only_another_is_tried_again():
    log = (*trial(shape_records("b1")), *trial(shape_records("b8"), shapes=("b8",)))
    view = view_trial(passing(records=log))
    assert view.shapes["b1"].completed
    assert view.shapes["b8"].completed
    assert view.declared == ("b1", "b8")


def test_a_worker_end_belongs_to_the_shape_that_was_going_on():
    log = (started("b1", "b8"), *shape_records("b1"), PhaseStarted(shape="b8", phase=Phase.BUILD), CRASHED)
    view = view_trial(passing(records=log))
    assert view.shapes["b1"].end is None
    assert view.shapes["b8"].end == CRASHED


def test_the_end_of_a_worker_that_logged_nothing_belongs_to_no_shape():
    view = view_trial(passing(records=(*trial(shapes=("b1", "b8")), CRASHED)))
    assert view.shapes["b1"].end == FINISHED
    assert view.ends == (CRASHED,)


def test_a_worker_end_before_any_shape_is_kept_apart():
    view = view_trial(passing(records=(started("b1"), CRASHED)))
    assert (dict(view.shapes), view.ends) == ({}, (CRASHED,))


def test_the_log_says_how_far_it_got():
    log = tuple(PhaseStarted(shape="b1", phase=phase) for phase in (Phase.BUILD, Phase.CAPTURE))
    target = view_trial(passing(records=log)).target
    assert target is not None
    assert (target.last_phase, target.completed) == (Phase.CAPTURE, False)
    assert target.reached(Phase.CAPTURE)
    assert not target.reached(Phase.UPLOAD)


def test_an_absent_cost_keeps_its_reason():
    absent = NotMeasured(reason="no clock")
    more = (Cost(shape="b1", phase=Phase.UPDATE, elapsed=absent),)
    target = view_trial(passing(records=trial(shape_records(more=more)))).target
    assert target is not None
    assert target.costs[Phase.UPDATE] == absent


def test_any_simulated_part_makes_the_evidence_simulated():
    assert not passing().simulated
    assert passing(fingerprint=fingerprint(simulated=True)).simulated
    assert passing(diagnosis=changed(diagnosis(), simulated=True)).simulated
    assert passing(records=trial(simulated=True)).simulated
