"""How work was submitted: submission calls and the gaps between them, TKLQT, blocking calls."""

from __future__ import annotations

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.intervals import Bools, Int64, Window
from cudagraph_gate.diagnosis.submission import (
    BEGIN_NS,
    CALL_ROW,
    GRAPH_LAUNCH,
    NO_ROW,
    flags,
    ints,
    launch_keys,
    touches,
)
from cudagraph_gate.model import CallSummary, Distribution, Launches, Measured, NotMeasured
from cudagraph_gate.stats import distribution
from cudagraph_gate.timeline.table import KERNEL, Timeline


def launches_of(timeline: Timeline, operations: pd.DataFrame, window: Window) -> Launches:
    """Submissions of ``window``: those whose call or one of whose operations shares time with it.

    ``operations`` come from ``operations_with_submission``.
    """
    in_window = _submitted_in(timeline.calls, operations, window)
    submitting = timeline.calls.iloc[np.unique(ints(in_window, CALL_ROW))]
    return Launches(
        submissions=len(submitting),
        graph_launches=_graph_launches(timeline.calls, operations, window),
        submission_gap=_submission_gap(submitting, timeline.meta.level),
        tklqt_ns=_tklqt_ns(in_window, timeline.meta.level),
        blocking_calls=_blocking_calls(timeline.calls, window),
    )


def _touching(frame: pd.DataFrame, window: Window) -> Bools:
    return touches(ints(frame, "start_ns"), ints(frame, "end_ns"), window)


def _submitted_in(calls: pd.DataFrame, operations: pd.DataFrame, window: Window) -> pd.DataFrame:
    """Operations with a known call, of all submissions of which any part lies in the window."""
    row = ints(operations, CALL_ROW)
    chosen = np.zeros(len(calls), dtype=np.bool_)
    chosen[row[(row != NO_ROW) & _touching(operations, window)]] = True
    chosen |= _touching(calls, window)
    kept: pd.DataFrame = operations[(row != NO_ROW) & np.append(chosen, False)[row]]
    return kept


def _graph_launches(calls: pd.DataFrame, operations: pd.DataFrame, window: Window) -> int:
    """Distinct launches, known by their nodes or by their call."""
    nodes = operations[(ints(operations, "graph") != 0) & _touching(operations, window)]
    names = [name for name in calls["name"].cat.categories if GRAPH_LAUNCH in name]
    called = calls[calls["name"].isin(names) & (calls["status"] == 0) & _touching(calls, window)]
    return len(np.union1d(*launch_keys(nodes, called)))


def _no_calls(level: str) -> NotMeasured:
    return NotMeasured(reason=f"no submission call is recorded in the window (level {level})")


def _submission_gap(submitting: pd.DataFrame, level: str) -> Distribution | NotMeasured:
    """End of one submission call to the start of the next on the same thread."""
    if submitting.empty:
        return _no_calls(level)
    ordered = submitting.sort_values(["process", "thread", "start_ns"], kind="stable")
    threads = ordered[["process", "thread"]].to_numpy(dtype=np.int64)
    same = (threads[1:] == threads[:-1]).all(axis=1)
    gaps = np.maximum(ints(ordered, "start_ns")[1:] - ints(ordered, "end_ns")[:-1], 0)[same]
    if not len(gaps):
        return NotMeasured(reason="fewer than two submission calls on any thread")
    return distribution(gaps)


def _tklqt_ns(in_window: pd.DataFrame, level: str) -> Measured:
    if in_window.empty:
        return _no_calls(level)
    waited = ints(in_window, "start_ns") - ints(in_window, BEGIN_NS)
    in_graph = ints(in_window, "graph") != 0
    kernels = waited[(in_window["kind"].to_numpy() == KERNEL) & ~in_graph]
    return int(kernels.sum()) + _first_nodes_ns(ints(in_window, CALL_ROW)[in_graph], waited[in_graph])


def _first_nodes_ns(launch: Int64, waited: Int64) -> int:
    """Operations come in order of start, so the first row of a launch is its first node."""
    _, first = np.unique(launch, return_index=True)
    return int(waited[first].sum())


def _blocking_calls(calls: pd.DataFrame, window: Window) -> tuple[CallSummary, ...]:
    """Blocking calls by name, longest total first; time outside the window does not count."""
    inside = calls[flags(calls, "blocking") & _touching(calls, window)]
    time_ns = np.minimum(ints(inside, "end_ns"), window[1]) - np.maximum(ints(inside, "start_ns"), window[0])
    by_name = pd.Series(time_ns).groupby(inside["name"].astype(str).to_numpy()).agg(["count", "sum"])
    summaries = [
        CallSummary(name=str(name), count=int(count), total_ns=int(total))
        for name, count, total in zip(by_name.index, by_name["count"], by_name["sum"], strict=True)
    ]
    return tuple(sorted(summaries, key=lambda summary: (-summary.total_ns, summary.name)))
