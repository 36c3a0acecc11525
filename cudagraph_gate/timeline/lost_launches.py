"""Launch calls whose operation is not in a recording: captured into a graph, not run in time, or lost.

For files that other tools recorded. Only lost ones may hide work in what looks idle.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from cudagraph_gate.timeline.api_names import BEGIN_CAPTURE, END_CAPTURE

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NEVER: Final = np.iinfo(np.int64).min
"""Before every moment: the last launch with an operation of a process that has none."""
THREAD: Final = ["process", "thread"]


def lost_and_unfinished(operations: pd.DataFrame, calls: pd.DataFrame, captured: Bools) -> tuple[int, int]:
    """How many launches were lost, and how many had not run when the recording ended.

    ``operations`` and ``calls`` are frames of a timeline; ``calls`` holds the launch calls to look at and
    nothing else, in any order, and ``captured`` says of each whether it was recorded into a graph
    (:func:`captured_launches`). A call has an operation if one of its process has its correlation. Calls
    that failed (``status`` not 0) and captured ones need none. Of the others without an operation those are
    unfinished that began after the last launch of their thread that has one; where no launch of the thread
    has one, after the last of the process. A process without any has lost all of them.
    """
    ran = with_operation(operations, calls)
    missing = ~ran & ~captured & (_numbers(calls["status"]) == 0)
    if not missing.any():
        return 0, 0
    wanted = calls[missing]
    last = _last_start(calls[ran], wanted, THREAD)
    last = np.where(last == NEVER, _last_start(calls[ran], wanted, ["process"]), last)
    unfinished = (last != NEVER) & (_numbers(wanted["start_ns"]) > last)
    return int((~unfinished).sum()), int(unfinished.sum())


def with_operation(operations: pd.DataFrame, calls: pd.DataFrame) -> Bools:
    """Whether each call has an operation of its process and correlation; 0 is no correlation."""
    found = np.zeros(len(calls), dtype=np.bool_)
    processes, correlations = _numbers(calls["process"]), _numbers(calls["correlation"])
    submitters, submitted = _numbers(operations["process"]), _numbers(operations["correlation"])
    for process in np.unique(processes):
        own, of_process = submitted[submitters == process], processes == process
        found[of_process] = _contained(correlations[of_process], np.sort(own[own != 0]))
    return found


def captured_launches(operations: pd.DataFrame, launches: pd.DataFrame, calls: pd.DataFrame) -> Bools:
    """Whether each of ``launches`` has no operation because its thread was capturing.

    ``calls`` hold the calls that begin and end captures, of any thread. A capture covers its own thread only.
    One whose end is not in the file covers nothing after the thread's next launch with an operation; one
    whose begin is not in it nothing before the last such launch.
    """
    captured = np.zeros(len(launches), dtype=np.bool_)
    names = [name for name in calls["name"].cat.categories if BEGIN_CAPTURE in name or END_CAPTURE in name]
    marks = calls[calls["name"].isin(names)].sort_values("start_ns", kind="stable")
    if marks.empty:
        return captured
    ran = with_operation(operations, launches)
    threads = _numbers(launches["process"]), _numbers(launches["thread"])
    starts = _numbers(launches["start_ns"])
    for (process, thread), own in marks.groupby(THREAD, sort=False):
        here = np.flatnonzero((threads[0] == process) & (threads[1] == thread))
        running = np.sort(starts[here][ran[here]])
        for begin, end in _captures(own, running):
            captured[here] |= (starts[here] > begin) & (starts[here] < end)
    return captured & ~ran


def _captures(marks: pd.DataFrame, running: Ints) -> list[tuple[float, float]]:
    """From when to when one thread captured; ``running`` are the starts of its launches with an operation."""
    intervals: list[tuple[float, float]] = []
    opened: list[int] = []
    begins = [BEGIN_CAPTURE in name for name in marks["name"]]
    for begins_here, start, status in zip(begins, marks["start_ns"], marks["status"], strict=True):
        if begins_here:
            # One that could not begin covers nothing; one that ended with an error is over all the same.
            opened += [int(start)] if status == 0 else []
        elif opened:
            intervals.append((opened.pop(), int(start)))
        else:
            before = int(np.searchsorted(running, start, "left"))
            intervals.append((float(running[before - 1]) if before else -np.inf, int(start)))
    for begin in opened:
        after = int(np.searchsorted(running, begin, "right"))
        intervals.append((begin, float(running[after]) if after < len(running) else np.inf))
    return intervals


def _last_start(running: pd.DataFrame, wanted: pd.DataFrame, by: list[str]) -> Ints:
    """Start of the last of ``running`` that agrees with each of ``wanted`` in ``by``, or NEVER."""
    last = running.groupby(by, sort=False)["start_ns"].max().to_dict()
    result = np.full(len(wanted), NEVER, dtype=np.int64)
    for key, rows in wanted.groupby(by, sort=False).indices.items():
        result[rows] = last.get(key, NEVER)
    return result


def _contained(wanted: Ints, ordered: Ints) -> Bools:
    # A search in sorted numbers is several times faster than isin with as many distinct ones.
    if not len(ordered):
        return np.zeros(len(wanted), dtype=np.bool_)
    place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.asarray(ordered[place] == wanted, dtype=np.bool_)


def _numbers(column: Any) -> Ints:
    return np.asarray(column.to_numpy(), dtype=np.int64)
