"""The pilot log sorted by shape."""

from __future__ import annotations

from artefact_builder import diagnosis, fingerprint, profile
from evidence_builder import (
    FINISHED,
    changed,
    passing,
    rung,
    rung_records,
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


def test_a_rung_belongs_to_the_shape_and_the_trial_that_it_was_tried_with():
    rungs = view_trial(passing()).rungs
    assert list(rungs) == [Phase.MEMORY, Phase.INSTANCES, Phase.CONCURRENCY]
    assert all(tried.end == FINISHED for tried in rungs.values())
    of_another = trial(rungs=rung_records("b8"))
    assert view_trial(passing(records=of_another)).rungs == {}
    of_own = trial(rungs=rung_records(method="own"))
    assert view_trial(passing(records=of_own)).rungs == {}


def test_a_newer_trial_does_not_count_with_the_rungs_of_an_older_one():
    newer = trial(rungs=rung(Phase.INSTANCES))
    assert list(view_trial(passing(records=(*trial(), *newer))).rungs) == [Phase.INSTANCES]


def test_the_target_keeps_its_rungs_when_only_another_shape_is_tried_again():
    newer = trial(shape_records("b8"), shapes=("b8",))
    rungs = view_trial(passing(records=(*trial(), *newer))).rungs
    assert {tried.shape for tried in rungs.values()} == {"b1"}
    assert len(rungs) == 3


def test_a_run_that_was_killed_in_a_rung_hides_nothing_of_the_next_trial():
    killed = trial(rungs=rung(Phase.INSTANCES, end=None))
    again = trial(shape_records(graph_ns=2_000_000), rungs=())
    view = view_trial(passing(records=(*killed, *again)))
    assert view.target is not None
    assert view.target.blocks("graph")[0].latencies_ns[10] == 2_000_000
    assert view.rungs == {}


def test_a_shape_that_a_newer_trial_set_out_to_try_does_not_count_with_its_older_one():
    older = trial(shape_records("b1"), shape_records("b8"), shapes=("b1", "b8"))
    newer = trial(shape_records("b1"), shapes=("b1", "b8"), rungs=(CRASHED,))
    view = view_trial(passing(profile=None, records=(*older, *newer)))
    assert [(other.shape, other.records) for other in view.others] == [("b8", ())]
    assert (view.name, view.ends) == ("b1", (CRASHED,))


def test_an_explicit_trial_stays_out_of_the_judged_one():
    explicit = tuple(
        changed(record, method="explicit")
        for record in shape_records(graph_ns=2_000_000)
        if not isinstance(record, WorkerEnd)
    )
    view = view_trial(passing(records=trial(rungs=(*explicit, CRASHED, *rung_records()))))
    assert view.target is not None
    assert (view.target.method, view.target.end) == ("capture", FINISHED)
    assert {block.method for block in view.target.blocks("graph")} == {"capture"}
    assert view.explicit["b1"].end == CRASHED
    assert len(view.rungs) == 3


def test_a_request_mix_that_a_newer_trial_leaves_out_is_still_asked_for():
    assert not view_trial(passing()).traffic
    assert view_trial(passing(records=(*trial(traffic=True), *trial()))).traffic


def test_records_that_only_a_rung_makes_need_one():
    (_phase, run, _end) = rung_records(memory=None, concurrency=None)
    view = view_trial(passing(records=(started(), run)))
    assert (dict(view.shapes), dict(view.rungs)) == ({}, {})


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
