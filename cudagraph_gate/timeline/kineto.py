"""Traces of torch.profiler (Kineto's Chrome-trace JSON) as timelines.

Read are the files of 2020 to 2026: plain or gzipped, an object or an array, whole or fractional µs, CUDA or
HIP. What can't be read is said in ``meta.problems``; records that may be missing count as dropped, so that no
idle time is claimed of them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from cudagraph_gate.errors import EvidenceError
from cudagraph_gate.timeline.kineto_checks import (
    filled,
    launches_without_operation,
    together,
    without_operations,
)
from cudagraph_gate.timeline.kineto_frames import Frames
from cudagraph_gate.timeline.kineto_rows import BAD_NUMBER, NO_EVENT, OPERATION_TABLES, Columns
from cudagraph_gate.timeline.kineto_stream import NOT_UTF8, EventStream
from cudagraph_gate.timeline.table import Timeline, TimelineMeta

__all__ = ["SOURCE", "read_kineto"]

SOURCE: Final = "torch.profiler (Kineto JSON)"
WHOLE_US_NS: Final = 1000
"""Resolution of files that hold whole µs."""
LARGEST_INT64: Final = 2**63 - 1


def read_kineto(path: Path) -> Timeline:
    """Read one file. Operations, calls and ranges are in order of their start.

    Times are ns since the epoch where the file says its base, else since whatever it counts from. Raises
    EvidenceError with the reason where the file can't be opened, is no Kineto trace or holds no event.
    """
    stream, columns = EventStream(path), Columns()
    for events in stream:
        columns.add(events)
    columns.close()
    if not columns.any_events:
        raise EvidenceError(_nothing_read(stream, columns), where=str(path))
    frames = Frames(columns)
    made = Timeline(
        meta=TimelineMeta(source=SOURCE, level="light" if frames.calls.empty else "full"),
        operations=frames.operations,
        calls=frames.calls,
        ranges=frames.ranges,
        overheads=frames.overheads,
    )
    timeline, jumped = together(made)
    found = (
        jumped,
        launches_without_operation(timeline, frames.shared),
        without_operations(timeline, columns.categories),
    )
    problems = [*_lost_events(stream, columns), *_ambiguous(frames.ambiguous)]
    problems += [line for finding in found for line in finding.problems]
    base_ns, resolution_ns = _clock(timeline, stream, columns, problems)
    meta = msgspec.structs.replace(
        timeline.meta,
        resolution_ns=resolution_ns,
        dropped_records=_lost_records(stream, columns) + sum(finding.lost for finding in found),
        problems=tuple(problems),
    )
    return _shifted(replace(timeline, meta=meta), base_ns)


# --- one file -------------------------------------------------------------------------------------
def _nothing_read(stream: EventStream, columns: Columns) -> str:
    found = _lost_events(stream, columns)
    return "nothing in the trace can be read" + (f" ({'; '.join(found)})" if found else ": it has no events")


def _lost_events(stream: EventStream, columns: Columns) -> list[str]:
    lines = [stream.ending] if stream.ending else []
    lines += [f"{count} {reason}" for reason, count in stream.lost.items()]
    lines += [f"{count} {table} {reason}" for (table, reason), count in sorted(columns.lost.items()) if count]
    return lines


def _lost_records(stream: EventStream, columns: Columns) -> int:
    """How many records may be missing among the operations; a file that ends early lacks at least one."""
    unreadable = sum(count for reason, count in stream.lost.items() if reason != NOT_UTF8)
    left_out = sum(
        count
        for (table, reason), count in columns.lost.items()
        if reason == NO_EVENT or (table in OPERATION_TABLES and reason != BAD_NUMBER)
    )
    return unreadable + left_out + bool(stream.ending)


def _ambiguous(count: int) -> list[str]:
    if not count:
        return []
    return [f"{count} operations carry a correlation that several processes used: their call is not known"]


def _clock(timeline: Timeline, stream: EventStream, columns: Columns, problems: list[str]) -> tuple[int, int]:
    """What to add to the file's times, and their resolution, in ns."""
    base_ns = stream.base_ns
    latest = max((int(rows["end_ns"].max()) for rows in filled(timeline)), default=0)
    if latest + base_ns > LARGEST_INT64:
        problems.append("the time that the file counts from is out of range and left out")
        base_ns = 0
    if not columns.fractional and not base_ns:
        return base_ns, WHOLE_US_NS
    # The file's own step is 1 ns; on the epoch (1.7e15 µs) a double can't hold it: its step is 250 ns there.
    return base_ns, max(1, round(float(np.spacing(columns.latest_us)) * 1000))


def _shifted(timeline: Timeline, base_ns: int) -> Timeline:
    if not base_ns:
        return timeline
    for rows in filled(timeline):
        for name in ("start_ns", "end_ns"):
            rows[name] += base_ns
    return timeline
