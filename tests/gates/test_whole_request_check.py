"""Whole requests: a gain that vanishes binds the verdict with its number, slower or other results refuse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from evidence_builder import MS, REQUESTS, passing, shape_records, spread, trial

from cudagraph_gate.gates import Policy
from cudagraph_gate.gates.trial_view import TrialView, view_trial
from cudagraph_gate.gates.whole_request import (
    WholeRequest,
    measured_whole_request,
    view_whole_request,
    whole_request_checks,
    whole_request_conditions,
)
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.records import Finding, Phase, PhaseStarted, Record, StepShare, WholeRequests

BEGUN = PhaseStarted(shape="b1", phase=Phase.WHOLE_REQUEST)
SHARE = StepShare(shape="b1", requests=10, request_ns=100 * MS, step_ns=40 * MS, step_calls=20)
WIDE = (1.0, 1.3, 0.9, 1.2, 0.8, 1.1)
"""What the blocks of a noisy path take, over its median."""


def whole(
    path: str, p50_ns: int, *, factors: Iterable[float] = (1.0,) * 6, **change: Any
) -> list[WholeRequests]:
    """Six blocks of one path, whose requests call the step twice."""
    given = {"step_calls": 2 * REQUESTS, "cpu_ns": 50_000 * REQUESTS, "shape": "b1"}
    return [
        WholeRequests(
            path=path,
            order=order,
            half="ab"[order % 2],
            latencies_ns=spread(round(p50_ns * factor)),
            **(given | change),
        )
        for order, factor in enumerate(factors)
    ]


def seen(*records: Record, shape: str = "b1") -> TrialView:
    """A trial that holds, with what was recorded of whole requests."""
    other = [] if shape == "b1" else [shape_records()]
    names = ("b1",) if shape == "b1" else ("b1", shape)
    log = trial(*other, shape_records(shape, more=records), shapes=names)
    return view_trial(passing(records=log))


def both(normal_ns: int, graph_ns: int, **change: Any) -> TrialView:
    """Whole requests of both paths."""
    return seen(BEGUN, SHARE, *whole("normal", normal_ns), *whole("graph", graph_ns, **change))


def statuses(view: TrialView) -> list[GateStatus]:
    """What the checks say."""
    return [check.status for check in whole_request_checks(view.target, Policy())]


# --- the view -------------------------------------------------------------------------------------


def test_both_paths_the_share_of_the_step_and_its_calls_are_seen() -> None:
    view = view_whole_request(both(10 * MS, 7 * MS).target)
    assert isinstance(view, WholeRequest)
    assert (view.paths.p50.normal_ns, view.paths.p50.graph_ns) == (10 * MS, 7 * MS)
    assert view.gain == pytest.approx(0.3)
    assert (view.step_share, view.step_calls, view.refused_share) == (0.4, 2.0, 0.0)
    assert view.paths.normal_cpu_ns == 50_000


def test_the_steps_own_blocks_are_not_mixed_in() -> None:
    measured = measured_whole_request(both(10 * MS, 7 * MS).target)["whole_request"]
    assert measured["p50"]["normal_ns"] == 10 * MS
    assert measured["p99"]["normal_ns"] == pytest.approx(10.1 * MS, rel=0.001)
    assert (measured["gain"], measured["step_share"]) == (pytest.approx(0.3), 0.4)
    assert measured["step_calls_per_request"] == 2


def test_older_logs_and_workloads_without_a_request_have_nothing_to_say() -> None:
    log = tuple(record for record in passing().records if getattr(record, "phase", "") is not BEGUN.phase)
    view = view_trial(passing(records=log))
    assert view_whole_request(view.target) is None
    assert (statuses(view), whole_request_conditions(view, Policy())) == ([], ())
    assert measured_whole_request(view.target) == measured_whole_request(None) == {}


def test_requests_that_were_begun_and_not_timed_are_unknown() -> None:
    view = seen(BEGUN)
    assert isinstance(view_whole_request(view.target), NotMeasured)
    (check,) = whole_request_checks(view.target, Policy())
    assert (check.status, check.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert check.sentence.startswith("no whole request was timed")
    assert measured_whole_request(view.target)["whole_request"]["type"] == "not_measured"


def test_too_few_blocks_are_unknown() -> None:
    view = seen(BEGUN, *whole("normal", MS), *whole("graph", MS, factors=(1.0,) * 3))
    (check,) = whole_request_checks(view.target, Policy())
    assert check.sentence == "whole requests: 3 timed blocks of the graph path, 4 are needed"


# --- the gain -------------------------------------------------------------------------------------


def test_a_clear_gain_binds_nothing() -> None:
    view = both(10 * MS, 7 * MS)
    assert statuses(view) == [GateStatus.PASS]
    assert whole_request_conditions(view, Policy()) == ()


def test_a_gain_that_vanishes_is_a_condition_with_the_number() -> None:
    view = both(10 * MS, 9_900_000)
    assert statuses(view) == [GateStatus.PASS]
    assert whole_request_conditions(view, Policy()) == (
        "the gain vanishes in the whole request: P50 10.0 ms normal, 9.90 ms graph, gain 1.0 % "
        "(1.0 % to 1.0 %), the step is 40.0 % of it, below the minimum 5.0 %",
    )
    assert whole_request_conditions(view, Policy(min_gain=0.005)) == ()


def test_a_gain_within_the_noise_is_a_condition() -> None:
    noisy = [*whole("normal", 10 * MS, factors=WIDE), *whole("graph", 9 * MS, factors=reversed(WIDE))]
    view = seen(BEGUN, *noisy)
    (condition, *tails) = whole_request_conditions(view, Policy())
    assert condition.startswith("the gain of the whole request is open: P50 ")
    assert "gain 1" in condition
    assert all("P95" in tail or "P99" in tail for tail in tails)
    assert GateStatus.FAIL not in statuses(view)


def test_slower_whole_requests_refuse_the_graph() -> None:
    view = both(10 * MS, 11 * MS)
    failed, *_tails = (
        check for check in whole_request_checks(view.target, Policy()) if check.status is GateStatus.FAIL
    )
    assert failed.code is Reason.REGRESS
    assert failed.sentence.startswith("whole requests are slower by the graph: P50 10.0 ms normal, 11.0 ms")


def test_a_longer_tail_refuses_although_the_median_gains() -> None:
    graph = [_with_tail(block, 30 * MS) for block in whole("graph", 7 * MS)]
    view = seen(BEGUN, SHARE, *whole("normal", 10 * MS), *graph)
    failed = [
        check for check in whole_request_checks(view.target, Policy()) if check.status is GateStatus.FAIL
    ]
    assert [check.sentence[:17] for check in failed] == ["whole request P95", "whole request P99"]


def _with_tail(block: WholeRequests, latency_ns: int) -> WholeRequests:
    return WholeRequests(
        shape=block.shape,
        path=block.path,
        order=block.order,
        half=block.half,
        latencies_ns=(*block.latencies_ns[:-3], *(latency_ns,) * 3),
        cpu_ns=block.cpu_ns,
        step_calls=block.step_calls,
    )


# --- what else was found --------------------------------------------------------------------------


def test_another_result_refuses_the_graph() -> None:
    found = Finding(shape="b1", phase=Phase.WHOLE_REQUEST, code=Reason.WRONG_OUTPUT, message="another output")
    view = seen(BEGUN, found)
    (check,) = whole_request_checks(view.target, Policy())
    assert (check.status, check.code) == (GateStatus.FAIL, Reason.WRONG_OUTPUT)


def test_refused_inputs_are_a_condition_with_their_share() -> None:
    view = both(10 * MS, 7 * MS, refused_calls=REQUESTS, refusal="x has the shape (32,), not (64,)")
    assert whole_request_conditions(view, Policy()) == (
        "request gives the step inputs that the graph refuses in 50.0 % of the calls "
        "(x has the shape (32,), not (64,))",
    )


def test_conditions_of_another_shape_name_it() -> None:
    blocks = [*whole("normal", 10 * MS, shape="b8"), *whole("graph", 10 * MS, shape="b8")]
    view = seen(*blocks, shape="b8")
    (condition,) = whole_request_conditions(view, Policy())
    assert condition.startswith(
        "shape b8: the gain vanishes in the whole request: P50 10.0 ms normal, 10.0 ms"
    )
