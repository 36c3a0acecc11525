"""Gate 3: a complete fingerprint that still holds."""

from __future__ import annotations

import pytest
from artefact_builder import fingerprint
from evidence_builder import (
    Gate,
    passing,
)

from cudagraph_gate.gates import Policy, judge
from cudagraph_gate.model import GateStatus, Reason


def test_a_complete_fingerprint_passes(gate: Gate):
    result = gate(3)
    assert (result.status, result.measured["missing"]) == (GateStatus.PASS, [])
    assert result.evidence == ("fingerprint.json",)


def test_no_fingerprint_is_unknown(gate: Gate):
    result = gate(3, fingerprint=None)
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.ENVIRONMENT)


@pytest.mark.parametrize("field", ["gpu_uuid", "driver_version", "python", "workload_sha256", "shapes"])
def test_a_missing_field_is_named_with_its_reason(gate: Gate, field: str):
    result = gate(3, fingerprint=fingerprint(without=(field,), missing={field: "NVML failed"}))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.ENVIRONMENT)
    assert f"{field} (NVML failed)" in result.reason
    assert result.measured["missing"] == [field]


def test_an_empty_field_is_missing(gate: Gate):
    blank = fingerprint().identity | {"gpu_name": "", "shapes": ()}
    assert gate(3, fingerprint=fingerprint(identity=blank)).measured["missing"] == ["gpu_name", "shapes"]


def test_the_simulated_device_needs_no_gpu_fields(gate: Gate):
    assert gate(3, fingerprint=fingerprint(simulated=True)).status is GateStatus.PASS


def test_stale_fields_are_unknown_and_named():
    result = judge(passing(), Policy(), stale=("driver_version", "torch")).gates[2]
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.ENVIRONMENT)
    assert "driver_version, torch differ here" in result.reason


def test_many_stale_fields_are_counted_and_the_telling_ones_come_first():
    stale = ("a", "b", "c", "d", "e", "f", "gpu_name", "workload_sha256")
    result = judge(passing(), Policy(), stale=stale).gates[2]
    assert "workload_sha256, gpu_name, a, b, c, d and 2 more differ here" in result.reason
    assert result.measured["stale"] == list(stale)
