"""What is known of the operation that ends each idle interval of a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from cudagraph_gate.diagnosis.causes import Enders
from cudagraph_gate.diagnosis.submission import (
    BEGIN_NS,
    CALL_ROW,
    FINISH_NS,
    NO_ROW,
    SUBMITTER,
    chosen,
    flags,
    group_codes,
    ints,
)
from cudagraph_gate.timeline.intervals import (
    Bools,
    Int64,
    Intervals,
    Window,
    expand,
    in_order,
    int64,
    places_in,
    reach_before,
)


@dataclass(frozen=True)
class GraphNodes:
    """Operations of graph launches, in order of their ends."""

    ends: Int64
    correlations: Int64


@dataclass(frozen=True)
class Running:
    """The operations of a device that take time, in order of start, ties by correlation."""

    frame: pd.DataFrame
    starts: Int64
    stream_reach: Int64
    """When the earlier operations on its stream had all ended."""
    nodes: GraphNodes
    first_ns: int
    last_ns: int
    """Start of the first and end of the last operation that shares time with the window."""

    def column(self, name: str, rows: Int64) -> npt.NDArray[Any]:
        """A column at some rows."""
        return self.frame[name].to_numpy()[rows]

    def rows(self, places: Int64) -> Int64:
        """Rows in the timeline's operations of some of these."""
        labels = self.frame.index
        if isinstance(labels, pd.RangeIndex):
            return int64(labels.start + labels.step * places)
        return int64(labels.to_numpy()[places])

    def ending(self, idle: Intervals) -> Int64:
        """Row of the operation that ends each idle interval; the last row where none does (ramp)."""
        ends = idle.ends
        search = places_in if in_order(ends) else np.searchsorted
        rows = search(self.starts, ends, "left")
        return int64(np.minimum(rows, len(self.starts) - 1))


def running_in(operations: pd.DataFrame, window: Window) -> Running:
    """``operations``: those of one device, from ``operations_with_submission``; some share time with it."""
    running = chosen(operations, ints(operations, "start_ns") < ints(operations, "end_ns"))
    starts, ends = ints(running, "start_ns"), ints(running, "end_ns")
    inside = (starts < window[1]) & (ends > window[0])
    return Running(
        frame=running,
        starts=starts,
        stream_reach=reach_before(group_codes(running, ("context", "stream")), ends),
        nodes=_graph_nodes(running),
        first_ns=int(starts[np.argmax(inside)]),
        last_ns=int(np.max(ends[inside])),
    )


def _graph_nodes(running: pd.DataFrame) -> GraphNodes:
    """Correlation 0 means none, so nothing is known of the launch."""
    in_graph = (running["graph"].to_numpy() != 0) & (running["correlation"].to_numpy() != 0)
    ends, correlations = ints(running, "end_ns")[in_graph], ints(running, "correlation")[in_graph]
    order = np.argsort(ends, kind="stable")
    return GraphNodes(ends[order], correlations[order])


def enders_of(idle: Intervals, running: Running, calls: pd.DataFrame) -> Enders:
    """For each idle interval, what is known of its end; ``calls`` are those of the whole timeline."""
    rows = running.ending(idle)
    call = running.column(CALL_ROW, rows)
    called = call != NO_ROW
    blocking = np.zeros(len(idle), dtype=np.bool_)
    blocking[called] = flags(calls, "blocking")[call[called]]
    stamped = (running.column("queued_ns", rows) != 0) | (running.column("submitted_ns", rows) != 0)
    return Enders(
        ramp=(idle.ends <= running.first_ns) | (idle.starts >= running.last_ns),
        graph_gap=_in_graph(idle, running, rows),
        known=called | stamped,
        begin=running.column(BEGIN_NS, rows),
        finish=running.column(FINISH_NS, rows),
        blocking=blocking,
        thread=running.column(SUBMITTER, rows),
        stream_free=running.stream_reach[rows] < idle.starts,
    )


def _in_graph(idle: Intervals, running: Running, rows: Int64) -> Bools:
    """Whether an operation of the same graph launch ran up to the idle interval."""
    found = np.zeros(len(idle), dtype=np.bool_)
    nodes = running.nodes
    if not len(nodes.ends):
        return found
    first = np.searchsorted(nodes.ends, idle.starts, side="left")
    beyond = np.searchsorted(nodes.ends, idle.starts, side="right")
    gap, place = expand(int64(first), int64(beyond - first))
    after = rows[gap]
    same = (running.column("correlation", after) == nodes.correlations[place]) & (
        running.column("graph", after) != 0
    )
    found[gap[same]] = True
    return found
