"""Ctrl-C: a worker that can save what it has is told to end and waited for, any other is ended at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pilot_workloads import write_workload

from cudagraph_gate.evidence import create_run
from cudagraph_gate.pilot.jobs import Progress, TrialJob
from cudagraph_gate.pilot.worker import WorkerResult, run_worker

SAVING = """
import os, pathlib, signal, time

def save(number, frame):
    pathlib.Path(__file__).with_name("saved").touch()
    os._exit(0)

signal.signal(signal.SIGTERM, save)
pathlib.Path(__file__).with_name("loaded").touch()

def step(x):
    time.sleep(60)
"""


def interrupted(folder: Path, *, saves: bool) -> WorkerResult:
    """Interrupt a worker that saves when it is told to end, as soon as its step is built."""
    path = write_workload(folder, SAVING)
    run = create_run(str(path), "module", "simulated", root=folder / "runs")
    job = TrialJob(folder=str(run.folder), workload=str(path), device="simulated", shapes=None, shape=None)

    def interrupt(progress: Progress) -> None:
        if (folder / "loaded").exists():
            (folder / "loaded").unlink()
            raise KeyboardInterrupt

    return run_worker(job, stage="pilot", workload=path, on_progress=interrupt, saves_when_interrupted=saves)


def test_a_worker_that_saves_is_told_to_end_and_waited_for(tmp_path: Path) -> None:
    assert interrupted(tmp_path, saves=True).interrupted
    assert (tmp_path / "saved").exists()


def test_any_other_worker_is_ended_at_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path, saves=False)
    assert not (tmp_path / "saved").exists()
