"""The profile stage in its worker: requests timed without a recorder, then recorded with one."""

from __future__ import annotations

import runpy
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cudagraph_gate import fingerprint
from cudagraph_gate.device import Device, open_device
from cudagraph_gate.errors import DeviceError, WorkloadError
from cudagraph_gate.evidence import TIMELINE_FILE, Run
from cudagraph_gate.model import ProfileTimes
from cudagraph_gate.pilot.correctness import digest
from cudagraph_gate.pilot.jobs import ProfileJob, ScriptJob
from cudagraph_gate.pilot.measure import Request, Sample, normal_request, requests_for, timed
from cudagraph_gate.pilot.session import Inputs, Session, build, load
from cudagraph_gate.pilot.trial_log import ProgressSink
from cudagraph_gate.stats import distribution
from cudagraph_gate.timeline.recorder import Recorder, open_recorder
from cudagraph_gate.timeline.table import REQUEST_DOMAIN, REQUEST_RANGE, Timeline, save
from cudagraph_gate.workload import user_error

STEPS: Final = 5
"""Loading, building, timing, recording, writing: what the progress bar counts."""
WARM_UP_REQUESTS: Final = 10
TIMED_NS: Final = 1_000_000_000
"""Enough requests for stable medians, short enough not to be noticed."""
TIMED_REQUESTS: Final = (20, 200)
RECORDED_REQUESTS: Final = 30
"""Each is a few hundred operations: enough to see what varies, small on disk."""
RECORDER_WARM_UP: Final = 3
"""The first requests after switching a recorder on pay for its buffers (0.15 s on the H200)."""


def record_workload(job: ProfileJob, report: ProgressSink) -> None:
    """Fingerprint, request times and timeline of the first shape, into the run folder.

    Raises WorkloadError where the workload fails, NoDeviceError where nothing can be recorded.
    """
    run = Run(Path(job.folder))
    report.progress("loading the workload")
    loaded = load(job.workload, job.device, job.shapes)
    name = next(iter(loaded.shapes))
    recorder = open_recorder(loaded.device, "full")  # before the process's first NVTX call
    try:
        report.progress(f"{name}: building", done=1, total=STEPS)
        session, first = build(loaded, name, job.seed)
        _record(run, session, first, recorder, job.seed, report, tuple(loaded.shapes))
        session.teardown()
    except DeviceError as error:
        raise _device_failure(error, loaded.workload.folder) from error


def _record(
    run: Run,
    session: Session,
    first: Inputs,
    recorder: Recorder,
    seed: int,
    report: ProgressSink,
    shapes: tuple[str, ...],
) -> None:
    session, cold_ns = _cold_request(session, first)
    input_sets = session.input_sets(seed)
    with session.blaming_user():
        request = normal_request(session)
        timed(session.device, request, input_sets, WARM_UP_REQUESTS)
        report.progress(f"{session.shape_name}: timing requests", done=2, total=STEPS)
        count = _count(session.device, request, input_sets)
        unrecorded = timed(session.device, request, input_sets, count)
        copy_in_ns = _copy_in(session, input_sets)
        report.progress(f"{session.shape_name}: recording", done=3, total=STEPS)
        timeline, recorded = _recorded(session, recorder, request, input_sets)
    report.progress(f"{session.shape_name}: writing the timeline", done=4, total=STEPS)
    write_fingerprint(run, session, first, shapes)  # first: without it, nothing says what the rest is of
    run.write(
        ProfileTimes(
            shape=session.shape_name,
            shape_value=repr(session.shape),
            cold_ns=cold_ns,
            latency=distribution(unrecorded.latencies_ns),
            cpu_ns=unrecorded.cpu_ns // count,
            recorded_latency=distribution(recorded.latencies_ns),
            copy_in_ns=copy_in_ns,
            input_bytes=_input_bytes(session, first),
            iterations=count,
        )
    )
    with run.replacing(TIMELINE_FILE) as path:
        save(timeline, path)


def _cold_request(session: Session, first: Inputs) -> tuple[Session, int]:
    device = session.device
    start = device.clock_ns()
    outputs = session.call(first)
    device.synchronize()
    cold_ns = device.clock_ns() - start
    return session.with_outputs(first, outputs), cold_ns


