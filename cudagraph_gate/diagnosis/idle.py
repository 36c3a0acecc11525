"""Busy and idle time of each device of each process, every idle nanosecond with its cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.causes import CAUSES, CausedPieces, Enders, Host, attribute
from cudagraph_gate.diagnosis.intervals import (
    EARLIEST,
    Bools,
    Int64,
    Intervals,
    Window,
    clip,
    complement,
    expand,
    int64,
    overlap_ns,
    union,
)
from cudagraph_gate.diagnosis.submission import (
    BEGIN_NS,
    CALL_ROW,
    FINISH_NS,
    GRAPH_LAUNCH,
    NO_ROW,
    SUBMITTER,
    flags,
    ints,
    launch_keys,
    submission_known,
    touches,
)
from cudagraph_gate.model import Cause, DeviceIdle, IdleInterval, Measured, NotMeasured
from cudagraph_gate.timeline.table import KERNEL, REQUEST_DOMAIN, Timeline

TOP_IDLE: Final = 10
"""So many of the longest idle intervals are named: what a person reads, not a full list."""


@dataclass(frozen=True)
class IdleOfDevice:
    """The summary of one device, and its pieces where idle is measurable."""

    summary: DeviceIdle
    pieces: CausedPieces | None


def idle_of_devices(timeline: Timeline, operations: pd.DataFrame, window: Window) -> tuple[IdleOfDevice, ...]:
    """One result for each (process, device) that was busy in ``window``.

    ``operations`` come from ``operations_with_submission``. Raises AssertionError if busy time and causes
    do not add up to the window: a bug of ours.
    """
    found = []
    for _, group in operations.groupby(["process", "device"], sort=True):
        if len(_busy(group, window)):
            where = (int(group["process"].iloc[0]), int(group["device"].iloc[0]))
            found.append(_one_device(group, where, host_of(timeline, where[0]), window, timeline))
    return tuple(found)


def host_of(timeline: Timeline, process: int) -> Host:
    """The host side of one process."""
    ranges, overheads, requests = timeline.ranges, timeline.overheads, timeline.requests()
    overheads = overheads[overheads["process"] == process]
    marked = None if requests.empty else union(ints(requests, "start_ns"), ints(requests, "end_ns"))
    return Host(
        calls=timeline.calls[timeline.calls["process"] == process],
        ranges=ranges[(ranges["process"] == process) & (ranges["domain"] != REQUEST_DOMAIN)],
        overheads=union(ints(overheads, "start_ns"), ints(overheads, "end_ns")),
        requests=marked,
    )


def why_not_measurable(timeline: Timeline, process: int) -> NotMeasured | None:
    """The reason why idle of a process can't be measured, if there is one."""
    dropped = timeline.meta.dropped_records
    if dropped > 0:
        return NotMeasured(reason=f"the recorder dropped {dropped} records: idle may be unrecorded work")
    missing = _graph_launches_without_operation(timeline, process)
    if missing:
        return NotMeasured(reason=f"{missing} graph launches have no recorded node: idle may be their work")
    return None


def _graph_launches_without_operation(timeline: Timeline, process: int) -> int:
    calls, operations = timeline.calls, timeline.operations
    launches = [name for name in calls["name"].cat.categories if GRAPH_LAUNCH in name]
    chosen = calls[(calls["process"] == process) & (calls["status"] == 0) & calls["name"].isin(launches)]
    given, wanted = launch_keys(operations, chosen)
    return int((~np.isin(wanted, given)).sum())


def _touching(operations: pd.DataFrame, window: Window) -> Bools:
    return touches(ints(operations, "start_ns"), ints(operations, "end_ns"), window)


def _one_device(
    operations: pd.DataFrame, where: tuple[int, int], host: Host, window: Window, timeline: Timeline
) -> IdleOfDevice:
    busy = _busy(operations, window)
    reason = why_not_measurable(timeline, where[0])
    if reason is not None:
        return IdleOfDevice(_summary(operations, where, window, busy, reason, {}, ()), None)
    running = operations[ints(operations, "start_ns") < ints(operations, "end_ns")]
    idle = complement(busy, window)
    pieces = attribute(idle, _enders(idle, running, window, timeline.calls), host)
    table = pieces.by_interval(len(idle))
    causes = {cause: int(total) for cause, total in zip(CAUSES, table.sum(axis=0), strict=True)}
    _check_sum(busy.length_ns, causes, window)
    top = tuple(_top_idle(idle, table, running, host, window))
    return IdleOfDevice(_summary(operations, where, window, busy, idle.length_ns, causes, top), pieces)


def _check_sum(busy_ns: int, causes: dict[Cause, int], window: Window) -> None:
    accounted, whole = busy_ns + sum(causes.values()), window[1] - window[0]
    if accounted != whole:
        raise AssertionError(f"busy and idle causes add up to {accounted} ns, the window has {whole} ns")


