"""Gate 1, evidence: submission gaps are measured, and the gain predicted from them is worth it."""

from __future__ import annotations

from typing import Any

from cudagraph_gate.evidence import DIAGNOSIS_FILE, PROFILE_FILE, missing
from cudagraph_gate.gates.check import Check, Gate, fails, holds, undecided
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.trial_view import Evidence
from cudagraph_gate.gates.wording import duration, percent, size
from cudagraph_gate.model import (
    Diagnosis,
    GateResult,
    NotMeasured,
    Prediction,
    ProfileTimes,
    Reason,
)

GATE = Gate(1, "evidence", (DIAGNOSIS_FILE, PROFILE_FILE))


def evidence_gate(evidence: Evidence, policy: Policy) -> GateResult:
    """Judge the prediction: at its pessimistic end for a pass, at its optimistic end for a fail."""
    threshold = {"min_gain": policy.min_gain}
    found = _prediction(evidence.diagnosis)
    if isinstance(found, NotMeasured):
        return GATE.result([undecided(Reason.UNMEASURABLE, found.reason)], {"gain": found}, threshold)
    check = _gain_check(found, evidence.profile, policy)
    return GATE.result([check], _measured(found), threshold)


def _prediction(diagnosis: Diagnosis | None) -> Prediction | NotMeasured:
    """The prediction, if it rests on measured idle; else why not."""
    if diagnosis is None:
        return missing("diagnosis")
    if not diagnosis.devices:
        return NotMeasured(reason="no GPU operation was recorded")
    for device in diagnosis.devices:
        if isinstance(device.idle_ns, NotMeasured):
            return device.idle_ns
    prediction = diagnosis.prediction
    if isinstance(prediction, NotMeasured):
        return prediction
    if isinstance(prediction.upper_bound_ns, NotMeasured):
        return prediction.upper_bound_ns
    if prediction.normal_ns <= 0:
        return NotMeasured(reason="the normal path's request time is zero")
    return prediction


def predicted_gain(prediction: Prediction, replay_ns: int) -> float:
    """Share of the normal request saved if a replay takes ``replay_ns``, the rest as predicted."""
    request_ns = prediction.request_ns - prediction.replay_ns + replay_ns
    return 1 - request_ns / prediction.normal_ns


def _gain_check(prediction: Prediction, profile: ProfileTimes | None, policy: Policy) -> Check:
    low = predicted_gain(prediction, prediction.replay_high_ns)
    high = predicted_gain(prediction, prediction.replay_low_ns)
    interval = f"predicted gain {percent(low)} to {percent(high)} of a request"
    limit = f"the minimum {percent(policy.min_gain)}"
    if high <= policy.min_gain:
        copy = _copy_note(prediction, high, profile, policy)
        return fails(Reason.NO_GAIN, f"{interval}, not more than {limit}{copy}")
    if low <= policy.min_gain:
        return undecided(Reason.UNMEASURABLE, f"{interval}: {limit} lies inside")
    allowed = _allowed_gain(prediction)
    if allowed < policy.min_gain:
        contradiction = f"{interval}, but the measured submission idle allows {percent(allowed)} at most"
        return undecided(Reason.UNMEASURABLE, contradiction)
    return holds(f"{interval}, more than {limit}")


def _allowed_gain(prediction: Prediction) -> float:
    upper = prediction.upper_bound_ns
    return upper / prediction.normal_ns if isinstance(upper, int) else 0.0


def _copy_note(prediction: Prediction, gain: float, profile: ProfileTimes | None, policy: Policy) -> str:
    """Names the copy of the inputs where it alone takes the gain away."""
    if gain + prediction.copy_in_ns / prediction.normal_ns <= policy.min_gain:
        return ""
    note = f"; copying the inputs into static buffers costs {duration(prediction.copy_in_ns)}"
    if profile is None or not profile.input_bytes:
        return note
    name, nbytes = max(profile.input_bytes.items(), key=lambda item: item[1])
    return f"{note}, the biggest is {name} ({size(nbytes)})"


def _measured(prediction: Prediction) -> dict[str, Any]:
    return {
        "gain": prediction.gain,
        "gain_low": predicted_gain(prediction, prediction.replay_high_ns),
        "gain_high": predicted_gain(prediction, prediction.replay_low_ns),
        "normal_ns": prediction.normal_ns,
        "request_ns": prediction.request_ns,
        "copy_in_ns": prediction.copy_in_ns,
        "upper_bound_ns": prediction.upper_bound_ns,
    }
