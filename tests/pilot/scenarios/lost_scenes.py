"""Scenes on devices that do not do as they are told, and workers of scenarios in processes of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pilot_workloads import OF_ITS_OWN, write_workload

from cudagraph_gate.device import DeviceChoice, Kernel, make_current
from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.evidence import Run, create_run
from cudagraph_gate.model import SCENARIO_BY_NAME
from cudagraph_gate.pilot.jobs import ScenarioJob
from cudagraph_gate.pilot.scenarios.scene import Scene
from cudagraph_gate.pilot.session import Loaded
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.pilot.worker import run_worker
from cudagraph_gate.records import WorkerEnd, scenario_stage
from cudagraph_gate.workload import load_workload, select_shapes

COUNTED = """
calls = 0
def step(x):
    global calls
    calls += 1
    device.copy(work, x)
    add(work, calls % 5)
    return work
"""
"""The host counts to five, as many as a trajectory has requests: it repeats, and a graph freezes it."""


class Listening:
    """Keeps the time limits that are announced."""

    def __init__(self) -> None:
        self.limits: list[float] = []

    def progress(
        self, text: str, phase: str = "", done: int = 0, total: int = 0, *, limit_s: float | None = None
    ) -> None:
        """Keep the limit, if there is one."""
        self.limits += [] if limit_s is None else [limit_s]


class Forgetful(SimulatedDevice):
    """Drops the launches of some kernels."""

    def __init__(self, *forgotten: str) -> None:
        super().__init__()
        self._forgotten = forgotten

    def launch(self, kernel: Kernel, *args: Any, **named: Any) -> None:
        """Launch it, unless it is to be forgotten."""
        if kernel.name not in self._forgotten:
            super().launch(kernel, *args, **named)


def scene_of(
    folder: Path,
    scenario: str,
    text: str = OF_ITS_OWN,
    *,
    device: SimulatedDevice | None = None,
    sink: Listening | None = None,
    part: int = 0,
) -> Scene:
    """A scene of the base workload with what ``text`` replaces in it; its normal path has been run."""
    path = write_workload(folder, text)
    run = create_run(str(path), "module", "simulated", root=folder / "runs")
    job = ScenarioJob(
        scenario=scenario,
        part=part,
        folder=str(run.folder),
        workload=str(path),
        device="simulated",
        shapes=None,
        shape="default",
    )
    device = device or SimulatedDevice()
    make_current(device)
    workload = load_workload(path)
    loaded = Loaded(workload, device, dict(select_shapes(workload, None)))
    scene = Scene.set(loaded, TrialLog(run, "default", sink or Listening()), job)
    assert scene.expected.normal.moments
    return scene


def run_parts(
    path: Path, folder: Path, scenario: str, device: DeviceChoice, *, limit_s: float
) -> tuple[Run, Sequence[WorkerEnd]]:
    """All workers of a scenario, one after the other, each in its process; the log has their ends, too."""
    run = create_run(str(path), "module", device, root=folder / "runs")
    ends = []
    for part in range(len(SCENARIO_BY_NAME[scenario].ends)):
        job = ScenarioJob(
            scenario=scenario,
            part=part,
            folder=str(run.folder),
            workload=str(path),
            device=device,
            shapes=None,
            shape="default",
        )
        result = run_worker(job, stage=scenario_stage(scenario), workload=path, limit_s=limit_s)
        assert not result.bug, result.bug
        run.append(result.end)
        ends.append(result.end)
    return run, ends
