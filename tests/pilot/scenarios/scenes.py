"""Scenarios run in this process on small workloads, for tests of what they see."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilot_workloads import OF_ITS_OWN, write_workload

from cudagraph_gate.device import DeviceChoice
from cudagraph_gate.evidence import create_run
from cudagraph_gate.model import GateStatus
from cudagraph_gate.pilot.jobs import ScenarioJob
from cudagraph_gate.pilot.scenarios.running import try_scenario
from cudagraph_gate.pilot.scenarios.scene import Scene
from cudagraph_gate.pilot.session import load
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import Method, Proof, Record, ScenarioEnded


class Silent:
    """Nobody listens."""

    def progress(self, text: str, phase: str = "", done: int = 0, total: int = 0) -> None:
        """Not shown."""

    def answer(self, **values: Any) -> None:
        """Not kept."""


@dataclass(frozen=True)
class Seen:
    """What one worker of a scenario wrote down."""

    records: tuple[Record, ...]

    @property
    def ended(self) -> ScenarioEnded:
        """What came of the fault."""
        (ended,) = [record for record in self.records if isinstance(record, ScenarioEnded)]
        return ended

    @property
    def proofs(self) -> dict[str, Proof]:
        """The proofs by name."""
        return {record.name: record for record in self.records if isinstance(record, Proof)}

    @property
    def failed_proofs(self) -> list[str]:
        """Names of those that did not hold."""
        return [name for name, proof in self.proofs.items() if proof.status is not GateStatus.PASS]


def seen(
    folder: Path,
    scenario: str,
    text: str = OF_ITS_OWN,
    *,
    part: int = 0,
    device: DeviceChoice = "simulated",
    **job: Any,
) -> Seen:
    """The base workload with what ``text`` replaces in it, under one scenario."""
    return seen_file(write_workload(folder, text), folder, scenario, part=part, device=device, **job)


def seen_file(path: Path, folder: Path, scenario: str, *, shape: str = "default", **job: Any) -> Seen:
    """A workload's shape under one scenario."""
    run = create_run(str(path), "module", job["device"], root=folder / "runs")
    asked = ScenarioJob(
        scenario=scenario, folder=str(run.folder), workload=str(path), shapes=None, shape=shape, **job
    )
    try_scenario(asked, Silent())
    return Seen(tuple(run.records()))


def set_scene(folder: Path, scenario: str, text: str = OF_ITS_OWN, *, method: Method = "capture") -> Scene:
    """The base workload with what ``text`` replaces in it, before any fault."""
    path = write_workload(folder, text)
    run = create_run(str(path), "module", "simulated", root=folder / "runs")
    job = ScenarioJob(
        scenario=scenario,
        folder=str(run.folder),
        workload=str(path),
        device="simulated",
        shapes=None,
        shape="default",
        method=method,
    )
    scene = Scene.set(load(str(path), "simulated", None), TrialLog(run, "default", Silent()), job)
    assert scene.expected.normal.moments
    return scene
