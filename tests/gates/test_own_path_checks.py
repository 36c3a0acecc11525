"""A graph path of the workload's own must launch graphs; outputs that it overwrites are a condition."""

from __future__ import annotations

from typing import Any

import pytest

from cudagraph_gate.gates.own_path import kept_outputs_condition, own_path_checks
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.records import Finding, PathIdle, PathName, Phase, PhaseStarted, Record


def idle(path: PathName = "graph", **change: Any) -> PathIdle:
    given: dict[str, Any] = {
        "requests": 10,
        "window_ns": 1_000,
        "busy_ns": 400,
        "operations": 660,
        "graph_launches": 10,
    }
    return PathIdle(shape="b1", method="own", path=path, **(given | change))


def trial(*records: Record) -> ShapeTrial:
    return ShapeTrial("b1", records, "own")


def answer(*records: Record) -> tuple[GateStatus, Reason | None, str]:
    (check,) = own_path_checks(trial(*records))
    return check.status, check.code, check.sentence


def test_a_mixture_with_more_launches_than_requests_is_undecided() -> None:
    status, code, _sentence = answer(idle(graph_launches=12))  # two each for six requests, none for four
    assert (status, code) == (GateStatus.UNKNOWN, Reason.NO_GRAPH_USED)


def test_a_path_that_launches_a_graph_for_each_request_holds() -> None:
    status, code, sentence = answer(idle("normal", graph_launches=0), idle())
    assert (status, code) == (GateStatus.PASS, None)
    assert sentence == "10 requests of build_graphed's path launched 10 graphs"


def test_several_graphs_a_request_hold() -> None:
    assert answer(idle(graph_launches=30))[0] is GateStatus.PASS


def test_no_graph_at_all_fails() -> None:
    status, code, sentence = answer(idle("normal", graph_launches=4), idle(graph_launches=0))
    assert (status, code) == (GateStatus.FAIL, Reason.NO_GRAPH_USED)
    assert sentence.startswith(
        "no graph was launched: 10 requests of build_graphed's path ran 660 operations"
    )


def test_fewer_graphs_than_requests_are_undecided() -> None:
    status, code, sentence = answer(idle(graph_launches=9))
    assert (status, code) == (GateStatus.UNKNOWN, Reason.NO_GRAPH_USED)
    assert sentence.endswith("launched 9 graphs: not every request is served by one")


@pytest.mark.parametrize(
    ("records", "code", "words"),
    [
        ([idle(graph_launches=NotMeasured(reason="no CUPTI"))], Reason.UNMEASURABLE, "unknown: no CUPTI"),
        ([idle(operations=0, graph_launches=0)], Reason.UNMEASURABLE, "ran anything that the recorder saw"),
        ([idle("normal")], Reason.NOT_TRIED, "was not recorded"),
        ([PhaseStarted(shape="b1", phase=Phase.TIMING)], Reason.NOT_TRIED, "ended in phase timing"),
    ],
    ids=["not measured", "nothing ran", "normal path only", "ended before"],
)
def test_what_was_not_seen_is_undecided(records: list[Record], code: Reason, words: str) -> None:
    status, found, sentence = answer(*records)
    assert (status, found) == (GateStatus.UNKNOWN, code)
    assert words in sentence


def test_the_newest_recording_counts() -> None:
    assert answer(idle(graph_launches=0), idle())[0] is GateStatus.PASS


@pytest.mark.parametrize("method", ["capture", "explicit"])
def test_a_graph_of_ours_is_not_asked(method: Any) -> None:
    assert own_path_checks(ShapeTrial("b1", (idle(graph_launches=0),), method)) == []


# --- outputs that the next request overwrites ---------------------------------------------------------


def overwritten(**change: Any) -> Finding:
    given: dict[str, Any] = {"phase": Phase.TRAJECTORY, "code": Reason.LIFETIME, "blocks": False}
    return Finding(
        shape="b1", message="the graph path overwrites output y", advice="clone it", **(given | change)
    )


def test_overwritten_outputs_are_a_condition() -> None:
    assert kept_outputs_condition(trial(overwritten())) == "the graph path overwrites output y: clone it"


@pytest.mark.parametrize("other", [{"blocks": True}, {"code": Reason.RNG}, {"phase": Phase.CAPTURE}])
def test_other_findings_are_none(other: dict[str, Any]) -> None:
    assert kept_outputs_condition(trial(overwritten(**other))) == ""


def test_without_a_trial_there_is_no_condition() -> None:
    assert kept_outputs_condition(None) == ""
    assert kept_outputs_condition(trial()) == ""
