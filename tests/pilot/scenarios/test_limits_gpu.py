"""Wrong inputs, other topologies and full device memory on a GPU, in every framework that is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from framework_workloads import FRAMEWORKS
from lost_scenes import run_parts

from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.records import Proof, ScenarioEnded

pytestmark = [pytest.mark.gpu, pytest.mark.parametrize("framework", FRAMEWORKS)]
LIMIT_S = 120.0
STRIDED = ("torch", "cupy", "numba")
"""Frameworks whose arrays can have other strides."""


def stood(folder: Path, scenario: str, framework: str) -> str:
    """What was seen; every proof must hold and the worker end by itself."""
    if framework != "port" and importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    path = folder / "model.py"
    path.write_text(FRAMEWORKS[framework])
    run, ends = run_parts(path, folder, scenario, "cuda", limit_s=LIMIT_S)
    assert [end.outcome for end in ends] == ["finished"]
    records = run.records()
    (ended,) = [record for record in records if isinstance(record, ScenarioEnded)]
    if ended.code is Reason.ENVIRONMENT:
        pytest.skip(ended.seen)  # memory of a GPU that others use must not be filled
    assert (ended.status, ended.seen) == (GateStatus.PASS, ended.seen)
    proofs = [record for record in records if isinstance(record, Proof)]
    assert [proof for proof in proofs if proof.status is not GateStatus.PASS] == []
    return ended.seen


def test_each_wrong_input_is_refused(tmp_path: Path, framework: str) -> None:
    found = stood(tmp_path, "wrong-inputs", framework)
    kinds = ["count", "shape", "dtype", "device", *["strides"][: framework in STRIDED], "range"]
    assert f"({', '.join(kinds)})" in found


def test_the_driver_refuses_another_topology_by_name(tmp_path: Path, framework: str) -> None:
    found = stood(tmp_path, "topology-change", framework)
    assert "the update is refused (CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED" in found


@pytest.mark.parametrize("scenario", ["oom-at-capture", "oom-at-instantiate", "oom-at-instance"])
def test_a_full_device_is_named_and_survived(tmp_path: Path, framework: str, scenario: str) -> None:
    assert stood(tmp_path, scenario, framework).endswith("the next graph is right")
