"""The profile stage: record a workload or a script, and diagnose the recording."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cudagraph_gate.errors import CgateError, EvidenceError, NoDeviceError, UsageError
from cudagraph_gate.evidence import TIMELINE_FILE, Run, create_run, missing
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.pilot.jobs import Job, ProfileJob, Progress, ScriptJob
from cudagraph_gate.pipeline.options import Options
from cudagraph_gate.pipeline.workers import absolute, discard_if_empty, raise_failure, refuse_trace, work
from cudagraph_gate.workload import is_module_workload

if TYPE_CHECKING:
    from cudagraph_gate.timeline.table import Timeline

NO_REQUEST_TIMES: Final = "a trace holds no request times without its recorder"


class Interrupted(KeyboardInterrupt):
    """The user ended a script while it was recorded; ``run`` holds what was recorded until then."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run


def profile(workload: Path, arguments: tuple[str, ...], options: Options) -> Run:
    """Record a workload, or a whole script with its arguments, and diagnose what was recorded.

    Raises WorkloadError where it fails, NoDeviceError where nothing can be recorded; what was recorded
    until then stays in the run folder. Raises Interrupted where the user ended a script early.
    """
    refuse_trace(workload)
    module = is_module_workload(workload)
    _refuse_misplaced(workload, arguments, options, module=module)
    run = create_run(str(workload), "module" if module else "script", options.device, root=options.root)
    job = _module_job(run, workload, options) if module else _script_job(run, workload, arguments, options)
    try:
        result = work(job, run, "profile", workload, options)
    except KeyboardInterrupt:
        discard_if_empty(run)
        raise
    if isinstance(result.error, UsageError | NoDeviceError):
        discard_if_empty(run)
        raise _for_script(result.error) if isinstance(job, ScriptJob) else result.error
    if result.end.outcome != "finished":
        run.append(result.end)
    if run.timeline_path.exists():
        diagnose_run(run)
    if result.interrupted:
        raise Interrupted(run)
    raise_failure(result, run, "profile")
    return run


def _refuse_misplaced(workload: Path, arguments: tuple[str, ...], options: Options, *, module: bool) -> None:
    """What was given for a script but only means something for a module, or the other way round."""
    if module and arguments:
        raise UsageError(
            f"{workload.name} defines build: it takes no arguments", hint="arguments are for scripts"
        )
    if module and options.trace_children:
        raise UsageError("--trace-children is for scripts", hint="a step runs in the worker itself")
    if module:
        return
    hint = f"{workload.name} has no build(shape), so it is a script"
    if options.device == "simulated":
        raise UsageError("a script can't run on the simulated device", hint=hint)
    if options.shapes is not None:
        raise UsageError("a script has no shapes", hint=hint)
    if options.iterations is not None and not options.range_name:
        raise UsageError(
            "--iterations of a script needs --range", hint="name the NVTX range that is one iteration"
        )


def _module_job(run: Run, workload: Path, options: Options) -> Job:
    return ProfileJob(
        folder=absolute(run),
        workload=str(workload),
        device=options.device,
        shapes=options.shapes,
        seed=options.seed,
        duration_s=options.duration_s,
        iterations=options.iterations,
        range_name=options.range_name,
    )


def _script_job(run: Run, script: Path, arguments: tuple[str, ...], options: Options) -> Job:
    return ScriptJob(
        folder=absolute(run),
        script=str(script),
        arguments=arguments,
        duration_s=options.duration_s,
        iterations=options.iterations,
        range_name=options.range_name,
        trace_children=options.trace_children,
    )


def _for_script(error: CgateError) -> CgateError:
    hint = (
        "install the NVIDIA driver, or record it elsewhere by torch.profiler or Nsight Systems and read the "
        "trace here: cgate profile --from FILE"
    )
    return type(error)(error.what, where=error.where, hint=hint)


def import_trace(source: Path, options: Options) -> Run:
    """Read a trace that another recorder made, and diagnose it; needs no GPU.

    Raises EvidenceError where nothing of it can be read, UsageError where no range has the name asked for.
    """
    from cudagraph_gate.diagnosis import diagnose
    from cudagraph_gate.timeline.importing import read_trace
    from cudagraph_gate.timeline.table import save

    options.on_progress(Progress(text=f"reading {source.name}", done=0, total=3))
    timeline = read_trace(source)
    if timeline.operations.empty:
        why = timeline.meta.problems[0] if timeline.meta.problems else "it holds no GPU operation"
        raise EvidenceError(f"no GPU work to analyse: {why}", where=source.name)
    timeline = _with_requests(timeline, options.range_name)
    run = create_run(str(source), "trace", "none", root=options.root)
    options.on_progress(Progress(text="writing the timeline", done=1, total=3))
    with run.replacing(TIMELINE_FILE) as path:
        save(timeline, path)
    options.on_progress(Progress(text="diagnosing", done=2, total=3))
    run.write(diagnose(timeline, NotMeasured(reason=NO_REQUEST_TIMES)))
    return run


def _with_requests(timeline: Timeline, range_name: str) -> Timeline:
    """The timeline with its requests marked by the ranges of that name. Raises UsageError without any."""
    if not range_name:
        return timeline
    from cudagraph_gate.pilot.marking import with_requests

    marked = with_requests(timeline, range_name)
    if not marked.meta.request_range:
        names = list(timeline.ranges["name"].cat.categories)
        near = difflib.get_close_matches(range_name, names, n=3, cutoff=0.3) or names[:3]
        raise UsageError(
            f"the trace has no range called {range_name}",
            hint=f"it has {', '.join(near)}" if near else "it has no ranges at all",
        )
    return marked


def diagnose_run(run: Run) -> None:
    """Analyse the run's timeline again and write the diagnosis."""
    from cudagraph_gate.diagnosis import diagnose  # here: commands without a timeline start twice as fast
    from cudagraph_gate.timeline.table import load

    run.write(diagnose(load(run.timeline_path), run.profile() or missing("request times")))
