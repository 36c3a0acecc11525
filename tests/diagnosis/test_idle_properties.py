"""Whatever was recorded: busy and causes fill the window, row order is nothing, and parts add up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_timelines import Row, call, kernel, overhead, request, timeline

from cudagraph_gate.diagnosis.causes import CAUSES
from cudagraph_gate.diagnosis.idle import IdleOfDevice, idle_of_devices
from cudagraph_gate.diagnosis.submission import ints, operations_with_submission
from cudagraph_gate.model import Cause, NotMeasured
from cudagraph_gate.timeline.intervals import Window, complement, union
from cudagraph_gate.timeline.table import FAMILIES, GRAPH, KERNEL, MEMCPY, Timeline

moments = st.integers(0, 60)
spans = st.tuples(moments, st.integers(0, 15)).map(lambda pair: (pair[0], pair[0] + pair[1]))
processes = st.sampled_from([1, 1, 2])
Found = dict[tuple[int, int], IdleOfDevice]


@st.composite
def operations(draw: st.DrawFn) -> Row:
    start, end = draw(spans)
    stamps = draw(st.sampled_from([{}, {"queued_ns": max(start - 4, 1), "submitted_ns": max(start - 1, 1)}]))
    others: dict[str, Any] = {
        "kind": draw(st.sampled_from([KERNEL, KERNEL, MEMCPY, GRAPH])),
        "name": draw(st.sampled_from(["a", "b"])),
        "process": draw(processes),
        "device": draw(st.sampled_from([0, 0, 1])),
        "stream": draw(st.integers(7, 8)),
        "graph": draw(st.sampled_from([0, 0, 4])),
    }
    return kernel(start, end, draw(st.integers(0, 6)), **others, **stamps)


@st.composite
def host_calls(draw: st.DrawFn) -> Row:
    others = {
        "process": draw(processes),
        "thread": draw(st.sampled_from([0, 10, 11])),
        "blocking": draw(st.booleans()),
        "name": draw(st.sampled_from(["cuLaunchKernel", "cuMemAlloc", "cudaGraphLaunch"])),
        "status": draw(st.sampled_from([0, 0, 1])),
    }
    return call(*draw(spans), draw(st.integers(0, 6)), **others)


timelines = st.builds(
    timeline,
    st.lists(operations(), max_size=12),
    st.lists(host_calls(), max_size=10),
    st.lists(st.tuples(spans, processes).map(lambda one: request(*one[0], process=one[1])), max_size=2),
    st.lists(st.tuples(spans, processes).map(lambda one: overhead(*one[0], one[1])), max_size=2),
)
windows = st.tuples(moments, st.integers(0, 60)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def idle(recorded: Timeline, window: Window) -> Found:
    devices = idle_of_devices(recorded, operations_with_submission(recorded), window)
    return {(device.summary.process, device.summary.device): device for device in devices}


@settings(max_examples=120)
@given(timelines, windows)
def test_busy_and_the_pieces_of_idle_fill_the_window_without_overlap(
    recorded: Timeline, window: Window
) -> None:
    for device in idle(recorded, window).values():
        summary, found = device.summary, device.pieces
        if found is None:
            assert isinstance(summary.idle_ns, NotMeasured)
            continue
        assert summary.busy_ns + sum(summary.causes.values()) == summary.window_ns == window[1] - window[0]
        covered = union(found.pieces.starts, found.pieces.ends)
        assert covered.length_ns == found.pieces.length_ns == summary.idle_ns
        assert found.totals().tolist() == [summary.causes[cause] for cause in CAUSES]


@settings(max_examples=100)
@given(timelines, windows, st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(recorded: Timeline, window: Window, random: Any) -> None:
    shuffled = replace(recorded, **{name: permuted(getattr(recorded, name), random) for name in FAMILIES})
    one, other = idle(recorded, window), idle(shuffled, window)
    assert [device.summary for device in one.values()] == [device.summary for device in other.values()]


def permuted(rows: pd.DataFrame, random: Any) -> pd.DataFrame:
    order = list(range(len(rows)))
    random.shuffle(order)
    return rows.iloc[order].reset_index(drop=True)


@settings(max_examples=120)
@given(timelines, windows, st.data())
def test_the_parts_of_a_cut_window_add_up(recorded: Timeline, window: Window, data: st.DataObject) -> None:
    cut = data.draw(st.integers(*window))
    left, right = idle(recorded, (window[0], cut)), idle(recorded, (cut, window[1]))
    for where, whole in idle(recorded, window).items():
        parts = [part[where] for part in (left, right) if where in part]
        assert sum(part.summary.busy_ns for part in parts) == whole.summary.busy_ns
        if len(parts) == 2 and whole.pieces is not None:
            found = sum((Counter(part.summary.causes) for part in parts), Counter())
            assert found == expected(recorded, where, whole, window, cut)


def expected(
    recorded: Timeline, where: tuple[int, int], whole: IdleOfDevice, window: Window, cut: int
) -> Counter[Cause]:
    """The causes of the whole, where those of the idle interval that the cut touches are ramp."""
    rows = recorded.operations
    own = rows[(rows["process"] == where[0]) & (rows["device"] == where[1])]
    gaps = complement(union(ints(own, "start_ns"), ints(own, "end_ns")), window)
    assert whole.pieces is not None
    table = whole.pieces.by_interval(len(gaps))
    touched = (gaps.starts <= cut) & (cut <= gaps.ends)
    ramp = CAUSES.index(Cause.RAMP)
    for code, cause in enumerate(CAUSES):
        if cause not in (Cause.NO_REQUEST, Cause.PROFILER, Cause.RAMP):
            table[touched, ramp] += table[touched, code]
            table[touched, code] = 0
    return +Counter({cause: int(total) for cause, total in zip(CAUSES, table.sum(axis=0), strict=True)})


@pytest.mark.parametrize("at_once", [1, 3])
def test_intervals_worked_out_in_parts_give_the_same(at_once: int) -> None:
    rows = [kernel(start * 10, start * 10 + 4, start + 1) for start in range(8)]
    calls = [call(start * 10 - 5, start * 10 - 2, start + 1, thread=10 + start % 2) for start in range(8)]
    recorded = timeline(rows, calls, [request(0, 33), request(36, 70)])
    (whole,) = idle(recorded, (-5, 90)).values()
    operations = operations_with_submission(recorded)
    (parts,) = idle_of_devices(recorded, operations, (-5, 90), at_once=at_once)
    assert parts.summary == whole.summary
    assert whole.pieces is not None
    assert parts.pieces is not None
    assert sorted(zip(*columns(parts), strict=True)) == sorted(zip(*columns(whole), strict=True))
    np.testing.assert_array_equal(parts.pieces.threads, whole.pieces.threads)


def columns(device: IdleOfDevice) -> tuple[list[int], ...]:
    assert device.pieces is not None
    pieces = device.pieces.pieces
    return pieces.starts.tolist(), pieces.ends.tolist(), pieces.owners.tolist(), device.pieces.causes.tolist()
