"""The profile stage in its worker: requests timed without a recorder, then recorded with one."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from cudagraph_gate import fingerprint
from cudagraph_gate.device import Device
from cudagraph_gate.errors import DeviceError, WorkloadError
from cudagraph_gate.evidence import TIMELINE_FILE, Run
from cudagraph_gate.model import ProfileTimes
from cudagraph_gate.pilot.between import BUDGET_S, Between, Pause
from cudagraph_gate.pilot.digests import digest
from cudagraph_gate.pilot.jobs import ProfileJob
from cudagraph_gate.pilot.marking import with_requests
from cudagraph_gate.pilot.measure import Request, Sample, normal_request, requests_for, timed
from cudagraph_gate.pilot.session import Inputs, Session, build, load
from cudagraph_gate.pilot.trial_log import ProgressSink
from cudagraph_gate.stats import distribution
from cudagraph_gate.timeline.recorder import Recorder, open_recorder
from cudagraph_gate.timeline.table import REQUEST_DOMAIN, REQUEST_RANGE, Timeline, save
from cudagraph_gate.workload import model_version, user_error

STEPS: Final = 5
"""Loading, building, timing, recording, writing: what the progress bar counts."""
WARM_UP_REQUESTS: Final = 10
TIMED_NS: Final = 1_000_000_000
"""Enough requests for stable medians, short enough not to be noticed."""
TIMED_REQUESTS: Final = (20, 200)
RECORDED_REQUESTS: Final = 30
"""Each is a few hundred operations: enough to see what varies, small on disk."""
STILL_THERE_NS: Final = 5_000_000_000
"""How often a long recording says that it goes on, so that it is not taken for a hang."""
NS_PER_S: Final = 1_000_000_000
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
    recorder = open_recorder(loaded.device, "full", run.folder)  # before the process's first NVTX call
    try:
        report.progress(f"{name}: building", done=1, total=STEPS)
        session, first = build(loaded, name, job.seed)
        _record(run, session, first, recorder, job, report, tuple(loaded.shapes))
        session.teardown()
    except DeviceError as error:
        raise _device_failure(error, loaded.workload.folder) from error


def _record(
    run: Run,
    session: Session,
    first: Inputs,
    recorder: Recorder,
    job: ProfileJob,
    report: ProgressSink,
    shapes: tuple[str, ...],
) -> None:
    session, cold_ns = _cold_request(session, first)
    input_sets = session.input_sets(job.seed)
    with session.blaming_user():
        request = normal_request(session)
        # Half of the budget is left for the recorded requests, which are to follow it too.
        prepare = Between(session, BUDGET_S / 2).prepare()
        timed(session.device, request, input_sets, WARM_UP_REQUESTS, prepare=prepare)
        report.progress(f"{session.shape_name}: timing requests", done=2, total=STEPS)
        count = _count(session.device, request, input_sets)
        unrecorded = timed(session.device, request, input_sets, count, prepare=prepare)
        copy_in_ns = _copy_in(session, input_sets)

        def still_there() -> None:
            report.progress(f"{session.shape_name}: recording", phase="recording", done=3, total=STEPS)

        still_there()
        timeline, recorded = _recorded(session, recorder, request, input_sets, job, still_there)
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
    session: Session,
    recorder: Recorder,
    request: Request,
    input_sets: Sequence[Inputs],
    job: ProfileJob,
    still_there: Callable[[], None],
) -> tuple[Timeline, Sample]:
    device = session.device

    def marked(inputs: Inputs) -> None:
        with device.annotate(REQUEST_RANGE, domain=REQUEST_DOMAIN):
            request(inputs)

    # Outside the marked requests: what ``between`` takes is nobody's request.
    prepare = Between(session, BUDGET_S / 2).prepare()
    device.synchronize()
    recorder.start()
    timed(device, request, input_sets, RECORDER_WARM_UP, prepare=prepare)
    sample = _requests_to_record(device, marked, input_sets, job, still_there, prepare)
    device.synchronize()
    timeline = recorder.stop()
    return (_marked_by_user(timeline, job.range_name) if job.range_name else timeline), sample


def _marked_by_user(timeline: Timeline, range_name: str) -> Timeline:
    """Requests are the user's own ranges, those of the warm-up left out."""
    warm_ns = timeline.requests()["start_ns"].min()
    ranges = timeline.ranges[timeline.ranges["start_ns"] >= warm_ns].reset_index(drop=True)
    return with_requests(replace(timeline, ranges=ranges), range_name)


def _requests_to_record(
    device: Device,
    request: Request,
    input_sets: Sequence[Inputs],
    job: ProfileJob,
    still_there: Callable[[], None],
    prepare: Pause | None,
) -> Sample:
    """Run as many requests as the job says: a number, or those that begin within its duration.

    The duration counts on the device's clock and on the wall clock: the simulated device's runs faster.
    """
    most = job.iterations or (RECORDED_REQUESTS if job.duration_s is None else sys.maxsize)
    batch = RECORDED_REQUESTS if job.duration_s is None else 1
    limit_ns = sys.maxsize if job.duration_s is None else round(job.duration_s * NS_PER_S)
    start, wall = device.clock_ns(), time.perf_counter_ns()
    latencies: list[int] = []
    cpu_ns, told = 0, wall
    while len(latencies) < most and max(device.clock_ns() - start, time.perf_counter_ns() - wall) < limit_ns:
        first = len(latencies) % len(input_sets)
        turned = [*input_sets[first:], *input_sets[:first]]
        sample = timed(device, request, turned, min(batch, most - len(latencies)), prepare=prepare)
        latencies += sample.latencies_ns
        cpu_ns += sample.cpu_ns
        if time.perf_counter_ns() - told > STILL_THERE_NS:
            told = time.perf_counter_ns()
            still_there()
    return Sample(tuple(latencies), cpu_ns)


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
            model_version=model_version(session.workload),
        )
    )


def _device_failure(error: DeviceError, folder: Path) -> WorkloadError:
    failed = user_error(error, folder, "the normal path")
    return WorkloadError(
        f"the normal path failed on the device: {error}",
        where=failed.where,
        hint="it has to run without a graph first",
    )
