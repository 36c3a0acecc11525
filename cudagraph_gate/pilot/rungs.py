"""The rungs that need workers of their own: several instances, concurrency, memory over time, traffic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from cudagraph_gate.evidence import Run
from cudagraph_gate.pilot.concurrency import try_concurrency
from cudagraph_gate.pilot.garbage import freeze_imports
from cudagraph_gate.pilot.instances import try_instances
from cudagraph_gate.pilot.jobs import RungJob
from cudagraph_gate.pilot.model_versions import cached_path
from cudagraph_gate.pilot.session import Loaded, load
from cudagraph_gate.pilot.soaking import soak
from cudagraph_gate.pilot.traffic import try_traffic
from cudagraph_gate.pilot.trial_log import AnswerSink, TrialLog


def _try_traffic(loaded: Loaded, log: TrialLog, job: RungJob) -> None:
    """Where the workload tells its model version, graphs are kept by it, as an application does."""
    keeps = loaded.workload.version is not None and job.method == "capture"
    try_traffic(loaded, log, job, cached_path if keeps else None)


_TRIALS: Final[Mapping[str, Callable[[Loaded, TrialLog, RungJob], None]]] = {
    "instances": try_instances,
    "concurrency": try_concurrency,
    "memory": soak,
    "traffic": _try_traffic,
}


def try_rung(job: RungJob, report: AnswerSink) -> None:
    """Do what the job's kind says and log it. Raises WorkloadError where the workload itself fails."""
    report.progress("loading the workload")
    loaded = load(job.workload, job.device, job.shapes)
    freeze_imports()
    log = TrialLog(Run(Path(job.folder)), job.shape, report, method=job.method)
    _TRIALS[job.kind](loaded, log, job)
