"""A graph path of the workload's own must launch graphs; outputs that it overwrites are a condition."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.gates.check import worst
from cudagraph_gate.gates.own_path import own_path_checks, own_work_condition
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.records import PathIdle, PathName, Phase, PhaseStarted, Record


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
    """The worst check; of a path that launches graphs there are two."""
    check = worst(own_path_checks(trial(*records)))[0]
    return check.status, check.code, check.sentence


def test_a_mixture_with_more_launches_than_requests_is_undecided() -> None:
    status, code, _sentence = answer(idle(graph_launches=12))  # two each for six requests, none for four
    assert (status, code) == (GateStatus.UNKNOWN, Reason.NO_GRAPH_USED)


def test_a_path_that_launches_a_graph_for_each_request_holds() -> None:
    launched, work = own_path_checks(trial(idle("normal", graph_launches=0), idle()))
    assert (launched.status, work.status) == (GateStatus.PASS, GateStatus.PASS)
    assert launched.sentence == "10 requests of build_graphed's path launched 10 graphs"


def test_several_graphs_a_request_hold() -> None:
    assert answer(idle("normal"), idle(graph_launches=30))[0] is GateStatus.PASS


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
    assert answer(idle("normal"), idle(graph_launches=0), idle())[0] is GateStatus.PASS


@pytest.mark.parametrize("method", ["capture", "explicit"])
def test_a_graph_of_ours_is_not_asked(method: Any) -> None:
    assert own_path_checks(ShapeTrial("b1", (idle(graph_launches=0),), method)) == []


# --- work that is left out ----------------------------------------------------------------------------


def worked(normal_ns: Any, own_ns: Any, **change: Any) -> tuple[PathIdle, PathIdle]:
    return idle("normal", busy_ns=normal_ns), idle(busy_ns=own_ns, **change)


@pytest.mark.parametrize(
    ("own_ns", "status", "bound"),
    [
        (1_200_000, GateStatus.PASS, False),
        (900_000, GateStatus.PASS, False),
        (899_000, GateStatus.PASS, True),
        (600_000, GateStatus.PASS, True),
        (599_000, GateStatus.UNKNOWN, True),
        (0, GateStatus.UNKNOWN, True),
    ],
)
def test_less_work_is_a_condition_and_much_less_is_undecided(
    own_ns: int, status: GateStatus, bound: bool
) -> None:
    records = worked(1_000_000, own_ns)
    assert answer(*records)[0] is status
    assert bool(own_work_condition(trial(*records))) is bound


def test_less_work_is_told_with_both_times() -> None:
    records = worked(1_000_000, 500_000)
    seen = (
        "a request of build_graphed's path keeps the GPU busy for 50.0 µs, 50.0 % of the normal path's 100 µs"
    )
    status, code, sentence = answer(*records)
    assert (status, code) == (GateStatus.UNKNOWN, Reason.ESCAPED_WORK)
    assert sentence.startswith(f"{seen}; below 60.0 % fused kernels can't be told")
    assert own_work_condition(trial(*records)).startswith(f"shape b1: {seen}: make sure")


def test_work_is_compared_by_request() -> None:
    fewer = worked(1_000_000, 500_000, requests=5, graph_launches=5)
    assert answer(*fewer)[0] is GateStatus.PASS


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([idle()], "the normal path was not recorded"),
        (worked(NotMeasured(reason="records were lost"), 400), "records were lost"),
        (worked(400, NotMeasured(reason="records were lost")), "records were lost"),
        (worked(0, 400), "busy for no time"),
    ],
)
def test_work_that_was_not_recorded_is_undecided(records: list[Record], words: str) -> None:
    status, code, sentence = answer(*records)
    assert (status, code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert words in sentence
    assert own_work_condition(trial(*records)) == ""


@given(st.integers(1, 10**9), st.integers(0, 10**9))
def test_a_path_that_does_less_never_gets_a_better_answer(own_ns: int, less_ns: int) -> None:
    more, less = (
        answer(*worked(10**9, busy_ns))[0] is GateStatus.PASS
        for busy_ns in (own_ns, max(0, own_ns - less_ns))
    )
    assert more or not less
