"""Where the time of the normal path goes, for a terminal: what a person reads in a minute comes first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console

from cudagraph_gate.gates.wording import duration, percent, size
from cudagraph_gate.model import (
    SUBMISSION_CAUSES,
    DeviceIdle,
    Diagnosis,
    HostWork,
    HtaView,
    LaunchPhases,
    NotMeasured,
    Prediction,
    ProfileTimes,
    QueueDepth,
    RangeSummary,
)
from cudagraph_gate.report.console_pieces import (
    add_row,
    line,
    name_cell,
    or_reason,
    print_rows,
    shortened,
    simulated_line,
    table_of,
)
from cudagraph_gate.report.console_segments import print_segment_maps, print_segments

TOP_IDLE: Final = 5
"""Idle intervals shown: the longest ones explain most; all are in diagnosis.json."""
TOP_RANGES: Final = 8
"""User ranges shown, longest first; the others are in diagnosis.json."""
TOP_DEVICES: Final = 4
"""Devices shown with a table each; of the others only the busy share is said."""
TOP_SITES: Final = 3
"""Call sites shown for a blocking call."""


def print_diagnosis(
    console: Console, diagnosis: Diagnosis, times: ProfileTimes | None, *, details: bool = False
) -> None:
    """What limits the GPU, where its time goes, and what a graph is predicted to give.

    ``details`` adds what takes longer than a minute to read: launch phases and the segments' maps.
    """
    simulated_line(console, diagnosis.simulated)
    line(console, diagnosis.conclusion, "bold")
    if diagnosis.resolution_ns > 1:
        line(console, f"times resolve {duration(diagnosis.resolution_ns)}: shorter differences mean nothing")
    for device in diagnosis.devices[:TOP_DEVICES]:
        _print_device(console, device)
    _print_other_devices(console, diagnosis.devices[TOP_DEVICES:])
    print_segments(console, diagnosis.segments)
    if details:
        print_segment_maps(console, diagnosis.segments)
    _print_ranges(console, diagnosis.ranges)
    print_rows(console, "submission", submission_rows(diagnosis))
    if details:
        print_rows(console, "launches", launch_rows(diagnosis))
    if times is not None:
        print_rows(console, f"normal path, shape {times.shape}", times_rows(times))
    _print_prediction(console, diagnosis.prediction)
    for problem in diagnosis.problems:
        line(console, f"problem: {problem}", "yellow")


# --- GPU time -------------------------------------------------------------------------------------


def idle_shares(device: DeviceIdle) -> list[tuple[str, int, float]]:
    """Busy and each cause of idle with its ns and its share of the window, the largest cause first."""
    causes = sorted(device.causes.items(), key=lambda item: -item[1])
    parts = [("busy", device.busy_ns), *((str(cause), ns) for cause, ns in causes)]
    return [(name, ns, ns / device.window_ns if device.window_ns else 0.0) for name, ns in parts]


def _print_device(console: Console, device: DeviceIdle) -> None:
    title = f"GPU time, device {device.device} of process {device.process}"
    if isinstance(device.idle_ns, NotMeasured):
        line(console, f"{title}: busy {duration(device.busy_ns)} of {duration(device.window_ns)}")
        line(console, f"idle is not measurable: {device.idle_ns.reason}", "yellow")
        return
    table = table_of(title, ("cause", "ms", "% of window"), right=(1, 2))
    parts = [part for part in idle_shares(device) if part[0] == "busy" or part[1] > 0]
    for name, ns, share in parts:
        add_row(table, name, f"{ns / 1e6:.3f}", percent(share))
    table.add_section()
    whole = sum(ns for _, ns, _ in parts)
    add_row(table, "total", f"{whole / 1e6:.3f}", percent(sum(share for *_, share in parts)))
    console.print(table)
    if isinstance(device.host_work, HostWork):
        line(console, host_work_text(device.host_work))
    _print_top_idle(console, device)


def host_work_text(work: HostWork) -> str:
    """How the host's work divides into computing and waiting."""
    parts = [f"{duration(work.on_cpu_ns)} on the CPU", f"{duration(work.waiting_ns)} waiting"]
    if work.unsampled_ns:
        parts.append(f"{duration(work.unsampled_ns)} not sampled")
    return f"host_work: {', '.join(parts)}"


