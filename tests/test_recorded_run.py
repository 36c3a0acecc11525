"""The run of GPT-2 on an H200 that ships with the samples: a golden file from a real recording.

Recorded by ``cgate run sample_workloads/torch_gpt2.py`` (torch 2.11, driver 580.159.04); see
``docs/measurements``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cudagraph_gate import pipeline
from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.evidence import Run, open_run
from cudagraph_gate.gates import Policy, judge
from cudagraph_gate.model import Decision, GateStatus, Reason, Requests
from cudagraph_gate.timeline.table import load

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "sample_workloads" / "recorded" / "gpt2-h200"


@pytest.fixture(scope="module")
def run() -> Run:
    return open_run(FOLDER)


def test_the_timeline_gives_the_recorded_diagnosis_again(run: Run) -> None:
    profile = run.profile()
    assert profile is not None
    assert diagnose(load(run.timeline_path), profile) == run.diagnosis()


def test_busy_and_idle_causes_add_up_to_the_window(run: Run) -> None:
    diagnosis = run.diagnosis()
    assert diagnosis is not None
    (device,) = diagnosis.devices
    assert device.busy_ns + sum(device.causes.values()) == device.window_ns
    assert device.busy_ns / device.window_ns < 0.10, "launch-bound: the GPU is busy 4 % of the time"


def test_a_request_runs_the_kernels_of_gpt2(run: Run) -> None:
    diagnosis = run.diagnosis()
    assert diagnosis is not None
    requests = diagnosis.requests
    assert isinstance(requests, Requests)
    assert requests.count == 30
    assert requests.stable
    assert sum(requests.kernels.values()) == 231


def test_its_gates_and_speed_up_where_it_was_recorded(run: Run) -> None:
    verdict = judge(pipeline.collect_evidence(run), Policy())
    passed = [gate.number for gate in verdict.gates if gate.status is GateStatus.PASS]
    assert passed == [1, 2, 3, 4]
    assert verdict.verdict is Decision.INCONCLUSIVE, "gates 5 and 7 are not tried"
    p50 = verdict.gates[5].measured["p50"]
    assert 1 / p50["high"] >= 4, "even the cautious end of the interval is four times faster"
    assert verdict.gates[1].measured["kinds"]["kernel"] == 281


def test_the_rungs_that_its_version_did_not_have_leave_the_comparison_undecided(run: Run) -> None:
    gate = judge(pipeline.collect_evidence(run), Policy()).gates[5]
    assert (gate.status, gate.code) == (GateStatus.UNKNOWN, Reason.NOT_TRIED)
    assert gate.reason == ("rung 4, several instances: it was not tried; memory over time was not measured")


@pytest.mark.parametrize("command", ["verdict", "report"])
def test_the_command_shows_it_anywhere(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cudagraph_gate", command, "--run", str(FOLDER)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == (12 if command == "verdict" else 0), done.stderr
    assert "sample_workloads/torch_gpt2.py" in done.stdout
    assert "Traceback" not in done.stderr


def test_elsewhere_it_is_stale_and_says_what_it_was() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cudagraph_gate", "verdict", "--json", "--run", str(FOLDER)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    verdict = json.loads(done.stdout)
    assert (verdict["verdict"], verdict["recorded_verdict"]) == ("INCONCLUSIVE", "INCONCLUSIVE")
    assert "gpu_uuid" in verdict["stale"]
