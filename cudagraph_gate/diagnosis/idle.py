"""Busy and idle time of each device of each process, every idle nanosecond with its cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.causes import (
    CAUSES,
    CausedPieces,
    CausedPiecesUnderWay,
    Host,
    attribute,
    of_thread,
)
from cudagraph_gate.diagnosis.enders import Running, enders_of, running_in
from cudagraph_gate.diagnosis.submission import (
    BEGIN_NS,
    FINISH_NS,
    SUBMITTER,
    chosen,
    distinct,
    group_codes,
    ints,
    launch_keys,
    touches,
)
from cudagraph_gate.model import Cause, DeviceIdle, IdleInterval, Measured, NotMeasured
from cudagraph_gate.timeline.api_names import BEGIN_CAPTURE, END_CAPTURE, is_graph_launch, is_kernel_launch
from cudagraph_gate.timeline.intervals import (
    Bools,
    Int64,
    Intervals,
    Window,
    blocks,
    clip,
    complement,
    int64,
    overlap_ns,
    union,
)
from cudagraph_gate.timeline.lost_launches import captured_launches
from cudagraph_gate.timeline.table import GRAPH, KERNEL, REQUEST_DOMAIN, Timeline

TOP_IDLE: Final = 10
"""So many of the longest idle intervals are named: what a person reads, not a full list."""
AT_ONCE: Final = 2**17
"""Idle intervals that get their causes in one go: the arrays in between stay near 1 MB each, so that they
lie in the cache and their memory is used again; 2**19 took 1.4 times as long."""
PIECES_EACH: Final = 4
"""Room set aside for the pieces of an idle interval; most have three: host work, the call, the latency."""
COMPUTE: Final = (KERNEL, GRAPH)
"""Operations that count as compute: a graph launch recorded as one operation shows no more of itself."""


@dataclass(frozen=True)
class IdleOfDevice:
    """The summary of one device, and its pieces where idle is measurable."""

    summary: DeviceIdle
    pieces: CausedPieces | None
    enders: Int64 | None = None
    """Row of the operation that ends each idle interval of ``pieces``; any row where none does (ramp)."""


def idle_of_devices(
    timeline: Timeline, operations: pd.DataFrame, window: Window, *, at_once: int = AT_ONCE
) -> tuple[IdleOfDevice, ...]:
    """One result for each (process, device) that was busy in ``window``.

    ``operations`` come from ``operations_with_submission``; ``at_once`` idle intervals are worked out in
    one go. Raises AssertionError if busy time and causes
    do not add up to the window: a bug of ours.
    """
    found = []
    for group in _by_device(operations):
        busy = _busy(group, window)
        if len(busy):
            where = (int(group["process"].iloc[0]), int(group["device"].iloc[0]))
            found.append(_one_device(group, busy, where, window, timeline, at_once))
    return tuple(found)


def _by_device(operations: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The operations of each process and device, in order of both."""
    codes = group_codes(operations, ("process", "device"))
    for code in distinct(codes):
        yield chosen(operations, np.asarray(codes == code, dtype=np.bool_))


def host_of(timeline: Timeline, process: int) -> Host:
    """The host side of one process."""
    calls, ranges, overheads = timeline.calls, timeline.ranges, timeline.overheads
    overheads = overheads[overheads["process"] == process]
    requests = timeline.requests()
    marked = None if requests.empty else union(ints(requests, "start_ns"), ints(requests, "end_ns"))
    return Host(
        calls=chosen(calls, ints(calls, "process") == process),
        ranges=ranges[(ranges["process"] == process) & (ranges["domain"] != REQUEST_DOMAIN)],
        overheads=union(ints(overheads, "start_ns"), ints(overheads, "end_ns")),
        requests=marked,
    )


