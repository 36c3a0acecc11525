"""The predicted graph request, and the sentence that tells it."""

from __future__ import annotations

import msgspec
import pytest
from made_timelines import NO_TIMES, constant, diagnosed, kernel, request, times

from cudagraph_gate.diagnosis.conclusion import NOTHING_RECORDED, conclude
from cudagraph_gate.diagnosis.prediction import predict
from cudagraph_gate.model import DeviceIdle, NotMeasured, Prediction, Requests

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
(DEVICE,) = diagnosed([kernel(0, 172), kernel(999, 1000)]).devices


def predicted(requests: Requests = REQUESTS, latency: int = 1_920_000, copy_in: int = 30_000) -> Prediction:
    prediction = predict(requests, times(latency, copy_in, recorded_ns=2_112_000))
    assert isinstance(prediction, Prediction)
    return prediction


def sentence(requests: Requests = REQUESTS, latency: int = 1_920_000, copy_in: int = 30_000) -> str:
    return conclude([DEVICE], requests, predicted(requests, latency, copy_in))


def test_a_replay_is_busy_time_node_gaps_and_one_launch() -> None:
    prediction = predicted()
    assert prediction.replay_ns == 344_000 + 128 * 300 + 6_000
    assert prediction.replay_low_ns == 344_000 + 128 * 130 + 6_000
    assert prediction.replay_high_ns == 344_000 + 128 * 420 + 6_000


def test_a_graph_request_also_copies_its_inputs() -> None:
    prediction = predicted()
    assert (prediction.copy_in_ns, prediction.request_ns) == (30_000, 418_400)
    assert prediction.gain == pytest.approx(1 - 418_400 / 1_920_000)
    assert prediction.upper_bound_ns == 1_500_000


def test_the_measured_replay_of_the_reference_workload_is_met() -> None:
    # mlp64 on H200: 17 % busy of 1 922 µs over 128 kernels; the measured replay took 415 µs.
    busy = msgspec.structs.replace(REQUESTS, busy_ns=round(0.17 * 1_922_000))
    prediction = predicted(busy, latency=1_922_000, copy_in=0)
    assert prediction.replay_low_ns * 0.9 <= 415_000 <= prediction.replay_high_ns * 1.1


def test_assumptions_tell_what_the_prediction_rests_on() -> None:
    told = " / ".join(predicted().assumptions)
    assert "1.10 times as long" in told
    assert "130 to 420 ns" in told
    assert "another sequence" not in told


def test_unstable_requests_are_predicted_and_it_is_said() -> None:
    unstable = msgspec.structs.replace(REQUESTS, stable=False, unstable_share=0.25, blocking_calls=2)
    told = " / ".join(predicted(unstable).assumptions)
    assert "25 % of the requests ran another sequence" in told
    assert "2 blocking calls" in told


def test_graphs_in_the_recorded_path_are_told() -> None:
    prediction = predict(REQUESTS, times(1_920_000), graph_launches=4)
    assert isinstance(prediction, Prediction)
    assert "the recorded path launched 4 graphs already" in prediction.assumptions


def test_what_is_missing_is_the_reason_for_no_prediction() -> None:
    unmarked = NotMeasured(reason="no request")
    hidden = msgspec.structs.replace(REQUESTS, submission_idle_ns=NotMeasured(reason="dropped"))
    assert predict(unmarked, times(100)) == unmarked
    assert predict(REQUESTS, NO_TIMES) == NO_TIMES
    assert predict(hidden, times(100)) == NotMeasured(reason="dropped")
    assert isinstance(predict(REQUESTS, times(0)), NotMeasured)


def test_a_gain_is_told_in_one_sentence() -> None:
    assert sentence() == (
        "The GPU is busy 17.2 % of each request and idle for submission 75.0 % of it; "
        "a graph is predicted to cut a request from 1.92 ms to 0.42 ms (-78 %)."
    )


def test_copies_that_cost_more_than_submission_wastes_are_told() -> None:
    small = msgspec.structs.replace(REQUESTS, busy_ns=10_000, operations=1, submission_idle_ns=30_000)
    assert sentence(small, latency=49_000, copy_in=210_000) == (
        "Copying the inputs into static buffers (0.21 ms) costs more than submission wastes (30.0 µs): "
        "a graph is predicted to be slower, from 49.0 µs to 0.23 ms (+362 %)."
    )


def test_a_loss_without_costly_copies_is_told() -> None:
    assert sentence(latency=400_000).endswith(
        "predicted to lengthen a request from 0.40 ms to 0.42 ms (+5 %)."
    )


def test_a_busy_gpu_has_nothing_to_give_back() -> None:
    bound = msgspec.structs.replace(REQUESTS, busy_ns=1_980_000)
    assert sentence(bound) == "The GPU is busy 99.0 %: a graph has nothing to give back."


def test_the_window_stands_in_for_requests_that_are_not_marked() -> None:
    unmarked = NotMeasured(reason="no request is marked in the timeline")
    assert conclude([DEVICE], unmarked, unmarked) == (
        "The GPU is busy 17.3 % of the window and idle for submission 0.0 % of it; "
        "no gain is predicted: no request is marked in the timeline."
    )


def test_idle_that_is_not_measurable_is_told_with_its_reason() -> None:
    blind: DeviceIdle = msgspec.structs.replace(
        DEVICE, idle_ns=NotMeasured(reason="3 records lost"), causes={}
    )
    assert conclude([blind], REQUESTS, predicted()) == "Idle time can't be measured: 3 records lost."


def test_no_gpu_work_is_told() -> None:
    assert diagnosed([], [], [request(0, 100)]).conclusion == NOTHING_RECORDED
