"""The sentence that tells what a timeline shows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from made_timelines import Row, call, constant, diagnosed, kernel, request, span, sync
from segment_by_hand import made_segment

from cudagraph_gate.diagnosis.conclusion import NOTHING_RECORDED, conclude, worth_trying
from cudagraph_gate.diagnosis.gaps import LONG_GAP_NS
from cudagraph_gate.diagnosis.limiter import Limits
from cudagraph_gate.model import Limiter, NotMeasured, Prediction, Requests

REQUESTS = Requests(
    count=10,
    wall=constant(2_000_000),
    busy_ns=344_000,
    operations=128,
    submissions=128,
    blocking_calls=0,
    kernels={"gemm": 128},
    stable=True,
    unstable_share=0.0,
    submission_idle_ns=1_500_000,
)
LAUNCH_BOUND = diagnosed([kernel(0, 16, 1), kernel(99, 100, 2)], [call(-9, -5, 1), call(17, 90, 2)])
"""Busy 17 of 100 ns."""


def limited(limiter: Limiter = Limiter.SUBMISSION, busy: float = 0.172, **others: Any) -> Limits:
    base = {"limiter": limiter, "parts_ns": {limiter: 40}, "whole_ns": 100, "busy_share": busy}
    return Limits(**base | {"requests_only": False} | others)


def predicted(normal: int = 1_920_000, request: int = 418_400, copy_in: int = 30_000) -> Prediction:
    return Prediction(
        normal_ns=normal,
        replay_ns=request - copy_in,
        replay_low_ns=request - copy_in,
        replay_high_ns=request - copy_in,
        copy_in_ns=copy_in,
        request_ns=request,
        gain=1 - request / normal,
        upper_bound_ns=REQUESTS.submission_idle_ns,
        assumptions=(),
    )


def sentence(prediction: Prediction) -> str:
    found = msgspec.structs.replace(LAUNCH_BOUND, requests=REQUESTS, prediction=prediction)
    return conclude(found, limited(requests_only=True))


def launches_every(gap: int, count: int = 5) -> list[list[Row]]:
    rows = [kernel(gap * number, gap * number + 1_000, number) for number in range(1, count + 1)]
    return [rows, [call(row["start_ns"] - 50, row["start_ns"] - 10, row["correlation"]) for row in rows]]


def test_a_gain_is_told_in_one_sentence() -> None:
    assert sentence(predicted()) == (
        "The GPU is busy 17.2 % of each request and idle for submission 75.0 % of it; "
        "a graph is predicted to cut a request from 1.92 ms to 0.42 ms (-78 %)."
    )


def test_copies_that_cost_more_than_submission_wastes_are_told() -> None:
    small = msgspec.structs.replace(predicted(49_000, 226_300, 210_000), upper_bound_ns=30_000)
    assert sentence(small) == (
        "Copying the inputs into static buffers (0.21 ms) costs more than submission wastes (30.0 µs): "
        "a graph is predicted to be slower, from 49.0 µs to 0.23 ms (+362 %)."
    )


def test_a_loss_without_costly_copies_is_told() -> None:
    assert sentence(predicted(400_000)).endswith(
        "predicted to lengthen a request from 0.40 ms to 0.42 ms (+5 %)."
    )


def test_a_busy_gpu_has_nothing_to_give_back() -> None:
    told = conclude(LAUNCH_BOUND, limited(Limiter.GPU, busy=0.99))
    assert told == "The GPU is busy 99.0 %: a graph has nothing to give back."


def test_without_times_the_best_segment_tells_what_a_graph_could_give_back() -> None:
    found = msgspec.structs.replace(LAUNCH_BOUND, segments=(made_segment(),))
    assert conclude(found, limited()) == (
        "The GPU is busy 17.2 % of the window and idle for submission 40.0 % of it; a graph of 128 "
        "operations that repeat 200 times could give back at most 1.40 ms of 1.90 ms each time."
    )


def test_another_part_that_is_about_as_large_is_told() -> None:
    parts = {Limiter.SUBMISSION: 40, Limiter.HOST_WAIT: 1, Limiter.HOST_WORK: 20}
    assert conclude(LAUNCH_BOUND, limited(parts_ns=parts)).startswith(
        "The GPU is busy 17.2 % of the window and idle for submission 40.0 % of it; "
        "for 20.0 % the host did something else between pieces of GPU work; no sequence"
    )
    parts[Limiter.HOST_WORK] = 19
    assert "something else" not in conclude(LAUNCH_BOUND, limited(parts_ns=parts))


def test_without_a_segment_there_is_nothing_to_capture() -> None:
    found = msgspec.structs.replace(LAUNCH_BOUND, segments=())
    assert conclude(found, limited()).endswith("operations repeats, so a graph is no candidate.")
    assert not worth_trying(found)


def test_what_is_a_graph_already_is_no_candidate() -> None:
    graph = made_segment(graph_launches=1, prediction=NotMeasured(reason="it is a graph already"))
    found = msgspec.structs.replace(LAUNCH_BOUND, segments=(graph,), limiter=Limiter.SUBMISSION)
    assert conclude(found, limited()).endswith("is launched as a graph already, so a graph is no candidate.")
    assert not worth_trying(found)


def test_a_segment_that_gives_back_next_to_nothing_is_no_candidate() -> None:
    little = made_segment(repeats=4, upper_bound_ns=1)
    found = msgspec.structs.replace(LAUNCH_BOUND, segments=(little,), limiter=Limiter.SUBMISSION)
    assert conclude(found, limited()).endswith("no more than 4.0 %: a graph is no candidate.")
    assert not worth_trying(found)


def test_a_trial_is_worth_it_where_the_segment_or_the_prediction_promises_a_gain() -> None:
    held = msgspec.structs.replace(LAUNCH_BOUND, segments=(made_segment(),), limiter=Limiter.SUBMISSION)
    assert worth_trying(held)
    assert worth_trying(msgspec.structs.replace(held, segments=(), prediction=predicted()))
    assert not worth_trying(msgspec.structs.replace(held, limiter=Limiter.SYNC))


def test_what_is_missing_is_the_reason_for_no_gain() -> None:
    unknown = NotMeasured(reason="records lost")
    found = msgspec.structs.replace(LAUNCH_BOUND, segments=unknown)
    assert conclude(found, limited()).endswith("no gain is predicted: records lost.")
    blind = msgspec.structs.replace(LAUNCH_BOUND, segments=(made_segment(upper_bound_ns=unknown),))
    assert conclude(blind, limited()).endswith("could give back is not known: records lost.")


@pytest.mark.parametrize("limiter", [one for one in Limiter if one not in (Limiter.GPU, Limiter.SUBMISSION)])
def test_no_graph_is_proposed_where_submission_is_not_the_limiter(limiter: Limiter) -> None:
    found = msgspec.structs.replace(LAUNCH_BOUND, prediction=predicted(), segments=(made_segment(),))
    told = conclude(found, limited(limiter))
    assert told.endswith(": a graph is no candidate.")
    assert told.startswith("The GPU is busy 17.2 % of the window; for 40.0 % of it ")
    assert "give back" not in told
    assert "predicted" not in told


def test_synchronisation_is_told_with_its_call() -> None:
    rows, calls = launches_every(10_000)
    waits = [sync(row["start_ns"] - 5, row["end_ns"] + 500, name="cudaDeviceSynchronize") for row in rows]
    assert diagnosed(rows, [*calls, *waits]).conclusion == (
        "The GPU is busy 12.2 % of the window; for 87.8 % of it the host waited for the GPU, or submitted "
        "only after such a wait (cudaDeviceSynchronize 5 times for 5 submissions): a graph is no candidate."
    )


def test_one_hole_is_called_a_hole() -> None:
    rows = [kernel(0, 1_000, 1), kernel(463_001_000, 463_002_000, 2)]
    assert diagnosed(rows, [call(-9, -5, 1), call(463_000_000, 463_000_100, 2)]).conclusion == (
        "The GPU is busy 0.0 % of the window; for 100.0 % of it the host did something else between pieces "
        "of GPU work (one hole of 463.00 ms holds 100.0 % of the idle time): a graph is no candidate."
    )


def test_gaps_that_are_too_long_for_launches_are_told() -> None:
    told = diagnosed(*launches_every(20 * LONG_GAP_NS)).conclusion
    assert "(gaps longer than 1.00 ms hold 100.0 % of the idle time): a graph is no candidate." in told


def test_the_range_that_holds_most_of_the_host_work_is_named() -> None:
    rows, calls = launches_every(20 * LONG_GAP_NS, count=3)
    loads = [
        span("load", 21 * LONG_GAP_NS, 38 * LONG_GAP_NS),
        span("load", 41 * LONG_GAP_NS, 58 * LONG_GAP_NS),
    ]
    ranges = [span("epoch", 0, 60 * LONG_GAP_NS), *loads, span("tiny", 21 * LONG_GAP_NS, 22 * LONG_GAP_NS)]
    assert "of the idle time, mostly in load): " in diagnosed(rows, calls, ranges).conclusion


def test_no_requests_are_told() -> None:
    rows, calls = [kernel(10, 30, 1), kernel(910, 990, 2)], [call(0, 5, 1), call(902, 905, 2)]
    assert diagnosed(rows, calls, [request(0, 40), request(900, 1_000)]).conclusion == (
        "The GPU is busy 10.0 % of the window; for 86.0 % of it nobody asked for work "
        "(one hole of 0.9 µs holds 97.8 % of the idle time): a graph is no candidate."
    )


def test_idle_that_is_not_measurable_is_told_with_its_reason() -> None:
    told = diagnosed([kernel(0, 10)], dropped_records=3).conclusion
    assert (
        told == "Idle time can't be measured: 3 records are missing, and what looks idle may be their work."
    )


def test_no_gpu_work_is_told() -> None:
    assert diagnosed([], [], [request(0, 100)]).conclusion == NOTHING_RECORDED
