"""Queue depth: how many operations are submitted and have not ended, at each moment of the window."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.submission import BEGIN_NS, ints, launch_keys, submission_known
from cudagraph_gate.model import NotMeasured, QueueDepth
from cudagraph_gate.timeline.intervals import Int64, Window, blocks, int64, places_in

PARTS: Final = 60
"""Equal parts of the window over which the depth is told: as many points as fit on one line of a terminal."""


def queue_depth_of(operations: pd.DataFrame, window: Window) -> QueueDepth | NotMeasured:
    """Depth of all queues together, of every device and process.

    An operation is in the queue from the start of its submission call, else from its ``queued`` stamp, until
    it ends; a graph launch counts once, until its last node ends. An operation without a known submission
    counts while it runs. ``operations`` come from ``operations_with_submission``.
    """
    if window[0] == window[1]:
        return NotMeasured(reason="the window has no length")
    if not submission_known(operations).any():
        return NotMeasured(reason="no submission of an operation is recorded")
    begins, ends = _queued(operations)
    begins, ends = np.maximum(begins, window[0]), np.minimum(ends, window[1])
    inside = begins < ends
    if not inside.all():
        begins, ends = begins[inside], ends[inside]
    begins.sort(kind="stable")
    ends.sort(kind="stable")
    borders = [window[0] + (window[1] - window[0]) * part // PARTS for part in range(PARTS + 1)]
    areas = [
        waited - ended for waited, ended in zip(_areas(begins, borders), _areas(ends, borders), strict=True)
    ]
    length = window[1] - window[0]
    return QueueDepth(
        mean=areas[-1] / length,
        maximum=_maximum(begins, ends),
        empty_share=_empty_ns(begins, ends, window) / length,
        over_time=tuple(
            (area - before) / (border - last) if border > last else 0.0
            for (before, area), (last, border) in zip(pairwise(areas), pairwise(borders), strict=True)
        ),
    )


def _queued(operations: pd.DataFrame) -> tuple[Int64, Int64]:
    """When each operation or graph launch was submitted and when it ended."""
    starts, ends = ints(operations, "start_ns"), ints(operations, "end_ns")
    known = submission_known(operations)
    begins = np.minimum(ints(operations, BEGIN_NS), starts)
    begins = begins if known.all() else np.where(known, begins, starts)
    in_graph = (ints(operations, "graph") != 0) & (ints(operations, "correlation") != 0)
    if not in_graph.any():
        return int64(begins), ends
    (keys,) = launch_keys(operations[in_graph])
    nodes = pd.DataFrame({"begin": begins[in_graph], "end": ends[in_graph]}).groupby(keys)
    launches = nodes.agg({"begin": "min", "end": "max"})
    return (
        np.concatenate([begins[~in_graph], ints(launches, "begin")]),
        np.concatenate([ends[~in_graph], ints(launches, "end")]),
    )


def _areas(moments: Int64, borders: list[int]) -> list[int]:
    """For each border, the sum of (border - moment) over the sorted moments before it.

    Each part is added up relative to its own start and the sum is a Python integer: no length of a window
    and no number of operations makes it overflow or round.
    """
    places = np.searchsorted(moments, borders, side="left")
    total, areas = 0, [0]
    for (first, beyond), (start, end) in zip(pairwise(places.tolist()), pairwise(borders), strict=True):
        total += first * (end - start) + (beyond - first) * (end - start)
        total -= int((moments[first:beyond] - start).sum())
        areas.append(total)
    return areas


def _maximum(begins: Int64, ends: Int64) -> int:
    """The depth is greatest at a begin; what ends at that moment has left the queue."""
    if not len(begins):
        return 0
    depth = np.arange(1, len(begins) + 1, dtype=np.int64)
    depth -= places_in(ends, begins, "right")
    return int(np.max(depth))


def _empty_ns(begins: Int64, ends: Int64, window: Window) -> int:
    """The queue is empty between the k-th end and the next begin, wherever that begin comes later."""
    if not len(begins):
        return window[1] - window[0]
    begun, ended = begins[1:], ends[:-1]
    between = sum(int(np.maximum(begun[part] - ended[part], 0).sum()) for part in blocks(len(begun)))
    return int(begins[0]) - window[0] + between + window[1] - int(ends[-1])
