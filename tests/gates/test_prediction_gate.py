"""Gate 1: measured submission gaps and a predicted gain that is worth it."""

from __future__ import annotations

import pytest
from artefact_builder import device_idle, diagnosis, prediction, profile
from evidence_builder import (
    Gate,
    not_measured,
)

from cudagraph_gate.gates import Policy
from cudagraph_gate.model import Diagnosis, GateStatus, Reason


def predicted(**change: object) -> Diagnosis:
    return diagnosis(prediction=prediction(**change))


def test_a_gain_above_the_minimum_at_its_pessimistic_end_passes(gate: Gate):
    result = gate(1)
    assert (result.number, result.name, result.status, result.code) == (1, "evidence", GateStatus.PASS, None)
    assert result.measured["gain_low"] == pytest.approx(0.38)
    assert result.measured["gain_high"] == pytest.approx(0.42)
    assert result.measured["upper_bound_ns"] == 450_000
    assert result.threshold == {"min_gain": 0.05}
    assert result.evidence == ("diagnosis.json", "profile.json")


def test_a_gain_below_the_minimum_at_its_optimistic_end_fails(gate: Gate):
    slow = predicted(replay_ns=950_000, replay_low_ns=945_000, replay_high_ns=960_000, request_ns=980_000)
    result = gate(1, diagnosis=slow)
    assert (result.status, result.code) == (GateStatus.FAIL, Reason.NO_GAIN)
    assert result.reason == "predicted gain 1.0 % to 2.5 % of a request, not more than the minimum 5.0 %"


def test_a_minimum_inside_the_interval_is_unknown(gate: Gate):
    result = gate(1, policy=Policy(min_gain=0.40))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)


@pytest.mark.parametrize(("minimum", "status"), [(0.37, "pass"), (0.385, "unknown"), (0.43, "fail")])
def test_the_ends_of_the_interval_decide(gate: Gate, minimum: float, status: str):
    assert gate(1, policy=Policy(min_gain=minimum)).status == status


def test_a_copy_that_takes_the_gain_away_is_named_with_its_biggest_input(gate: Gate):
    # Replay 570 us plus 10 us of synchronising would gain 42 %; the copy of 400 us leaves 2 %.
    result = gate(1, diagnosis=predicted(copy_in_ns=400_000, request_ns=980_000))
    assert result.code is Reason.NO_GAIN
    assert (
        "copying the inputs into static buffers costs 400 µs, the biggest is mask (1.00 MiB)" in result.reason
    )


def test_the_copy_is_named_without_a_profile_too(gate: Gate):
    costly = predicted(copy_in_ns=400_000, request_ns=980_000)
    assert gate(1, diagnosis=costly, profile=None).reason.endswith("static buffers costs 400 µs")
    assert "biggest" not in gate(1, diagnosis=costly, profile=profile(input_bytes={})).reason


def test_a_small_copy_is_not_blamed(gate: Gate):
    slow = predicted(replay_ns=950_000, replay_low_ns=950_000, replay_high_ns=950_000, request_ns=980_000)
    assert "copying" not in gate(1, diagnosis=slow).reason


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "the run has no diagnosis"),
        (diagnosis(devices=()), "no GPU operation was recorded"),
        (
            diagnosis(devices=(device_idle(idle_ns=not_measured("records were dropped")),)),
            "records were dropped",
        ),
        (diagnosis(prediction=not_measured("no requests")), "no requests"),
        (predicted(upper_bound_ns=not_measured("level light")), "level light"),
        (predicted(normal_ns=0), "request time is zero"),
    ],
)
def test_what_was_not_measured_is_unknown_with_its_reason(gate: Gate, given: Diagnosis | None, reason: str):
    result = gate(1, diagnosis=given)
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert reason in result.reason


def test_a_prediction_that_the_measured_idle_contradicts_is_unknown(gate: Gate):
    result = gate(1, diagnosis=predicted(upper_bound_ns=40_000))
    assert result.status is GateStatus.UNKNOWN
    assert "allows 4.0 % at most" in result.reason
