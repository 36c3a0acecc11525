"""Memory over time of small workloads on the simulated device, a few repetitions of each activity."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pilot_workloads import write_workload

from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.evidence import create_run
from cudagraph_gate.gates.memory import Course, judge_series
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.pilot.jobs import RungJob
from cudagraph_gate.pilot.session import load
from cudagraph_gate.pilot.soaking import CYCLES, REPLAYS, PathMaker, Plan, soak
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import Finding, MemorySeries

FEW_REPLAYS = replace(REPLAYS, most_per_point=5)
FEW_CYCLES = replace(CYCLES, points=12, most_points=14)
ARRAY_BYTES = 256
"""What 64 floats take."""
OWN = """
def build_graphed(shape):
    kept = []
    def path(x):
        {act}
        return step(x)
    return path
"""


class Quiet:
    def progress(self, text: str, phase: str = "", done: int = 0, total: int = 0) -> None: ...


class Soaked:
    """What a soak logged, and the error that it passed on."""

    def __init__(
        self,
        folder: Path,
        text: str = "",
        *,
        method: Any = "capture",
        make_path: PathMaker | None = None,
        replays: Plan = FEW_REPLAYS,
        cycles: Plan = FEW_CYCLES,
    ) -> None:
        self.path = write_workload(folder, text)
        run = create_run(str(self.path), "module", "simulated", root=folder / "runs")
        job = RungJob(
            kind="memory",
            folder=str(run.folder),
            workload=str(self.path),
            device="simulated",
            shapes=None,
            shape="default",
            method=method,
        )
        loaded = self.loaded = load(job.workload, job.device, job.shapes)
        log = TrialLog(run, job.shape, Quiet(), method=method)
        self.error: WorkloadError | None = None
        try:
            soak(loaded, log, job, make_path, replays=replays, cycles=cycles)
        except WorkloadError as error:
            self.error = error
        self.trial = ShapeTrial("default", run.records(), method)
        self.series = {each.activity: each for each in self.trial.of(MemorySeries)}

    @property
    def finding(self) -> Finding:
        """The only one."""
        (only,) = self.trial.findings
        return only

    def course(self, activity: str) -> tuple[Course, float]:
        """Course and slope of an activity."""
        growth = judge_series(self.series[activity])
        return growth.course, growth.trend.bytes_per_repetition
