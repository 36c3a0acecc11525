"""The order of the stages: profile, pilot, verdict; only this module knows it.

Each stage reads what the ones before it left in the run folder, so that every one can be run on its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from cudagraph_gate import fingerprint
from cudagraph_gate.device import DeviceChoice
from cudagraph_gate.errors import CgateError, EvidenceError, NoDeviceError, UsageError, WorkloadError
from cudagraph_gate.evidence import RUNS, Run, create_run, missing, newest_run, open_run
from cudagraph_gate.gates import Evidence, Policy, judge
from cudagraph_gate.model import Fingerprint, Verdict
from cudagraph_gate.pilot.jobs import (
    DEFAULT_SEED,
    Job,
    ProbeJob,
    ProfileJob,
    Progress,
    ScriptJob,
    TrialJob,
)
from cudagraph_gate.pilot.worker import PHASE_LIMIT_S, WorkerResult, run_worker
from cudagraph_gate.records import WorkerEnd
from cudagraph_gate.workload import is_module_workload

BUG_FILE: Final = "internal-error.txt"


@dataclass(frozen=True)
class Options:
    """What all stages are told."""

    device: DeviceChoice = "auto"
    shapes: str | None = None
    """What ``--shapes`` said: None if it was not given, empty if it was given bare."""
    limit_s: float = PHASE_LIMIT_S
    seed: int = DEFAULT_SEED
    root: Path = RUNS
    on_progress: Callable[[Progress], None] = lambda progress: None
    warn: Callable[[str], None] = lambda text: None


# --- profile --------------------------------------------------------------------------------------


def profile(workload: Path, arguments: tuple[str, ...], options: Options) -> Run:
    """Record a workload, or a whole script with its arguments, and diagnose what was recorded.

    Raises WorkloadError where it fails, NoDeviceError where nothing can be recorded; what was recorded
    until then stays in the run folder.
    """
    module = is_module_workload(workload)
    _refuse_misplaced(workload, arguments, options, module=module)
    run = create_run(str(workload), "module" if module else "script", options.device, root=options.root)
    job = _module_job(run, workload, options) if module else _script_job(run, workload, arguments)
    result = _work(job, run, "profile", workload, options)
    if isinstance(result.error, UsageError | NoDeviceError):
        _discard_if_empty(run)
        raise _for_script(result.error) if isinstance(job, ScriptJob) else result.error
    if result.end.outcome != "finished":
        run.append(result.end)
    if run.timeline_path.exists():
        diagnose_run(run)
    _raise_failure(result, run, "profile")
    return run


def _discard_if_empty(run: Run) -> None:
    """Remove a run that recorded nothing, so that the one before it stays the newest."""
    recorded = run.timeline_path.exists() or any(
        not isinstance(record, WorkerEnd) for record in run.records()
    )
    if not recorded:
        shutil.rmtree(run.folder)


def _refuse_misplaced(workload: Path, arguments: tuple[str, ...], options: Options, *, module: bool) -> None:
    """What was given for a script but only means something for a module, or the other way round."""
    if module and arguments:
        raise UsageError(
            f"{workload.name} defines build: it takes no arguments", hint="arguments are for scripts"
        )
    if module:
        return
    hint = f"{workload.name} has no build(shape), so it is a script"
    if options.device == "simulated":
        raise UsageError("a script can't run on the simulated device", hint=hint)
    if options.shapes is not None:
        raise UsageError("a script has no shapes", hint=hint)


def _module_job(run: Run, workload: Path, options: Options) -> Job:
    return ProfileJob(
        folder=_folder(run),
        workload=str(workload),
        device=options.device,
        shapes=options.shapes,
        seed=options.seed,
    )


def _script_job(run: Run, script: Path, arguments: tuple[str, ...]) -> Job:
    return ScriptJob(folder=_folder(run), script=str(script), arguments=arguments)


def _folder(run: Run) -> str:
    """Absolute: a workload may change the working directory of its process."""
    return str(run.folder.absolute())


def _for_script(error: CgateError) -> CgateError:
    hint = "install the NVIDIA driver; only a workload with build(shape) can run on the simulated device"
    return type(error)(error.what, where=error.where, hint=hint)


def diagnose_run(run: Run) -> None:
    """Analyse the run's timeline again and write the diagnosis."""
    from cudagraph_gate.diagnosis import diagnose  # here: commands without a timeline start twice as fast
    from cudagraph_gate.timeline.table import load

    timeline = load(run.timeline_path)
    run.write(diagnose(timeline, run.profile() or missing("request times")))


# --- pilot ----------------------------------------------------------------------------------------


def pilot(run: Run, options: Options) -> None:
    """Try a graph for each shape, each in a worker of its own, and log it in ``run``.

    A crash, a hang or a refused capture is evidence; WorkloadError is raised where the workload itself
    fails, after every other shape was tried.
    """
    workload = Path(run.info().workload)
    first = _try(run, workload, None, options)
    if isinstance(first.error, UsageError | NoDeviceError):
        _discard_if_empty(run)
        raise first.error
    others = [_try(run, workload, shape, options) for shape in first.answer.get("shapes", [])[1:]]
    for result in (first, *others):
        if result.error is not None:
            _raise_failure(result, run, "pilot")


