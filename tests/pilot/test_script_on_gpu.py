"""Script mode in a real worker on a GPU: time, iterations, children, and every way to end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cudagraph_gate.evidence import create_run
from cudagraph_gate.pilot.jobs import ScriptJob
from cudagraph_gate.pilot.worker import WorkerResult, run_worker
from cudagraph_gate.timeline.table import KERNEL, Timeline, load

pytestmark = pytest.mark.gpu

SCRIPT = """\
import os, subprocess, sys, threading, time
import numpy as np
from cudagraph_gate.device import Kernel, LaunchShape, open_device

WORK = Kernel("work", 'extern "C" __global__ void work(int n) {}', lambda shape, n: None, 2_000)

def launch(device, count=1):
    for _ in range(count):
        device.launch(WORK, LaunchShape((1, 1, 1), (1, 1, 1)), (np.int32(1),))
    device.synchronize()

"""
STEPS = """
device = open_device("cuda")
while True:
    with device.annotate("step", domain="user"):
        launch(device)
"""
CHILD = """
device = open_device("cuda")
launch(device, 5)
"""


@dataclass(frozen=True)
class Recorded:
    """How a script's worker ended, and what it recorded."""

    result: WorkerResult
    timeline: Timeline

    @property
    def kernels(self) -> int:
        return int((self.timeline.operations["kind"] == KERNEL).sum())


def recorded(folder: Path, text: str, **options: Any) -> Recorded:
    path = folder / "train.py"
    path.write_text(SCRIPT + text)
    run = create_run(str(path), "script", "cuda", root=folder / "runs")
    job = ScriptJob(folder=str(run.folder), script=str(path), arguments=(), **options)
    result = run_worker(job, stage="profile", workload=path, limit_s=120)
    return Recorded(result, load(run.timeline_path))


def test_a_script_is_ended_after_its_duration(tmp_path: Path) -> None:
    began = time.monotonic()
    found = recorded(tmp_path, STEPS, duration_s=2.0)
    assert time.monotonic() - began < 100
    assert found.result.end.outcome == "finished", found.result.end
    assert found.kernels > 100
    assert found.timeline.meta.problems[-1] == "the script was ended after 2 s, as asked"


def test_a_script_is_ended_after_its_iterations(tmp_path: Path) -> None:
    found = recorded(tmp_path, STEPS, iterations=50, range_name="step")
    assert found.result.end.outcome == "finished", found.result.end
    assert len(found.timeline.requests()) == 50


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(0)",
        "os._exit(0)",
        "threading.Thread(target=lambda: launch(open_device('cuda'), 4)).start()",
    ],
)
def test_nothing_is_lost_however_it_ends(tmp_path: Path, end: str) -> None:
    found = recorded(tmp_path, f"device = open_device('cuda')\nlaunch(device, 3)\n{end}\n")
    assert found.result.end.outcome == "finished", found.result.end
    assert found.kernels == (7 if "Thread" in end else 3)
    assert found.timeline.meta.dropped_records == 0


def test_python_children_are_recorded_too(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(SCRIPT + CHILD)
    text = f"""
subprocess.run([sys.executable, {str(tmp_path / "child.py")!r}], check=True)
device = open_device("cuda")
launch(device, 2)
"""
    found = recorded(tmp_path, text, trace_children=True)
    assert found.result.end.outcome == "finished", found.result.end
    kernels = found.timeline.operations[found.timeline.operations["kind"] == KERNEL]
    assert sorted(kernels.groupby("process").size().tolist()) == [2, 5]
    assert found.timeline.meta.problems == ()


def test_multiprocessing_children_are_recorded_too(tmp_path: Path) -> None:
    text = """
import multiprocessing

def work():
    launch(open_device("cuda"), 5)

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
    launch(open_device("cuda"), 2)
"""
    found = recorded(tmp_path, text, trace_children=True)
    kernels = found.timeline.operations[found.timeline.operations["kind"] == KERNEL]
    assert sorted(kernels.groupby("process").size().tolist()) == [2, 5]


def test_children_that_are_not_recorded_are_named(tmp_path: Path) -> None:
    found = recorded(tmp_path, "subprocess.run(['true'])\nlaunch(open_device('cuda'))\n")
    assert found.timeline.meta.problems == (
        "1 child process (true) was not recorded: --trace-children records Python ones",
    )
