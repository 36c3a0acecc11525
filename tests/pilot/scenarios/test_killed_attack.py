"""An attack whose worker or parent is killed keeps what was finished, and is judged as far as it got."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pilot_workloads import OF_ITS_OWN, options, write_workload

from cudagraph_gate import pipeline
from cudagraph_gate.evidence import PILOT_LOG, Run, create_run, newest_run
from cudagraph_gate.gates import Policy
from cudagraph_gate.model import GateResult, GateStatus
from cudagraph_gate.records import ScenarioEnded, WorkerEnd

DIES = """
def build(shape):
    (log,) = FOLDER.glob("runs/*/pilot.jsonl")
    if log.read_text().count('"scenario_ended"') == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    work = array()

    def step(x):
        device.copy(work, x)
        for k in range(4):
            add(work, k)
        return work

    return step
"""
"""The worker of the second scenario is killed, whichever that is."""


def gate_5(run: Run) -> GateResult:
    (found,) = [gate for gate in pipeline.verdict(run, Policy()).gates if gate.number == 5]
    return found


def test_a_worker_that_is_killed_leaves_its_scenario_unknown_and_the_next_one_is_run(tmp_path: Path) -> None:
    text = f"from pathlib import Path\nFOLDER = Path({str(tmp_path)!r})\n{DIES}"
    path = write_workload(tmp_path, text)
    run = create_run(str(path), "module", "simulated", root=tmp_path / "runs")
    chosen = ("capture-failure", "user-exception", "unjoined-stream")
    pipeline.pilot(run, options(tmp_path, rungs=2, scenarios=chosen))
    ended = [record.scenario for record in run.records() if isinstance(record, ScenarioEnded)]
    assert ended[0] == "capture-failure"
    ends = [record for record in run.records() if isinstance(record, WorkerEnd)]
    killed = [end for end in ends if end.outcome == "killed"]
    assert {end.stage for end in killed} == {"scenario user-exception", "scenario unjoined-stream"}
    found = gate_5(run)
    assert found.status is GateStatus.UNKNOWN
    assert "scenario user-exception could not be tried: its worker killed (SIGKILL" in found.reason
    assert found.measured["capture-failure"]["status"] == "pass"


def test_a_parent_that_is_killed_loses_nothing_that_was_finished(tmp_path: Path) -> None:
    path = write_workload(tmp_path, OF_ITS_OWN)
    command = [sys.executable, "-m", "cudagraph_gate", "pilot", str(path), "--device", "simulated"]
    command += ["--rungs", "2", "--scenarios", "capture-failure,hang"]
    environment = os.environ | {"PYTHONPATH": str(Path(pipeline.__file__).parents[2])}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not finished(tmp_path) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run = newest_run(tmp_path / ".cgate" / "runs")
    assert [record.scenario for record in run.records() if isinstance(record, ScenarioEnded)] == [
        "capture-failure"
    ]
    found = gate_5(run)
    assert found.status is GateStatus.UNKNOWN
    assert found.measured["capture-failure"]["status"] in ("pass", "unknown")  # its worker's end may be lost
    assert "scenario hang" in found.reason


def finished(folder: Path) -> bool:
    """Whether the first scenario's answer is in the log."""
    return any('"scenario_ended"' in log.read_text() for log in folder.glob(f".cgate/runs/*/{PILOT_LOG}"))