def why_not_measurable(timeline: Timeline, process: int) -> NotMeasured | None:
    """The reason why idle of a process can't be measured, if there is one."""
    dropped = timeline.meta.dropped_records
    if dropped > 0:
        return NotMeasured(reason=f"{dropped} records are missing, and what looks idle may be their work")
    missing = _graph_launches_without_operation(timeline, process)
    if missing:
        return NotMeasured(reason=f"{missing} graph launches have no recorded node: idle may be their work")
    operations = int((timeline.operations["process"] == process).sum())
    if (captured := _captured_launches(timeline, process)) > operations:
        return NotMeasured(
            reason=f"{captured} launches were captured into a graph and {operations} operations ran: the "
            "recording shows a capture, not the work"
        )
    return None


def _captured_launches(timeline: Timeline, process: int) -> int:
    """How many launches of a process were recorded into a graph and have no operation of their own."""
    names = [str(name) for name in timeline.calls["name"].cat.categories]
    if not any(BEGIN_CAPTURE in name or END_CAPTURE in name for name in names):
        return 0
    calls = timeline.calls[timeline.calls["process"] == process]
    launches = calls[calls["name"].isin([name for name in names if is_kernel_launch(name)])]
    return int(captured_launches(timeline.operations, launches, calls).sum())


def _graph_launches_without_operation(timeline: Timeline, process: int) -> int:
    """Successful launches with neither a node nor a whole record; one without a correlation has none."""
    calls, operations = timeline.calls, timeline.operations
    names = [name for name in calls["name"].cat.categories if is_graph_launch(name)]
    if not names:
        return 0
    launches = calls[calls["name"].isin(names)]
    launches = launches[(launches["process"] == process) & (launches["status"] == 0)]
    given, wanted = launch_keys(operations, launches)
    return int((~np.isin(wanted, given) | (ints(launches, "correlation") == 0)).sum())


def _one_device(
    operations: pd.DataFrame,
    busy: Intervals,
    where: tuple[int, int],
    window: Window,
    timeline: Timeline,
    at_once: int,
) -> IdleOfDevice:
    reason = why_not_measurable(timeline, where[0])
    if reason is not None:
        return IdleOfDevice(_summary(operations, where, window, busy, reason, {}, ()), None)
    host, running = host_of(timeline, where[0]), running_in(operations, window)
    idle = complement(busy, window)
    pieces, causes = _attributed(idle, running, host, timeline.calls, at_once)
    _check_sum(busy.length_ns, causes, window)
    top = tuple(_top_idle(idle, running, host, window, timeline.calls))
    pieces = replace(pieces, cadence_ns=_cadence_ns(operations))
    summary = _summary(operations, where, window, busy, idle.length_ns, causes, top)
    return IdleOfDevice(summary, pieces, running.rows(running.ending(idle)))


def _cadence_ns(operations: pd.DataFrame) -> float:
    """Median time from the end of one submission to the begin of the next; 0 where they are not known."""
    begin, finish = ints(operations, BEGIN_NS), ints(operations, FINISH_NS)
    gaps = begin[1:] - finish[:-1]
    gaps = gaps[(gaps > 0) & (finish[:-1] > 0)]
    return float(np.median(gaps)) if len(gaps) else 0.0


def _attributed(
    idle: Intervals, running: Running, host: Host, calls: pd.DataFrame, at_once: int
) -> tuple[CausedPieces, dict[Cause, int]]:
    """The pieces of ``idle`` and the ns of each cause, worked out a part of the intervals at a time."""
    threads = np.empty(len(idle), dtype=np.int64)
    pieces = CausedPiecesUnderWay(PIECES_EACH * len(idle))
    for first in range(0, len(idle), at_once):
        part = Intervals(idle.starts[first : first + at_once], idle.ends[first : first + at_once])
        enders = enders_of(part, running, calls)
        pieces.add_all(part, enders, host, first)
        threads[first : first + at_once] = enders.thread
    return pieces.finished(threads, idle), pieces.totals


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
    inside = chosen(operations, touches(ints(operations, "start_ns"), ints(operations, "end_ns"), window))
    starts, ends = ints(inside, "start_ns"), ints(inside, "end_ns")
    compute = _is_compute(inside)
    return DeviceIdle(
        process=where[0],
        device=where[1],
        window_ns=window[1] - window[0],
        busy_ns=busy.length_ns,
        sum_ns=sum(
            int((np.minimum(ends[part], window[1]) - np.maximum(starts[part], window[0])).sum())
            for part in blocks(len(inside))
        ),
        compute_ns=_busy_ns(inside, compute, busy, window),
        copy_ns=_busy_ns(inside, ~compute, busy, window),
        idle_ns=idle_ns,
        causes=causes,
        operations=len(inside),
        streams=len(distinct(group_codes(inside, ("context", "stream")))),
        top_idle=top,
    )


