"""The predicted graph request."""

from __future__ import annotations

import msgspec
import pytest
from made_timelines import NO_TIMES, constant, times

from cudagraph_gate.diagnosis.prediction import predict
from cudagraph_gate.model import NotMeasured, Prediction, Requests

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


def predicted(requests: Requests = REQUESTS, latency: int = 1_920_000, copy_in: int = 30_000) -> Prediction:
    prediction = predict(requests, times(latency, copy_in, recorded_ns=2_112_000))
    assert isinstance(prediction, Prediction)
    return prediction


def test_a_replay_is_busy_time_node_gaps_and_one_launch() -> None:
    prediction = predicted()
    assert prediction.replay_ns == 344_000 + 128 * 200 + 4_000
    assert prediction.replay_low_ns == 344_000 + 128 * 130 + 4_000
    assert prediction.replay_high_ns == 344_000 + 128 * 420 + 4_000


def test_a_graph_request_also_copies_its_inputs() -> None:
    prediction = predicted()
    assert (prediction.copy_in_ns, prediction.request_ns) == (30_000, 403_600)
    assert prediction.gain == pytest.approx(1 - 403_600 / 1_920_000)
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