def _print_other_devices(console: Console, devices: Sequence[DeviceIdle]) -> None:
    for device in devices:
        share = percent(device.busy_ns / device.window_ns) if device.window_ns else "0 %"
        line(console, f"device {device.device} of process {device.process}: busy {share}")


def _print_top_idle(console: Console, device: DeviceIdle) -> None:
    if not device.top_idle:
        return
    table = table_of("longest idle", IDLE_HEAD, right=(0, 1))
    for at, lasted, cause, *names in idle_rows(device)[:TOP_IDLE]:
        add_row(table, at, lasted, cause, *map(name_cell, names))
    console.print(table)


IDLE_HEAD: Final = ("at ms", "idle", "cause", "next operation", "host call", "range")


def idle_rows(device: DeviceIdle) -> list[tuple[str, ...]]:
    """The longest idle intervals, as ``IDLE_HEAD`` names the columns."""
    return [
        (
            f"{idle.start_ns / 1e6:.3f}",
            duration(idle.duration_ns),
            str(idle.cause),
            shortened(idle.next_operation),
            idle.host_call,
            idle.range_name,
        )
        for idle in device.top_idle
    ]


# --- ranges ---------------------------------------------------------------------------------------


def range_rows(ranges: Sequence[RangeSummary]) -> list[tuple[str, ...]]:
    """Name, count, wall, busy share, submission idle share and launches of each range."""
    return [
        (
            found.name,
            str(found.count),
            duration(found.wall_ns),
            percent(found.busy_ns / found.wall_ns) if found.wall_ns else "–",
            _submission_share(found),
            str(found.submissions),
        )
        for found in ranges
    ]


RANGE_HEAD: Final = ("range", "count", "wall", "GPU busy", "submission idle", "launches")


def _submission_share(found: RangeSummary) -> str:
    if isinstance(found.idle, NotMeasured) or not found.wall_ns:
        return "–"
    return percent(sum(found.idle.by_cause.get(cause, 0) for cause in SUBMISSION_CAUSES) / found.wall_ns)


def _print_ranges(console: Console, ranges: Sequence[RangeSummary]) -> None:
    if not ranges:
        return
    table = table_of("user ranges", RANGE_HEAD, right=(1, 2, 3, 4, 5))
    for found, row in zip(ranges, range_rows(ranges[:TOP_RANGES]), strict=False):
        add_row(table, name_cell(found.name), *row[1:])
    console.print(table)
    if len(ranges) > TOP_RANGES:
        line(console, f"more ranges: {len(ranges) - TOP_RANGES}, in diagnosis.json")


# --- submission and launches ------------------------------------------------------------------------


