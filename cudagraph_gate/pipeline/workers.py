"""Running a stage in its worker, and what its end means for the run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from cudagraph_gate.errors import UsageError, WorkloadError
from cudagraph_gate.evidence import Run
from cudagraph_gate.pilot.jobs import Job, ScriptJob
from cudagraph_gate.pilot.worker import WorkerResult, run_worker
from cudagraph_gate.pilot.worker_process import WorkerProcess
from cudagraph_gate.pipeline.options import Options
from cudagraph_gate.records import WorkerEnd
from cudagraph_gate.workload import is_module_workload

BUG_FILE: Final = "internal-error.txt"
TRACE_SUFFIXES: Final = (".json", ".json.gz", ".sqlite", ".nsys-rep", ".qdrep")


def work(
    job: Job, run: Run, stage: str, workload: Path, options: Options, process: WorkerProcess | None = None
) -> WorkerResult:
    """Run a job in its worker; the traceback of a bug of ours is kept in the run folder."""
    result = run_worker(
        job,
        stage=stage,
        workload=workload,
        limit_s=options.limit_s,
        on_progress=options.on_progress,
        saves_when_interrupted=isinstance(job, ScriptJob),
        process=process,
    )
    if result.bug:
        (run.folder / BUG_FILE).write_text(result.bug)
    return result


def raise_failure(result: WorkerResult, run: Run, stage: str) -> None:
    """Raise what the worker reported, or how it ended, if it did not end well."""
    if result.error is not None:
        hint = f"please report {run.folder / BUG_FILE}" if result.bug else result.error.hint
        raise type(result.error)(result.error.what, where=result.error.where, hint=hint)
    if result.end.outcome != "finished":
        raise WorkloadError(
            f"the worker {result.end.outcome.replace('_', ' ')} during {stage}: {result.end.reason}",
            where=run.info().workload,
            hint="the evidence until then is kept; does the normal path run on its own?",
        )


def absolute(run: Run) -> str:
    """Absolute: a workload may change the working directory of its process."""
    return str(run.folder.absolute())


def discard_if_empty(run: Run) -> None:
    """Remove a run that recorded nothing, so that the one before it stays the newest."""
    recorded = run.timeline_path.exists() or any(
        not isinstance(record, WorkerEnd) for record in run.records()
    )
    if not recorded:
        shutil.rmtree(run.folder)


def refuse_trace(workload: Path) -> None:
    """Raise UsageError for a file that another recorder wrote and nobody can run."""
    if workload.name.lower().endswith(TRACE_SUFFIXES):
        raise UsageError(
            f"{workload.name} is a trace, not a program", hint=f"to read it: cgate profile --from {workload}"
        )


def require_module(workload: Path) -> None:
    """Raise WorkloadError for a file that can only be profiled as a script, UsageError for a trace."""
    refuse_trace(workload)
    if not is_module_workload(workload):
        raise WorkloadError(
            "has no build(shape), so there is no step to try",
            where=workload.name,
            hint="define build(shape) and inputs(shape, seed), or profile it as a script: "
            f"cgate profile {workload}",
        )