def _count(device: Device, request: Request, input_sets: Sequence[Inputs]) -> int:
    fewest, most = TIMED_REQUESTS
    return min(most, max(fewest, requests_for(device, request, input_sets, TIMED_NS // 5) * 5))


def _copy_in(session: Session, input_sets: Sequence[Inputs]) -> int:
    """Median ns that copying a request's inputs into static buffers adds before a replay."""
    adapter = session.adapter
    updatable = session.updatable()
    static = tuple(
        adapter.static_like(value) for value, moves in zip(input_sets[0], updatable, strict=True) if moves
    )

    def copy(inputs: Inputs) -> None:
        moving = (value for value, moves in zip(inputs, updatable, strict=True) if moves)
        for target, source in zip(static, moving, strict=True):
            adapter.copy_into(target, source)
        adapter.synchronize()

    def nothing(inputs: Inputs) -> None:
        del inputs
        adapter.synchronize()

    timed(session.device, copy, input_sets, 3)
    copying = timed(session.device, copy, input_sets, 50)
    idle = timed(session.device, nothing, input_sets, 50)
    return max(0, _median(copying) - _median(idle))


def _median(sample: Sample) -> int:
    return round(statistics.median(sample.latencies_ns))


def _recorded(
    session: Session, recorder: Recorder, request: Request, input_sets: Sequence[Inputs]
) -> tuple[Timeline, Sample]:
    device = session.device

    def marked(inputs: Inputs) -> None:
        with device.annotate(REQUEST_RANGE, domain=REQUEST_DOMAIN):
            request(inputs)

    device.synchronize()
    recorder.start()
    timed(device, request, input_sets, RECORDER_WARM_UP)
    sample = timed(device, marked, input_sets, RECORDED_REQUESTS)
    device.synchronize()
    return recorder.stop(), sample


def _input_bytes(session: Session, first: Inputs) -> dict[str, int]:
    return {
        name: session.adapter.nbytes(value) for name, value in zip(session.input_names, first, strict=True)
    }


def write_fingerprint(run: Run, session: Session, first: Inputs, shapes: tuple[str, ...]) -> None:
    """The environment as it is now that all libraries are loaded."""
    digests = {
        name: digest(session.adapter.to_host(value))
        for name, value in zip(session.input_names, first, strict=True)
    }
    run.write(
        fingerprint.collect(
            simulated=session.device.simulated,
            device_name=session.device.name,
            workload=session.workload.path,
            shapes=shapes,
            input_digests=digests,
        )
    )


def _device_failure(error: DeviceError, folder: Path) -> WorkloadError:
    failed = user_error(error, folder, "the normal path")
    return WorkloadError(
        f"the normal path failed on the device: {error}",
        where=failed.where,
        hint="it has to run without a graph first",
    )


# --- scripts --------------------------------------------------------------------------------------


def record_script(job: ScriptJob, report: ProgressSink) -> None:
    """Run a script with its arguments under the recorder.

    Raises WorkloadError when the script fails; what it did until then is recorded all the same.
    """
    run = Run(Path(job.folder))
    device = open_device("cuda")
    recorder = open_recorder(device, "full")
    script = Path(job.script)
    report.progress(f"running {script.name}")
    recorder.start()
    failure = _run_script(script, job.arguments)
    try:
        device.synchronize()
    except DeviceError as error:
        failure = failure or _device_failure(error, script.parent)
    timeline = recorder.stop()
    report.progress("writing the timeline")
    with run.replacing(TIMELINE_FILE) as path:
        save(timeline, path)
    run.write(fingerprint.collect(simulated=False, device_name=device.name))
    if failure is not None:
        raise failure


def _run_script(script: Path, arguments: Sequence[str]) -> WorkloadError | None:
    """Run it as ``python script.py arguments``; returns its failure, if it failed."""
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code in (None, 0):
            return None
        return WorkloadError(f"the script ended with exit code {end.code}", where=script.name)
    except Exception as error:  # noqa: BLE001  (any failure of the user's script is the answer)
        return user_error(error, script.resolve().parent, "the script")
    return None