def submission_rows(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """How work was submitted, in total and per request: what and its value."""
    launches, requests = diagnosis.launches, diagnosis.requests
    gap = launches.submission_gap
    rows = [
        ("submission calls", f"{launches.submissions}"),
        ("graph launches", f"{launches.graph_launches}"),
        ("submission gap P50", or_reason(gap if isinstance(gap, NotMeasured) else gap.p50)),
        ("TKLQT", or_reason(launches.tklqt_ns)),
    ]
    if isinstance(requests, NotMeasured):
        rows.append(("requests", or_reason(requests)))
    else:
        rows += [
            ("requests", f"{requests.count}"),
            ("submissions per request", f"{requests.submissions}"),
            ("operations per request", f"{requests.operations}"),
            ("blocking calls per request", f"{requests.blocking_calls}"),
            ("busy per request", duration(requests.busy_ns)),
            ("submission idle per request", or_reason(requests.submission_idle_ns)),
        ]
    for call in launches.blocking_calls:
        rows.append((f"blocking: {call.name}", f"{call.count} x, {duration(call.total_ns)}"))
        rows += [
            (f"  at {site.where}", f"{site.count} x, {duration(site.total_ns)}")
            for site in call.sites[:TOP_SITES]
        ]
    return rows


def launch_rows(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Launch phases, queue depth and the calls that submitted: what and its value."""
    launches = diagnosis.launches
    rows = [*_phase_rows(launches.phases), *_depth_rows(launches.queue_depth)]
    rows += [(call.name, f"{call.count} x, {duration(call.total_ns)}") for call in launches.by_call]
    for thread in launches.threads:
        gap = thread.gap
        value = f"{thread.submissions} submissions"
        if not isinstance(gap, NotMeasured):
            value += f", gap P50 {duration(gap.p50)}, P95 {duration(gap.p95)}, P99 {duration(gap.p99)}"
        rows.append((f"thread {thread.thread} of process {thread.process}", value))
    return rows


def _phase_rows(phases: LaunchPhases | NotMeasured) -> list[tuple[str, str]]:
    if isinstance(phases, NotMeasured):
        return [("launch phases", or_reason(phases))]
    queue = phases.queue
    queued = or_reason(queue) if isinstance(queue, NotMeasured) else duration(queue.p50)
    return [
        ("API time P50", duration(phases.api.p50)),
        (f"queue time P50 ({phases.queued} of {phases.launches} launches)", queued),
        ("kernel time P50", duration(phases.kernel.p50)),
    ]


def _depth_rows(depth: QueueDepth | NotMeasured) -> list[tuple[str, str]]:
    if isinstance(depth, NotMeasured):
        return [("queue depth", or_reason(depth))]
    return [
        ("queue depth, mean and maximum", f"{depth.mean:.1f}, {depth.maximum}"),
        ("nothing submitted", f"{percent(depth.empty_share)} of the window"),
    ]


# --- times and prediction -----------------------------------------------------------------------------


def times_rows(times: ProfileTimes) -> list[tuple[str, str]]:
    """Requests of the normal path without the recorder: what and its value."""
    quantiles = [
        (f"request {name.upper()}", duration(getattr(times.latency, name))) for name in ("p50", "p95", "p99")
    ]
    copied = f"{duration(times.copy_in_ns)} for {size(sum(times.input_bytes.values()))}"
    return [
        ("first request", duration(times.cold_ns)),
        *quantiles,
        ("CPU time per request", duration(times.cpu_ns)),
        ("recorder's inflation", _inflation(times)),
        ("copy of the inputs", copied),
    ]


def _inflation(times: ProfileTimes) -> str:
    if times.latency.p50 <= 0:
        return "not measured: the request time is zero"
    return f"{times.recorded_latency.p50 / times.latency.p50:.2f} x"


def _print_prediction(console: Console, prediction: Prediction | NotMeasured) -> None:
    if isinstance(prediction, NotMeasured):
        line(console, f"no prediction: {prediction.reason}", "yellow")
        return
    print_rows(console, "prediction", prediction_rows(prediction))


def prediction_rows(prediction: Prediction) -> list[tuple[str, str]]:
    """What a graph request would take and give: what and its value."""
    interval = f"{duration(prediction.replay_low_ns)} to {duration(prediction.replay_high_ns)}"
    return [
        ("normal request", duration(prediction.normal_ns)),
        ("replay", f"{duration(prediction.replay_ns)} ({interval})"),
        ("copy of the inputs", duration(prediction.copy_in_ns)),
        ("graph request", duration(prediction.request_ns)),
        ("gain", f"{percent(prediction.gain)} ({_gain_interval(prediction)})"),
        # Of a recorded request, which takes longer: the bound may exceed the normal request above.
        ("upper bound, recorder on", or_reason(prediction.upper_bound_ns)),
    ]


def _gain_interval(prediction: Prediction) -> str:
    if prediction.normal_ns <= 0:
        return "no interval"
    rest = prediction.request_ns - prediction.replay_ns
    ends = (prediction.replay_high_ns, prediction.replay_low_ns)
    return " to ".join(percent(1 - (rest + replay) / prediction.normal_ns) for replay in ends)


# --- other definitions ----------------------------------------------------------------------------------


def print_hta(console: Console, view: HtaView) -> None:
    """Idle of each stream, and the time of each device, as HolisticTraceAnalysis divides them."""
    head = ("process", "device", "stream", "idle", "host wait", "kernel wait", "other wait")
    table = table_of("idle by the definitions of HolisticTraceAnalysis", head, right=tuple(range(7)))
    for found in view.streams:
        waits = (found.idle_ns, found.host_wait_ns, found.kernel_wait_ns, found.other_wait_ns)
        add_row(table, str(found.process), str(found.device), str(found.stream), *map(duration, waits))
    console.print(table)
    for device in view.devices:
        parts = (device.compute_ns, device.non_compute_ns, device.idle_ns)
        shares = (percent(part / device.span_ns) if device.span_ns else "–" for part in parts)
        names = ("compute", "other operations", "idle")
        text = ", ".join(f"{name} {share}" for name, share in zip(names, shares, strict=True))
        line(console, f"device {device.device} of process {device.process}: {text}")