def _summary(
    operations: pd.DataFrame,
    where: tuple[int, int],
    window: Window,
    busy: Intervals,
    idle_ns: Measured,
    causes: dict[Cause, int],
    top: tuple[IdleInterval, ...],
) -> DeviceIdle:
    inside = operations[_touching(operations, window)]
    compute = inside["kind"].to_numpy() == KERNEL
    starts, ends = ints(inside, "start_ns"), ints(inside, "end_ns")
    durations = np.minimum(ends, window[1]) - np.maximum(starts, window[0])
    return DeviceIdle(
        process=where[0],
        device=where[1],
        window_ns=window[1] - window[0],
        busy_ns=busy.length_ns,
        sum_ns=int(durations.sum()),
        compute_ns=_busy(inside[compute], window).length_ns,
        copy_ns=_busy(inside[~compute], window).length_ns,
        idle_ns=idle_ns,
        causes=causes,
        operations=len(inside),
        streams=len(inside[["context", "stream"]].drop_duplicates()),
        top_idle=top,
    )


def _busy(operations: pd.DataFrame, window: Window) -> Intervals:
    return clip(union(ints(operations, "start_ns"), ints(operations, "end_ns")), window)


def _enders(idle: Intervals, running: pd.DataFrame, window: Window, calls: pd.DataFrame) -> Enders:
    """``running``: the device's operations that take time, in order of start, ties by correlation."""
    row = _ending_row(idle, running)
    ended_by = running.iloc[row]
    call = ints(ended_by, CALL_ROW)
    blocking = np.zeros(len(idle), dtype=np.bool_)
    blocking[call != NO_ROW] = flags(calls, "blocking")[call[call != NO_ROW]]
    return Enders(
        ramp=_is_ramp(idle, running, window),
        graph_gap=_in_graph(idle, running, row),
        known=submission_known(ended_by),
        begin=ints(ended_by, BEGIN_NS),
        finish=ints(ended_by, FINISH_NS),
        blocking=blocking,
        thread=ints(ended_by, SUBMITTER),
        stream_free=_end_before_on_stream(running)[row] < idle.starts,
    )


def _ending_row(idle: Intervals, running: pd.DataFrame) -> Int64:
    """Row of the operation that ends each idle interval; the last row stands in where none does (ramp)."""
    row = np.searchsorted(ints(running, "start_ns"), idle.ends, side="left")
    return int64(np.minimum(row, len(running) - 1))


def _is_ramp(idle: Intervals, running: pd.DataFrame, window: Window) -> Bools:
    inside = running[_touching(running, window)]
    first, last = np.min(ints(inside, "start_ns")), np.max(ints(inside, "end_ns"))
    return np.asarray((idle.ends <= first) | (idle.starts >= last), dtype=np.bool_)


def _in_graph(idle: Intervals, running: pd.DataFrame, row: Int64) -> Bools:
    """Whether an operation of the same graph launch ran up to the idle interval."""
    order = np.argsort(ints(running, "end_ns"), kind="stable")
    ends = ints(running, "end_ns")[order]
    first = np.searchsorted(ends, idle.starts, side="left")
    beyond = np.searchsorted(ends, idle.starts, side="right")
    gap, place = expand(int64(first), int64(beyond - first))
    before, after = order[place], row[gap]
    correlation, graph = ints(running, "correlation"), ints(running, "graph")
    same = (correlation[before] == correlation[after]) & (graph[after] != 0) & (graph[before] != 0)
    found = np.zeros(len(idle), dtype=np.bool_)
    found[gap[same]] = True
    return found


def _end_before_on_stream(running: pd.DataFrame) -> Int64:
    """For each operation, the latest end of the earlier ones on its stream."""
    streams = running.groupby(["context", "stream"], sort=False)
    code, reach = streams.ngroup().to_numpy(), int64(streams["end_ns"].cummax().to_numpy())
    order = np.argsort(code, kind="stable")
    before = np.full(len(running), EARLIEST, dtype=np.int64)
    same = code[order[1:]] == code[order[:-1]]
    before[order[1:][same]] = reach[order[:-1][same]]
    return before


def _top_idle(
    idle: Intervals, table: Int64, running: pd.DataFrame, host: Host, window: Window
) -> Iterator[IdleInterval]:
    longest = np.argsort(idle.starts - idle.ends, kind="stable")[:TOP_IDLE]
    row = _ending_row(idle, running)
    for index in longest:
        start, end = int(idle.starts[index]), int(idle.ends[index])
        ended_by = running.iloc[int(row[index])]
        is_ended = int(ended_by["start_ns"]) == end
        thread = int(ended_by[SUBMITTER]) if is_ended else 0
        yield IdleInterval(
            start_ns=start - window[0],
            duration_ns=end - start,
            cause=CAUSES[int(table[index].argmax())],
            next_operation=str(ended_by["name"]) if is_ended else "",
            host_call=_longest_call(host.calls_of(thread), start, end),
            range_name=_innermost(host.ranges_of(thread), start),
        )


def _longest_call(calls: pd.DataFrame, start: int, end: int) -> str:
    """The call that takes most of [start, end); of nested ones the outermost; empty if none."""
    interval = union(int64([start]), int64([end]))
    taken = overlap_ns(interval, ints(calls, "start_ns"), ints(calls, "end_ns"))
    if not taken.any():
        return ""
    most = calls[taken == np.max(taken)]
    outer = int(np.argmax(ints(most, "end_ns") - ints(most, "start_ns")))
    return str(most["name"].iloc[outer])


def _innermost(ranges: pd.DataFrame, moment: int) -> str:
    around = ranges[(ranges["start_ns"] <= moment) & (ranges["end_ns"] > moment)]
    if around.empty:
        return ""
    return str(around.sort_values(["start_ns", "end_ns"], ascending=[False, True]).iloc[0]["name"])