def _busy_ns(inside: pd.DataFrame, mask: Bools, busy: Intervals, window: Window) -> int:
    """Busy time of the operations that ``mask`` selects; ``busy`` is that of all that lie in the window."""
    if mask.all():
        return busy.length_ns
    starts, ends = ints(inside, "start_ns")[mask], ints(inside, "end_ns")[mask]
    return clip(union(starts, ends), window).length_ns


def _is_compute(operations: pd.DataFrame) -> Bools:
    kinds = operations["kind"].cat
    known = np.array([kind in COMPUTE for kind in kinds.categories] + [False])  # the last for code -1: none
    return np.asarray(known[kinds.codes.to_numpy()], dtype=np.bool_)


def _busy(operations: pd.DataFrame, window: Window) -> Intervals:
    return clip(union(ints(operations, "start_ns"), ints(operations, "end_ns")), window)


def _longest(idle: Intervals) -> Int64:
    """Rows of the longest intervals, longest first, of equal ones the earlier."""
    candidates = int64([])
    for part in blocks(len(idle)):
        lengths = idle.ends[part] - idle.starts[part]
        least = np.partition(lengths, -TOP_IDLE)[-TOP_IDLE] if len(lengths) > TOP_IDLE else 0
        candidates = np.append(candidates, np.flatnonzero(lengths >= least) + part.start)
        lengths = idle.ends[candidates] - idle.starts[candidates]
        candidates = candidates[np.argsort(-lengths, kind="stable")[:TOP_IDLE]]
    return int64(candidates)


def _top_idle(
    idle: Intervals, running: Running, host: Host, window: Window, calls: pd.DataFrame
) -> Iterator[IdleInterval]:
    longest = _longest(idle)
    top = Intervals(idle.starts[longest], idle.ends[longest])
    table = attribute(top, enders_of(top, running, calls), host).by_interval(len(top))
    for start, end, row, causes in zip(top.starts, top.ends, running.ending(top), table, strict=True):
        is_ended = int(running.starts[row]) == end
        thread = int(running.column(SUBMITTER, int64([row]))[0]) if is_ended else 0
        yield IdleInterval(
            start_ns=int(start) - window[0],
            duration_ns=int(end - start),
            cause=CAUSES[int(causes.argmax())],
            next_operation=str(running.frame["name"].iloc[int(row)]) if is_ended else "",
            host_call=_longest_call(host.calls, thread, int(start), int(end)),
            range_name=_innermost(host.ranges, thread, int(start)),
        )


def _longest_call(calls: pd.DataFrame, thread: int, start: int, end: int) -> str:
    """The call of a thread that takes most of [start, end); of nested ones the outermost; empty if none."""
    meeting = (ints(calls, "start_ns") < end) & (ints(calls, "end_ns") > start)
    calls = calls[meeting]
    calls = calls[of_thread(calls, thread)]
    taken = overlap_ns(union(int64([start]), int64([end])), ints(calls, "start_ns"), ints(calls, "end_ns"))
    if not taken.any():
        return ""
    most = calls[taken == np.max(taken)]
    lengths = ints(most, "end_ns") - ints(most, "start_ns")
    return min(str(name) for name in most["name"][lengths == np.max(lengths)])


def _innermost(ranges: pd.DataFrame, thread: int, moment: int) -> str:
    around = ranges[(ints(ranges, "start_ns") <= moment) & (ints(ranges, "end_ns") > moment)]
    around = around[of_thread(around, thread)]
    around = around[ints(around, "start_ns") == around["start_ns"].max()]
    around = around[ints(around, "end_ns") == around["end_ns"].min()]
    return min((str(name) for name in around["name"]), default="")
