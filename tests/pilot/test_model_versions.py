"""The model version: in the key of kept graphs, and one for all evidence of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from opened_sessions import Opened, opened
from pilot_workloads import write_workload
from rung_workloads import OWN_BUFFER, rung

from cudagraph_gate import fingerprint
from cudagraph_gate.errors import DeviceError
from cudagraph_gate.evidence import Run, create_run
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.jobs import TrialJob
from cudagraph_gate.pilot.ladder import try_shape
from cudagraph_gate.pilot.model_versions import CachedPath, cached_path, graph_key
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.pilot.traffic import try_traffic
from cudagraph_gate.records import Block, Finding, Phase, ShapeEnded, TrafficRun

UPGRADED = """
NUMBERS = {"weights": 1.0, "version": 1}

def step(x):
    device.copy(work, x)
    add(work, NUMBERS["weights"])
    return work

def version():
    return NUMBERS["version"]

def upgrade(weights):
    NUMBERS.update(weights=weights, version=NUMBERS["version"] + 1)
"""
"""A number that a capture bakes in, and a version that tells that it changed."""


class Silent:
    """Nobody listens."""

    def progress(self, text: str, phase: str = "", done: int = 0, total: int = 0) -> None:
        """Not shown."""

    def answer(self, **values: Any) -> None:
        """Not kept."""


# --- kept graphs ----------------------------------------------------------------------------------


def gained(tried: Opened, path: CachedPath) -> list[float]:
    """What one request adds to its input, by the normal path and by the other."""
    (x,) = tried.first
    before = x.to_host()[0]
    normal = tried.session.call(tried.first).to_host()[0]
    served = path.replay(tried.first).to_host()[0]
    return [round(float(after - before), 3) for after in (normal, served)]


def test_a_graph_of_an_older_version_is_never_served(tmp_path: Path) -> None:
    tried = opened(tmp_path, UPGRADED)
    path = cached_path(tried.session, tried.first)
    assert gained(tried, path) == [1, 1]
    tried.session.workload.module.upgrade(5.0)
    assert gained(tried, path) == [5, 5]
    assert gained(tried, path) == [5, 5]
    counts = path.cache.statistics
    assert (counts.captures, counts.evictions, counts.entries) == (2, 1, 1)
    path.invalidate()
    assert path.cache.statistics.entries == 0


def test_without_a_new_version_the_older_graph_would_be_served(tmp_path: Path) -> None:
    tried = opened(tmp_path, UPGRADED)
    path = cached_path(tried.session, tried.first)
    tried.session.workload.module.NUMBERS["weights"] = 5.0
    assert gained(tried, path) == [5, 1]


def test_the_key_tells_model_layout_device_and_libraries(tmp_path: Path) -> None:
    tried = opened(tmp_path, UPGRADED)
    key = graph_key(tried.session, tried.first)
    assert (key.model_version, key.shape, key.dtype) == ("1", ((64,),), ("float32",))
    assert key.device == tried.session.device.name
    assert dict(key.libraries).keys() >= {"numpy"}
    tried.session.workload.module.upgrade(1.0)
    assert graph_key(tried.session, tried.first) != key


def test_without_version_the_key_has_none(tmp_path: Path) -> None:
    tried = opened(tmp_path)
    assert graph_key(tried.session, tried.first).model_version == ""


def test_what_can_not_be_captured_raises_what_the_step_raised(tmp_path: Path) -> None:
    tried = opened(tmp_path, "def step(x):\n    device.synchronize()\n    return work\n")
    with pytest.raises(DeviceError, match="CAPTURE"):
        cached_path(tried.session, tried.first)


def test_the_request_mix_is_served_through_the_cache(tmp_path: Path) -> None:
    mix = "KERNELS = 2\nSHAPES = {'one': 1}\nTRAFFIC = {'one': 1}\ndef version(): return 'v1'\n"
    prepared = rung(tmp_path, "traffic", OWN_BUFFER + mix)
    made: list[CachedPath] = []

    def make(session: Session, inputs: Inputs) -> CachedPath:
        made.append(cached_path(session, inputs))
        return made[-1]

    job = structs.replace(prepared.job, captured=("one",))
    try_traffic(prepared.loaded, prepared.log, job, make)
    runs = prepared.of(TrafficRun)
    assert {(run.path, run.captured) for run in runs} == {("normal", ("one",)), ("graph", ("one",))}
    (path,) = made
    served = sum(len(run.requests) for run in runs if run.path == "graph")
    assert path.cache.statistics.captures == 1
    assert path.cache.statistics.hits > served  # and some to compare and to warm up


# --- one version for one run ----------------------------------------------------------------------


def tried_here(folder: Path, text: str, recorded: str | None = None) -> Run:
    """The trial of a workload in this process, in a run whose environment was recorded with a version."""
    path = write_workload(folder, text)
    run = create_run(str(path), "module", "simulated", root=folder / "runs")
    if recorded is not None:
        run.write(fingerprint.collect(simulated=True, device_name="simulated", model_version=recorded))
    job = TrialJob(folder=str(run.folder), workload=str(path), device="simulated", shapes=None, shape=None)
    try_shape(job, Silent())
    return run


def findings(run: Run) -> list[Finding]:
    """Those that decide something."""
    return [record for record in run.records() if isinstance(record, Finding) and record.blocks]


def completed(run: Run) -> bool:
    """Whether the trial came to its end."""
    (ended,) = (record for record in run.records() if isinstance(record, ShapeEnded))
    return ended.completed


def test_a_run_of_another_version_is_not_added_to(tmp_path: Path) -> None:
    run = tried_here(tmp_path, "def version(): return 'v2'\n", recorded="v1")
    (found,) = findings(run)
    assert (found.code, found.phase) == (Reason.ENVIRONMENT, Phase.COLD_REQUEST)
    assert found.message == "the model version is v2, and the evidence of this run is of v1"
    assert not completed(run)
    assert not any(isinstance(record, Block) for record in run.records())


def test_a_run_of_the_same_version_is_added_to(tmp_path: Path) -> None:
    text = "def step(x):\n    device.synchronize()\n    return work\ndef version(): return 'v1'\n"
    (found,) = findings(tried_here(tmp_path, text, recorded="v1"))
    assert (found.code, found.phase) == (Reason.CAPTURE_ILLEGAL, Phase.CAPTURE)  # it came so far


def test_a_version_that_changes_under_the_graph_leaves_the_trial_undecided(tmp_path: Path) -> None:
    text = "served = []\ndef between(i): served.append(i)\ndef version(): return 1 if not served else 2\n"
    run = tried_here(tmp_path, text)
    (found,) = findings(run)
    assert (found.code, found.phase) == (Reason.ENVIRONMENT, Phase.TIMING)
    assert found.message.startswith("version() said 1 before the graph was captured and 2 after it was timed")
