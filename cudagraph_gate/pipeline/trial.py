"""The pilot stage: a graph tried for each shape, each in a worker of its own."""

from __future__ import annotations

from pathlib import Path

from cudagraph_gate.errors import EvidenceError, NoDeviceError, UsageError
from cudagraph_gate.evidence import Run, create_run, newest_run, open_run
from cudagraph_gate.pilot.jobs import TrialJob
from cudagraph_gate.pilot.worker import WorkerResult
from cudagraph_gate.pipeline.judging import stale_fields
from cudagraph_gate.pipeline.options import Options
from cudagraph_gate.pipeline.workers import absolute, discard_if_empty, raise_failure, require_module, work


def pilot(run: Run, options: Options) -> None:
    """Try a graph for each shape, each in a worker of its own, and log it in ``run``.

    A crash, a hang or a refused capture is evidence; WorkloadError is raised where the workload itself
    fails, after every other shape was tried.
    """
    workload = Path(run.info().workload)
    first = _try(run, workload, None, options)
    if isinstance(first.error, UsageError | NoDeviceError):
        discard_if_empty(run)
        raise first.error
    others = [_try(run, workload, shape, options) for shape in first.answer.get("shapes", [])[1:]]
    for result in (first, *others):
        if result.error is not None:
            raise_failure(result, run, "pilot")


def _try(run: Run, workload: Path, shape: str | None, options: Options) -> WorkerResult:
    job = TrialJob(
        folder=absolute(run),
        workload=str(workload),
        device=options.device,
        shapes=options.shapes,
        shape=shape,
        seed=options.seed,
    )
    result = work(job, run, "pilot", workload, options)
    run.append(result.end)
    return result


def run_for_pilot(workload: Path | None, folder: Path | None, options: Options) -> Run:
    """The run that a trial adds to: the named one, else the newest of the workload if it still holds.

    A run of another version of the file, or of another environment, is left alone and a new one made.
    """
    if folder is not None:
        return _named_run(folder, workload)
    if workload is None:
        newest = newest_run(options.root).info()
        if newest.mode == "trace":
            raise UsageError(
                f"the newest run is of the trace {newest.workload}: there is no step to try",
                hint="name a workload: cgate pilot workload.py",
            )
        workload = Path(newest.workload)
    require_module(workload)
    try:
        run = newest_run(options.root, workload=str(workload))
    except EvidenceError:
        return create_run(str(workload), "module", options.device, root=options.root)
    why = _why_not_add(run, options)
    if why:
        options.warn(f"starting a new run: {why}")
        return create_run(str(workload), "module", options.device, root=options.root)
    return run


def _named_run(folder: Path, workload: Path | None) -> Run:
    """The run that the user named. Raises UsageError where a trial would not belong to what it holds."""
    run = open_run(folder)
    own = run.info().workload
    if workload is not None and workload.resolve() != Path(own).resolve():
        raise UsageError(f"{run.name} is a run of {own}, not of {workload}", hint="leave out one of the two")
    changed = stale_fields(run)
    if changed:
        raise UsageError(
            f"since {run.name} was recorded, {', '.join(changed)} changed: a trial of now can't be added",
            hint="start a new run with cgate run",
        )
    return run


def _why_not_add(run: Run, options: Options) -> str:
    """Why a trial must not be added to ``run``; empty where it may."""
    if run.fingerprint() is None:
        return f"{run.name} has no fingerprint, so what changed since is unknown"
    changed = list(stale_fields(run))
    if run.info().device != options.device:
        changed.append("--device")
    return f"since {run.name}, {', '.join(changed)} changed" if changed else ""