def _try(run: Run, workload: Path, shape: str | None, options: Options) -> WorkerResult:
    job = TrialJob(
        folder=_folder(run),
        workload=str(workload),
        device=options.device,
        shapes=options.shapes,
        shape=shape,
        seed=options.seed,
    )
    result = _work(job, run, "pilot", workload, options)
    run.append(result.end)
    return result


def run_for_pilot(workload: Path | None, folder: Path | None, options: Options) -> Run:
    """The run that a trial adds to: the named one, else the newest of the workload if it still holds.

    A run of another version of the file, or of another environment, is left alone and a new one made.
    """
    if folder is not None:
        return _named_run(folder, workload)
    if workload is None:
        newest = newest_run(options.root)
        workload = Path(newest.info().workload)
    _require_module(workload)
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
    changed = _stale_fields(run)
    if changed:
        raise UsageError(
            f"since {run.name} was recorded, {', '.join(changed)} changed: a trial of now can't be added",
            hint="start a new run with cgate run",
        )
    return run


def _require_module(workload: Path) -> None:
    """Raise WorkloadError for a file that can only be profiled as a script."""
    if not is_module_workload(workload):
        raise WorkloadError(
            "has no build(shape), so there is no step to try",
            where=workload.name,
            hint="define build(shape) and inputs(shape, seed), or profile it as a script: "
            f"cgate profile {workload}",
        )


def _why_not_add(run: Run, options: Options) -> str:
    """Why a trial must not be added to ``run``; empty where it may."""
    if run.fingerprint() is None:
        return f"{run.name} has no fingerprint, so what changed since is unknown"
    changed = list(_stale_fields(run))
    if run.info().device != options.device:
        changed.append("--device")
    return f"since {run.name}, {', '.join(changed)} changed" if changed else ""


# --- verdict --------------------------------------------------------------------------------------


def verdict(run: Run, policy: Policy) -> Verdict:
    """Judge the run's evidence for this machine as it is now."""
    evidence = collect_evidence(run)
    return judge(evidence, policy, stale=_stale_fields(run))


def collect_evidence(run: Run) -> Evidence:
    """Everything that the run folder holds."""
    return Evidence(
        workload=run.info().workload,
        run=run.name,
        fingerprint=run.fingerprint(),
        profile=run.profile(),
        diagnosis=run.diagnosis(),
        records=run.records(),
    )


def _stale_fields(run: Run) -> tuple[str, ...]:
    """Fingerprint fields in which this machine, or the workload file, differs from the recording."""
    recorded = run.fingerprint()
    if recorded is None:
        return ()
    return fingerprint.differences(recorded, _here(recorded, Path(run.info().workload)))


def _here(recorded: Fingerprint, workload: Path) -> Fingerprint:
    return fingerprint.collect(
        simulated=recorded.simulated,
        device_name=str(recorded.identity.get("device", "")),
        workload=workload,
    )


# --- everything -----------------------------------------------------------------------------------


def run_all(workload: Path, policy: Policy, options: Options) -> tuple[Run, Verdict]:
    """Profile, pilot, verdict. Raises where the workload fails or no device can be had."""
    _require_module(workload)
    run = profile(workload, (), options)
    pilot(run, options)
    judged = verdict(run, policy)
    run.write(judged)
    return run, judged


# --- doctor ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Examination:
    """What ``cgate doctor`` found."""

    device: str
    simulated: bool
    features: tuple[dict[str, Any], ...]
    """``name``, ``works`` and ``detail`` of each feature that was tried."""
    fingerprint: Fingerprint
    advice: tuple[str, ...]


def examine(options: Options) -> Examination:
    """Try this machine's features in a worker, and collect its fingerprint.

    Raises NoDeviceError where a GPU was asked for and there is none.
    """
    result = run_worker(
        ProbeJob(device=options.device),
        stage="doctor",
        limit_s=options.limit_s,
        on_progress=options.on_progress,
    )
    if result.error is not None:
        raise result.error
    name, simulated = result.answer.get("device", "unknown"), result.answer.get("simulated", False)
    features = tuple(result.answer.get("features", ()))
    if result.end.outcome != "finished":
        features += ({"name": "all features", "works": False, "detail": result.end.reason},)
    advice = (result.answer.get("why_no_gpu"), fingerprint.framework_mismatch())
    return Examination(
        device=name,
        simulated=simulated,
        features=features,
        fingerprint=_examined_fingerprint(result.answer, name, simulated),
        advice=tuple(text for text in advice if text),
    )


def _examined_fingerprint(answer: dict[str, Any], name: str, simulated: bool) -> Fingerprint:
    """The worker's, which had the CUDA libraries loaded; this process's if that one did not get so far."""
    if "fingerprint" in answer:
        return msgspec.convert(answer["fingerprint"], Fingerprint)
    return fingerprint.collect(simulated=simulated, device_name=name)


# --- workers --------------------------------------------------------------------------------------


def _work(job: Job, run: Run, stage: str, workload: Path, options: Options) -> WorkerResult:
    result = run_worker(
        job, stage=stage, workload=workload, limit_s=options.limit_s, on_progress=options.on_progress
    )
    if result.bug:
        (run.folder / BUG_FILE).write_text(result.bug)
    return result


def _raise_failure(result: WorkerResult, run: Run, stage: str) -> None:
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
