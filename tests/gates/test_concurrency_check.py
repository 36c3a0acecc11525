"""Rung 5: what the blocks of concurrent requests say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.gates.concurrency import concurrency_check, measured_concurrency, view_concurrency
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.records import ConcurrentRun, Record

THREADS, REQUESTS, BLOCKS = 4, 20, 10


def block(path: str, order: int, latency_ns: int, **change: Any) -> ConcurrentRun:
    """Four threads with five requests each, spread by 1 % around ``latency_ns``."""
    latencies = tuple(latency_ns + latency_ns * (at - REQUESTS // 2) // 1_000 for at in range(REQUESTS))
    given: dict[str, Any] = {
        "shape": "b1",
        "path": path,
        "order": order,
        "threads": THREADS,
        "latencies_ns": latencies,
        "elapsed_ns": latency_ns * REQUESTS // THREADS,
        "process_cpu_ns": 1_000,
        "wrong": 0,
    }
    return ConcurrentRun(**(given | change))


def log(
    normal_ns: int = 1_000_000, graph_ns: int = 400_000, *, blocks: int = BLOCKS, swing: float = 0.0
) -> list[ConcurrentRun]:
    """Alternating blocks; ``swing`` makes every other block of each path so much slower."""
    found = []
    for at in range(blocks):
        factor = 1 + swing * (at % 2)
        found.append(block("normal", 2 * at, round(normal_ns * factor)))
        found.append(block("graph", 2 * at + 1, round(graph_ns * factor)))
    return found


def judged(records: list[Record] | list[ConcurrentRun]) -> tuple[GateStatus, Reason | None, str]:
    check = concurrency_check(view_concurrency(records, "b1"), "b1", Policy())
    return check.status, check.code, check.sentence


# --- latency and throughput -------------------------------------------------------------------------


def test_a_clear_gain_holds() -> None:
    status, code, sentence = judged(log())
    assert (status, code) == (GateStatus.PASS, None)
    assert "concurrent P50 1.00 ms normal, 400 µs graph, gain 60.0 %" in sentence
    assert "concurrent time per request 250 µs normal, 100 µs graph, gain 60.0 %" in sentence
    assert "concurrent P95 within limits" in sentence


@pytest.mark.parametrize(
    ("graph_ns", "status", "code"),
    [
        (930_000, GateStatus.PASS, None),
        (970_000, GateStatus.FAIL, Reason.NO_GAIN),
        (1_000_000, GateStatus.FAIL, Reason.NO_GAIN),
        (1_100_000, GateStatus.FAIL, Reason.REGRESS),
    ],
)
def test_a_gain_under_the_minimum_has_vanished(
    graph_ns: int, status: GateStatus, code: Reason | None
) -> None:
    assert judged(log(graph_ns=graph_ns))[:2] == (status, code)


def test_a_gain_that_may_be_noise_is_undecided() -> None:
    status, code, sentence = judged(log(graph_ns=900_000, swing=0.3))
    assert (status, code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "not clearly beyond the noise floor" in sentence


def test_faster_requests_that_leave_the_throughput_as_it_was_do_not_hold() -> None:
    runs = [
        block(run.path, run.order, 1_000_000 if run.path == "normal" else 400_000, elapsed_ns=5_000_000)
        for run in log()
    ]
    status, code, sentence = judged(runs)
    assert (status, code) == (GateStatus.FAIL, Reason.NO_GAIN)
    assert sentence.startswith("concurrent time per request 250 µs normal, 250 µs graph")


def test_a_tail_that_got_longer_does_not_hold() -> None:
    def with_tail(run: ConcurrentRun) -> ConcurrentRun:
        slow = (3_000_000,) * 2 if run.path == "graph" else ()
        latencies = (*run.latencies_ns[: REQUESTS - len(slow)], *slow)
        return block(run.path, run.order, 1, latencies_ns=latencies, elapsed_ns=run.elapsed_ns)

    status, code, sentence = judged([with_tail(run) for run in log()])
    assert (status, code) == (GateStatus.FAIL, Reason.REGRESS)
    assert sentence.startswith("concurrent P95 1.01 ms normal, 3.00 ms graph")


def test_the_order_of_the_log_does_not_matter() -> None:
    assert judged(list(reversed(log(swing=0.02)))) == judged(log(swing=0.02))


@given(st.integers(50_000, 2_000_000), st.floats(0, 0.5))
@settings(deadline=None, max_examples=25)
def test_slower_graphs_never_get_a_better_answer(graph_ns: int, swing: float) -> None:
    order = [GateStatus.FAIL, GateStatus.UNKNOWN, GateStatus.PASS]
    faster, slower = (judged(log(graph_ns=ns, swing=swing))[0] for ns in (graph_ns, 2 * graph_ns))
    assert order.index(slower) <= order.index(faster)


# --- too little to tell -----------------------------------------------------------------------------


def test_without_blocks_nothing_was_tried() -> None:
    for records in ([], [block("graph", 0, 1_000, shape="b8")]):
        assert judged(records)[:2] == (GateStatus.UNKNOWN, Reason.NOT_TRIED)
    assert measured_concurrency(view_concurrency([], "b1")) == {}


def test_few_blocks_are_undecided() -> None:
    status, code, sentence = judged(log(blocks=3))
    assert (status, code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert sentence == "3 concurrent blocks of the normal path, 4 are needed"


def test_a_path_that_was_not_tried_is_undecided() -> None:
    normal = [run for run in log() if run.path == "normal"]
    assert judged(normal)[2] == "0 concurrent blocks of the graph path, 4 are needed"


def test_a_clock_that_stands_still_is_undecided() -> None:
    assert judged(log(0, 0))[:2] == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)


# --- outputs and failures ---------------------------------------------------------------------------


def test_wrong_outputs_of_graphs_fail() -> None:
    runs = [*log(), block("graph", 20, 400_000, wrong=2)]
    status, code, sentence = judged(runs)
    assert (status, code) == (GateStatus.FAIL, Reason.REPLAY_RACE)
    assert sentence == "2 requests of 4 threads by graphs differ from the normal path"


def test_wrong_outputs_of_both_paths_fail_and_say_so() -> None:
    runs = [*log(), block("graph", 20, 400_000, wrong=2), block("normal", 21, 1_000_000, wrong=3)]
    assert judged(runs)[2].endswith("and so do 3 of the normal path")


def test_a_normal_path_that_is_wrong_in_threads_means_serial_use() -> None:
    runs = [*log(), block("normal", 20, 1_000_000, wrong=1)]
    status, code, sentence = judged(runs)
    assert (status, code) == (GateStatus.FAIL, Reason.REPLAY_RACE)
    assert "the workload itself serves one request at a time" in sentence


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("graph", GateStatus.FAIL, Reason.REPLAY_RACE),
        ("normal", GateStatus.FAIL, Reason.REPLAY_RACE),
    ],
)
def test_a_thread_that_fails_decides_by_its_path(path: str, status: GateStatus, code: Reason) -> None:
    failed = block(path, 20, 1, latencies_ns=(), elapsed_ns=0, failure="RuntimeError: lost")
    found = judged([*log(), failed])
    assert found[:2] == (status, code)
    assert f"with 4 threads the {path} path fails: RuntimeError: lost" in found[2]


# --- the report -------------------------------------------------------------------------------------


def test_figures_for_the_report() -> None:
    measured = measured_concurrency(view_concurrency(log(), "b1"))
    assert measured["threads"] == 4
    assert (measured["normal_wrong_requests"], measured["graph_wrong_requests"]) == (0, 0)
    assert measured["throughput_ratio"] == pytest.approx(2.5)
    assert (measured["p50"]["normal_ns"], measured["p50"]["graph_ns"]) == (999_500, 399_800)
    assert measured["p95"]["ratio"] == pytest.approx(0.4, rel=0.01)


def test_figures_of_few_blocks_say_why_there_are_none() -> None:
    measured = measured_concurrency(view_concurrency(log(blocks=1), "b1"))
    assert measured["throughput_ratio"] == NotMeasured(
        reason="1 concurrent blocks of the normal path, 4 are needed"
    )
