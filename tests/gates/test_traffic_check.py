"""The request mix under load: percentiles, saturation and judgement from hand-made runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.gates.check import Check
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.traffic import (
    PathLoad,
    Traffic,
    judged_level,
    measured_traffic,
    traffic_check,
    view_traffic,
)
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.records import PathName, Record, TrafficRun

US = 1_000
MS = 1_000_000


def run(
    path: PathName,
    services_ns: Sequence[int],
    *,
    gap_ns: int = MS,
    level: float = 0.6,
    declared: bool = False,
    captured: tuple[str, ...] = ("a",),
    requests: Sequence[int] | None = None,
) -> TrafficRun:
    """Requests every ``gap_ns``, served one after the other in ``services_ns`` each."""
    arrivals = [index * gap_ns for index in range(len(services_ns))]
    starts: list[int] = []
    ends: list[int] = []
    for due, service in zip(arrivals, services_ns, strict=True):
        starts.append(max(due, ends[-1] if ends else 0))
        ends.append(starts[-1] + service)
    return TrafficRun(
        path=path,
        level=level,
        order=0,
        declared=declared,
        shapes=("a", "b"),
        captured=captured,
        requests=tuple(requests or [0] * len(arrivals)),
        arrivals_ns=tuple(arrivals),
        starts_ns=tuple(starts),
        ends_ns=tuple(ends),
    )


def level_runs(
    normal_ns: int, graph_ns: int, *, count: int = 50, level: float = 0.6, declared: bool = False
) -> list[Record]:
    """Two runs of each path with constant service times."""
    services: tuple[tuple[PathName, int], ...] = (("normal", normal_ns), ("graph", graph_ns))
    return [
        run(path, [service] * count, level=level, declared=declared)
        for path, service in services
        for _ in range(2)
    ]


def check(records: Sequence[Record]) -> Check:
    return traffic_check(view_traffic(records), Policy())


def viewed(records: Sequence[Record]) -> Traffic:
    view = view_traffic(records)
    assert isinstance(view, Traffic)
    return view


def load(records: Sequence[Record]) -> PathLoad:
    normal = viewed(records).levels[0].normal
    assert isinstance(normal, PathLoad)
    return normal


# --- latencies and saturation ---------------------------------------------------------------------


def test_waiting_counts_as_latency():
    # Due at 0, 10 and 20 µs, served in 15 µs each: ends at 15, 30 and 45.
    found = load([run("normal", [15 * US] * 3, gap_ns=10 * US)])
    assert found.p50_ns == 20 * US
    assert (found.runs, found.requests) == (1, 3)
    assert found.p95_ns == NotMeasured(reason="P95 needs 20 requests per path, there are 3")
    # Busy for 45 µs while requests for 30 µs arrived.
    assert found.utilisation == 1.5
    assert found.saturated


def test_an_idle_server_is_busy_only_for_its_requests():
    found = load([run("normal", [250 * US] * 40)])
    assert (found.p50_ns, found.p95_ns) == (250 * US, 250 * US)
    assert found.utilisation == pytest.approx(0.25)
    assert found.growth == 1
    assert not found.saturated


def test_time_between_two_waiting_requests_is_busy_too():
    one = run("normal", [900 * US] * 40)
    pauses = tuple(start + index * 200 * US for index, start in enumerate(one.starts_ns))
    ends = tuple(start + 900 * US for start in pauses)
    slow = TrafficRun(
        path="normal",
        level=0.9,
        order=0,
        shapes=one.shapes,
        captured=(),
        requests=one.requests,
        arrivals_ns=one.arrivals_ns,
        starts_ns=pauses,
        ends_ns=ends,
    )
    found = load([slow])
    assert found.utilisation > 1
    assert found.growth > 3


def test_noise_is_how_far_one_run_is_from_all():
    found = load([run("normal", [300 * US] * 20), run("normal", [500 * US] * 20)])
    assert found.p50_ns == 400 * US
    assert found.noise_p50 == pytest.approx(0.25)


def test_shares_and_captured_shapes_are_those_of_the_runs():
    view = viewed([run("normal", [US] * 4, requests=[0, 0, 0, 1])])
    assert view.shapes == {"a": 0.75, "b": 0.25}
    assert view.graph_share == 0.75


def test_each_path_saturates_at_its_own_level():
    records = level_runs(800 * US, 400 * US, level=0.8) + level_runs(1_100 * US, 550 * US, level=1.1)
    view = viewed(records)
    assert view.saturates_at("normal") == 1.1
    assert view.saturates_at("graph") == NotMeasured(reason="not up to level 1.10")
    assert view.capacity("normal") == pytest.approx(1.0)
    assert view.capacity("graph") == pytest.approx(2.0)


def test_a_path_that_was_not_run_has_no_saturation():
    view = viewed([run("normal", [US] * 4)])
    assert view.saturates_at("graph") == NotMeasured(reason="the graph path was not run")
    assert view.capacity("graph") == NotMeasured(reason="the graph path was not run")


# --- the check ------------------------------------------------------------------------------------


def test_a_better_graph_path_holds():
    found = check(level_runs(600 * US, 300 * US))
    assert found.status is GateStatus.PASS
    assert found.sentence == (
        "at 60.0 % of what the normal path can serve: P50 600 µs normal, 300 µs graph, "
        "gain 50.0 % (50.0 % to 50.0 %); P95 within limits"
    )


@pytest.mark.parametrize(
    ("graph_us", "status", "code"),
    [
        (569, GateStatus.PASS, None),
        (571, GateStatus.FAIL, Reason.NO_GAIN),
        (600, GateStatus.FAIL, Reason.NO_GAIN),
        (601, GateStatus.FAIL, Reason.REGRESS),
    ],
)
def test_the_median_decides_at_the_minimum_gain(graph_us: int, status: GateStatus, code: Reason | None):
    found = check(level_runs(600 * US, graph_us * US))
    assert (found.status, found.code) == (status, code)


@pytest.mark.parametrize(
    ("slow_us", "status", "code"), [(629, GateStatus.PASS, None), (631, GateStatus.FAIL, Reason.REGRESS)]
)
def test_a_tail_beyond_its_limit_is_a_regression(slow_us: int, status: GateStatus, code: Reason | None):
    services = ([400 * US] * 8 + [slow_us * US] * 2) * 5
    graph = [run("graph", services) for _ in range(2)]
    found = check([*level_runs(600 * US, 0)[:2], *graph])
    assert (found.status, found.code) == (status, code)


def test_a_gain_within_the_noise_is_undecided():
    # The normal path's two runs differ by 40 %; the graph's requests take 13 % less than both together.
    normal = [run("normal", [service * US] * 50) for service in (500, 700)]
    graph = [run("graph", [520 * US] * 50) for _ in range(2)]
    found = check([*normal, *graph])
    assert (found.status, found.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "gain 13.3 %" in found.sentence
    assert "not clearly beyond the noise floor 40.0 %" in found.sentence


def test_a_graph_path_whose_runs_differ_across_the_minimum_is_undecided():
    normal = [run("normal", [600 * US] * 50) for _ in range(2)]
    graph = [run("graph", [service * US] * 50) for service in (400, 590)]
    found = check([*normal, *graph])
    assert (found.status, found.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "(1.7 % to 33.3 %): not clearly beyond the minimum 5.0 %" in found.sentence


def test_what_the_arrivals_do_to_both_paths_alike_is_no_noise():
    # Every request of the second half takes three times as long, on both paths and in every run.
    shape = [1] * 25 + [3] * 25
    records = [
        run(path, [each * factor * US for factor in shape])
        for path, each in (("normal", 200), ("graph", 100))
        for _ in range(2)
    ]
    found = check(records)
    assert found.status is GateStatus.PASS
    assert "gain 50.0 % (50.0 % to 50.0 %)" in found.sentence


def test_a_noisy_tail_beyond_its_limit_is_undecided():
    normal = [run("normal", [600 * US] * 50) for _ in range(2)]
    graph = [run("graph", [300 * US] * 38 + [slow * US] * 12) for slow in (400, 900)]
    found = check([*normal, *graph])
    assert (found.status, found.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "P95 600 µs normal, 900 µs graph" in found.sentence
    assert "not clearly within the limit 1.050" in found.sentence


# --- few requests ---------------------------------------------------------------------------------


def sparse(graph_ms: int, count: int, *, declared: bool = True) -> list[Record]:
    """Requests of 100 ms every two seconds, as many in each of two runs of a path."""
    services: tuple[tuple[PathName, int], ...] = (("normal", 100), ("graph", graph_ms))
    return [
        run(path, [service * MS] * count, gap_ns=2_000 * MS, level=0.05, declared=declared)
        for path, service in services
        for _ in range(2)
    ]


def test_a_rate_of_few_requests_says_how_long_the_runs_must_last():
    found = check(sparse(50, 3))
    assert (found.status, found.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert found.sentence == (
        "at the recorded rate (5.0 % of what the normal path can serve): P95 needs 20 requests per path, "
        "there are 6: at 0.5 requests a second, 2 runs of each path must last 20.0 s; requests that are "
        "sent closer together would be another load"
    )
    assert "another load" not in check(sparse(50, 3, declared=False)).sentence


def test_few_requests_are_enough_to_refuse():
    found = check(sparse(150, 3))
    assert (found.status, found.code) == (GateStatus.FAIL, Reason.REGRESS)


def test_a_rate_below_two_requests_a_second_is_decided_once_enough_were_measured():
    assert check(sparse(50, 10)).status is GateStatus.PASS
    assert check(sparse(50, 9)).status is GateStatus.UNKNOWN


# --- which level decides --------------------------------------------------------------------------


def test_the_highest_level_below_saturation_decides():
    good = level_runs(300 * US, 100 * US, level=0.3)
    poor = level_runs(800 * US, 790 * US, level=0.8)
    beyond = level_runs(1_100 * US, 400 * US, level=1.1)
    found = check([*good, *poor, *beyond])
    assert found.code is Reason.NO_GAIN
    assert found.sentence.startswith("at 80.0 % of what the normal path can serve: ")


def test_the_recorded_rate_decides_before_any_other():
    poor = level_runs(800 * US, 790 * US, level=0.8)
    recorded = level_runs(450 * US, 300 * US, level=0.45, declared=True)
    found = check([*poor, *recorded])
    assert found.status is GateStatus.PASS
    assert found.sentence.startswith("at the recorded rate (45.0 % of what the normal path can serve): ")


def test_a_recorded_rate_that_saturates_the_normal_path_is_not_judged():
    usual = level_runs(800 * US, 400 * US, level=0.8)
    recorded = level_runs(1_300 * US, 900 * US, level=1.3, declared=True)
    assert check([*usual, *recorded]).sentence.startswith("at 80.0 % ")


def test_a_graph_path_that_is_saturated_first_is_a_regression():
    found = check(level_runs(800 * US, 1_200 * US, level=0.8))
    assert (found.status, found.code) == (GateStatus.FAIL, Reason.REGRESS)
    assert "the graph path is saturated (busy 120.0 % of the time, the normal path 80.0 %)" in found.sentence


@pytest.mark.parametrize(
    ("records", "code", "why"),
    [
        ([], Reason.NOT_TRIED, "the request mix was not replayed"),
        (level_runs(1_200 * US, 400 * US), Reason.UNMEASURABLE, "saturated at every load level"),
        (level_runs(600 * US, 300 * US, count=9), Reason.UNMEASURABLE, "P95 needs 20 requests"),
        (level_runs(600 * US, 300 * US)[1:], Reason.UNMEASURABLE, "1 run of a path"),
        (level_runs(600 * US, 300 * US)[:2], Reason.UNMEASURABLE, "the graph path was not run at this level"),
        ([run("graph", [US] * 50, captured=("b",))], Reason.NO_GRAPH_USED, "no request of the mix"),
    ],
)
def test_too_little_evidence_is_undecided(records: list[Record], code: Reason, why: str):
    found = check(records)
    assert (found.status, found.code) == (GateStatus.UNKNOWN, code)
    assert why in found.sentence


services = st.lists(st.integers(50 * US, 900 * US), min_size=25, max_size=25)


@given(services, services)
@settings(deadline=None, max_examples=60)
def test_the_check_never_holds_where_the_median_is_not_better(normal: list[int], graph: list[int]):
    records = [run("normal", normal), run("normal", normal), run("graph", graph), run("graph", graph)]
    view = viewed(records)
    level = judged_level(view)
    if check(records).status is GateStatus.PASS:
        assert level is not None
        assert isinstance(level.normal, PathLoad)
        assert isinstance(level.graph, PathLoad)
        assert level.graph.p50_ns < 0.95 * level.normal.p50_ns
        assert level.graph.p95_ns <= 1.05 * level.normal.p95_ns


@given(services)
@settings(deadline=None, max_examples=30)
def test_two_equal_paths_have_no_gain(both: list[int]):
    found = check([run(path, both) for path in ("normal", "graph") for _ in range(2)])
    assert found.code in (Reason.NO_GAIN, Reason.UNMEASURABLE)
    assert found.status is not GateStatus.PASS


# --- what is reported -----------------------------------------------------------------------------


def test_measured_values_are_plain():
    records = level_runs(800 * US, 400 * US, level=0.8) + level_runs(1_100 * US, 550 * US, level=1.1)
    found = measured_traffic(view_traffic(records))
    assert found["judged_level"] == 0.8
    interval = {"ratio": 0.5, "low": 0.5, "high": 0.5}
    assert found["judged"]["p95"] == {"normal_ns": 800 * US, "graph_ns": 400 * US, **interval}
    assert found["saturates_at"] == {
        "normal": 1.1,
        "graph": {"type": "not_measured", "reason": "not up to level 1.10"},
    }
    first = found["levels"][0]
    assert (first["level"], first["normal"]["p50_ns"], first["graph"]["p95_ns"]) == (0.8, 800 * US, 400 * US)


def test_nothing_measured_says_why():
    assert measured_traffic(view_traffic([])) == {
        "traffic": {"type": "not_measured", "reason": "the request mix was not replayed"}
    }
