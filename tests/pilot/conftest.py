"""One whole run, made once, that several files look at."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_once import made_once
from pilot_workloads import KILLABLE, options, write_workload

from cudagraph_gate import pipeline
from cudagraph_gate.evidence import Run, newest_run
from cudagraph_gate.gates import Policy


@pytest.fixture(scope="session")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Profile, trial on all rungs and verdict of a launch-bound workload with a request mix."""

    def make(folder: Path) -> None:
        pipeline.run_all(write_workload(folder, KILLABLE), Policy(), options(folder, rungs=6))

    return newest_run(made_once(tmp_path_factory, "rehearsed", make) / "runs")
