"""The normal path in an HTML report: where its time goes, with pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from cudagraph_gate.gates.trial_view import Evidence
from cudagraph_gate.gates.wording import duration, percent
from cudagraph_gate.model import (
    Cause,
    DeviceIdle,
    Diagnosis,
    Histogram,
    HostWork,
    NotMeasured,
    QueueDepth,
    Segment,
)
from cudagraph_gate.report.console_diagnosis import (
    IDLE_HEAD,
    RANGE_HEAD,
    host_work_text,
    idle_rows,
    idle_shares,
    launch_rows,
    prediction_rows,
    range_rows,
    submission_rows,
    times_rows,
)
from cudagraph_gate.report.console_segments import (
    MAP_HEAD,
    SEGMENT_HEAD,
    map_row,
    segment_notes,
    segment_rows,
)
from cudagraph_gate.report.html_pieces import WIDTH, escaped, rows_of, table_of

BARS_HEIGHT: Final = 120
"""Height of a picture of bars, in SVG units."""
MAPPED_PARTS: Final = 200
"""Parts of a segment map in the page: more make it slow to read; all are in diagnosis.json."""

_COLOURS: Final = {
    "busy": "#2f855a",
    Cause.HOST_WORK: "#dd6b20",
    Cause.HOST_API: "#e53e3e",
    Cause.LAUNCH_LATENCY: "#d69e2e",
    Cause.SYNC: "#805ad5",
    Cause.DEPENDENCY: "#3182ce",
    Cause.GRAPH_GAP: "#319795",
    Cause.NO_REQUEST: "#a0aec0",
    Cause.PROFILER: "#b83280",
    Cause.RAMP: "#718096",
    Cause.UNKNOWN: "#4a5568",
}


def diagnosis_parts(evidence: Evidence) -> Iterable[str]:
    """The sections of the normal path; none if the run has no diagnosis."""
    found = evidence.diagnosis
    if found is None:
        return
    yield f"<p>{escape(found.conclusion)}</p>"
    yield from (f"<p>problem: {escape(problem)}</p>" for problem in found.problems)
    yield from (_idle(device) for device in found.devices)
    yield from _segments(found.segments)
    if found.ranges:
        yield "<h2>User ranges</h2>" + table_of(RANGE_HEAD, map(escaped, range_rows(found.ranges)))
    yield from _submission(found)
    if evidence.profile is not None:
        yield f"<h2>Normal path, shape {escape(evidence.profile.shape)}</h2>"
        yield rows_of(times_rows(evidence.profile))
    yield "<h2>Prediction</h2>" + _prediction(found)


def _prediction(found: Diagnosis) -> str:
    if isinstance(found.prediction, NotMeasured):
        return f"<p>no prediction: {escape(found.prediction.reason)}</p>"
    return rows_of(prediction_rows(found.prediction))


def _idle(device: DeviceIdle) -> str:
    title = f"<h2>GPU time, device {device.device} of process {device.process}</h2>"
    if isinstance(device.idle_ns, NotMeasured):
        return f"{title}<p>idle is not measurable: {escape(device.idle_ns.reason)}</p>"
    shares = [part for part in idle_shares(device) if part[1] > 0]
    rows = [
        [
            f'<span class="swatch" style="background:{_COLOURS[name]}"></span>{name}',
            duration(ns),
            percent(share),
        ]
        for name, ns, share in shares
    ]
    work = device.host_work
    note = f"<p>{escape(host_work_text(work))}</p>" if isinstance(work, HostWork) else ""
    longest = table_of(IDLE_HEAD, map(escaped, idle_rows(device)))
    table = table_of(("cause", "time", "of the window"), rows)
    return f"{title}{idle_bar(shares)}{table}{note}<h3>Longest idle</h3>{longest}"


def idle_bar(shares: Sequence[tuple[str, int, float]]) -> str:
    """A stacked bar of the window; each piece as wide as its share."""
    pieces, left = [], 0.0
    for name, ns, share in shares:
        label = f"<title>{name} {duration(ns)}, {percent(share)}</title>"
        pieces.append(
            f'<rect x="{left:.2f}" y="0" width="{share * WIDTH:.2f}" height="36" fill="{_COLOURS[name]}">'
            f"{label}</rect>"
        )
        left += share * WIDTH
    return f'<svg viewBox="0 0 {WIDTH} 36" role="img" aria-label="GPU time by cause">{"".join(pieces)}</svg>'


# --- segments -------------------------------------------------------------------------------------


def _segments(segments: Sequence[Segment] | NotMeasured) -> Iterable[str]:
    yield "<h2>Repeating segments</h2>"
    if isinstance(segments, NotMeasured):
        yield f"<p>{escape(segments.reason)}</p>"
        return
    if not segments:
        yield "<p>No sequence of operations repeats often enough to be a graph.</p>"
        return
    yield table_of(SEGMENT_HEAD, map(escaped, segment_rows(segments)))
    yield from (f"<p>{escape(note)}</p>" for note in segment_notes(segments))
    yield f"<h2>Map of segment {segments[0].number}</h2>"
    parts = segments[0].map.nodes
    yield table_of(MAP_HEAD, (escaped(map_row(node)) for node in parts[:MAPPED_PARTS]))
    if len(parts) > MAPPED_PARTS:
        yield f'<p class="note">{len(parts) - MAPPED_PARTS} more parts are in diagnosis.json</p>'


# --- submission -----------------------------------------------------------------------------------


def _submission(found: Diagnosis) -> Iterable[str]:
    yield "<h2>Submission</h2>" + rows_of(submission_rows(found)) + rows_of(launch_rows(found))
    for thread in found.launches.threads:
        if isinstance(thread.histogram, Histogram):
            title = f"Submission gaps of thread {thread.thread}, process {thread.process}"
            yield f"<h2>{title}</h2>{histogram_picture(thread.histogram)}"
    if isinstance(found.launches.queue_depth, QueueDepth):
        yield "<h2>Queue depth over the window</h2>" + depth_picture(found.launches.queue_depth)


def histogram_picture(histogram: Histogram) -> str:
    """How many gaps are how long, as bars."""
    labels = [f"from {duration(lower)}: {count}" for lower, count in zip(*_buckets(histogram), strict=True)]
    ends = (f"from {duration(histogram.lower_ns[0])}", f"from {duration(histogram.lower_ns[-1])}")
    return bars(histogram.counts, labels, "submission gaps by length", *ends)


def _buckets(histogram: Histogram) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return histogram.lower_ns, histogram.counts


def depth_picture(depth: QueueDepth) -> str:
    """Mean queue depth in each part of the window, as bars."""
    labels = [f"{value:.2f}" for value in depth.over_time]
    return bars(depth.over_time, labels, "queue depth over time", "start of the window", "its end")


def bars(heights: Sequence[float], labels: Sequence[str], name: str, first: str, last: str = "") -> str:
    """Bars from left to right, the tallest as high as the picture, each with its label to point at.

    ``first`` and ``last`` stand below the ends of the axis, the tallest height at the top.
    """
    tallest = max(heights, default=0) or 1
    width = WIDTH / max(len(heights), 1)
    drawn = []
    for index, (height, label) in enumerate(zip(heights, labels, strict=True)):
        tall = height / tallest * BARS_HEIGHT
        drawn.append(
            f'<rect x="{index * width:.2f}" y="{BARS_HEIGHT - tall:.2f}" width="{max(width - 1, 0.5):.2f}" '
            f'height="{tall:.2f}" fill="#3182ce"><title>{escape(label)}</title></rect>'
        )
    axis = f'<line class="axis" x1="0" y1="{BARS_HEIGHT}" x2="{WIDTH}" y2="{BARS_HEIGHT}"/>'
    below = f'y="{BARS_HEIGHT + 16}"'
    ends = f'<text x="0" {below}>{escape(first)}</text>'
    ends += f'<text x="{WIDTH}" {below} text-anchor="end">{escape(last)}</text>'
    ends += f'<text x="{WIDTH}" y="12" text-anchor="end">highest {max(heights, default=0):,.5g}</text>'
    return (
        f'<svg viewBox="0 0 {WIDTH} {BARS_HEIGHT + 20}" role="img" aria-label="{escape(name)}">'
        f"{''.join(drawn)}{axis}{ends}</svg>"
    )
