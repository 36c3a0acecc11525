"""How work was submitted: submission calls and the gaps between them, TKLQT, blocking calls."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.gap_histogram import histogram
from cudagraph_gate.diagnosis.phases import phases_of
from cudagraph_gate.diagnosis.queue_depth import queue_depth_of
from cudagraph_gate.diagnosis.submission import (
    BEGIN_NS,
    CALL_ROW,
    NO_ROW,
    chosen,
    flags,
    group_codes,
    ints,
    launch_keys,
    touches,
)
from cudagraph_gate.model import (
    CallSite,
    CallSummary,
    Distribution,
    Launches,
    Measured,
    NotMeasured,
    ThreadSubmissions,
)
from cudagraph_gate.stats import distribution
from cudagraph_gate.timeline.api_names import is_graph_launch
from cudagraph_gate.timeline.families import time_order
from cudagraph_gate.timeline.intervals import Bools, Codes, Int64, Window, blocks, int64
from cudagraph_gate.timeline.table import KERNEL, Timeline

SUBMITTED: Final = ["kind", "graph", "start_ns", "end_ns", CALL_ROW, BEGIN_NS]
"""The columns of operations that this module and the phases read."""
MOST_SITES: Final = 5
"""Call sites named for each API function: those with the most time, where a person would look first."""


def launches_of(timeline: Timeline, operations: pd.DataFrame, window: Window) -> Launches:
    """Submissions of ``window``: those whose call or one of whose operations shares time with it.

    ``operations`` come from ``operations_with_submission``.
    """
    calls, level = timeline.calls, timeline.meta.level
    in_window = _submitted_in(calls, operations, window)
    submitting = _calls_of(in_window, calls)
    gaps = _Gaps.of(submitting)
    threads = gaps.by_thread()
    return Launches(
        submissions=len(submitting),
        graph_launches=_graph_launches(calls, operations, window),
        submission_gap=gaps.all_together(level, threads),
        tklqt_ns=_tklqt_ns(in_window, level),
        phases=phases_of(in_window, calls, level),
        queue_depth=queue_depth_of(operations, window),
        threads=threads,
        by_call=_by_call(submitting, ints(submitting, "end_ns") - ints(submitting, "start_ns")),
        blocking_calls=_blocking_calls(calls, window),
    )


def _touching(frame: pd.DataFrame, window: Window) -> Bools:
    return touches(ints(frame, "start_ns"), ints(frame, "end_ns"), window)


def _submitted_in(calls: pd.DataFrame, operations: pd.DataFrame, window: Window) -> pd.DataFrame:
    """Operations with a known call, of all submissions of which any part lies in the window."""
    row = operations[CALL_ROW].to_numpy()
    wanted = np.append(_touching(calls, window), False)
    wanted[row[_touching(operations, window)]] = True
    wanted[NO_ROW] = False
    # Copies of whole frames would double the memory of a long recording.
    return chosen(operations[SUBMITTED], wanted[row])


def _calls_of(submitted: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """The calls that submitted the operations, each once."""
    wanted = np.zeros(len(calls), dtype=np.bool_)
    wanted[submitted[CALL_ROW].to_numpy()] = True
    return chosen(calls, wanted)


def _graph_launches(calls: pd.DataFrame, operations: pd.DataFrame, window: Window) -> int:
    """Distinct launches, known by their nodes or by their call."""
    key = ["process", "correlation"]
    nodes = operations[key][(ints(operations, "graph") != 0) & _touching(operations, window)]
    names = [name for name in calls["name"].cat.categories if is_graph_launch(name)]
    called = calls[key][calls["name"].isin(names) & (calls["status"] == 0) & _touching(calls, window)]
    return len(pd.unique(np.concatenate(launch_keys(nodes, called))))


def _no_calls(level: str) -> NotMeasured:
    return NotMeasured(reason=f"no submission call is recorded in the window (level {level})")


@dataclass(frozen=True)
class _Gaps:
    """Submission calls in order of process, thread and start, and the gap after each but the last."""

    calls: pd.DataFrame
    order: Int64 | None
    """Rows of ``calls`` in that order; None where they are."""
    gaps_ns: Int64
    same: Bools
    """Whether the gap lies between two calls of one thread."""

    @classmethod
    def of(cls, submitting: pd.DataFrame) -> _Gaps:
        """From the end of one call to the start of the next one of its thread, at least 0."""
        starts, ends = ints(submitting, "start_ns"), ints(submitting, "end_ns")
        threads = group_codes(submitting, ("process", "thread"))
        order = time_order(threads, starts)
        if order is not None:
            starts, ends, threads = starts[order], ends[order], threads[order]
        gaps_ns = starts[1:] - ends[:-1]
        np.maximum(gaps_ns, 0, out=gaps_ns)
        return cls(submitting, order, gaps_ns, threads[1:] == threads[:-1])

    def all_together(self, level: str, threads: Sequence[ThreadSubmissions]) -> Distribution | NotMeasured:
        """The gaps of all ``threads``."""
        if self.calls.empty:
            return _no_calls(level)
        if not self.same.any():
            return NotMeasured(reason="fewer than two submission calls on any thread")
        return threads[0].gap if len(threads) == 1 else distribution(self.gaps_ns[self.same])

    def by_thread(self) -> tuple[ThreadSubmissions, ...]:
        """One value a thread, the one with the most calls first."""
        if self.calls.empty:
            return ()
        borders = np.concatenate([[0], np.flatnonzero(~self.same) + 1, [len(self.calls)]])
        found = [self._one_thread(int(first), int(beyond)) for first, beyond in pairwise(borders)]
        return tuple(sorted(found, key=lambda thread: -thread.submissions))

    def _one_thread(self, first: int, beyond: int) -> ThreadSubmissions:
        gaps_ns = self.gaps_ns[first : beyond - 1]
        alone = NotMeasured(reason="the thread made one submission call")
        row = first if self.order is None else int(self.order[first])
        return ThreadSubmissions(
            process=int(self.calls["process"].iloc[row]),
            thread=int(self.calls["thread"].iloc[row]),
            submissions=beyond - first,
            gap=distribution(gaps_ns) if len(gaps_ns) else alone,
            histogram=histogram(gaps_ns) if len(gaps_ns) else alone,
        )


def _tklqt_ns(in_window: pd.DataFrame, level: str) -> Measured:
    if in_window.empty:
        return _no_calls(level)
    starts, begins = ints(in_window, "start_ns"), ints(in_window, BEGIN_NS)
    in_graph = ints(in_window, "graph") != 0
    kernels = (in_window["kind"] == KERNEL).to_numpy() & ~in_graph
    waited_ns = sum(
        int((starts[part] - begins[part])[kernels[part]].sum()) for part in blocks(len(in_window))
    )
    launch = in_window[CALL_ROW].to_numpy()[in_graph]
    return waited_ns + _first_nodes_ns(launch, starts[in_graph] - begins[in_graph])


def _first_nodes_ns(launch: Codes, waited: Int64) -> int:
    """Operations come in order of start, so the first row of a launch is its first node."""
    _, first = np.unique(launch, return_index=True)
    return int(waited[first].sum())


def _blocking_calls(calls: pd.DataFrame, window: Window) -> tuple[CallSummary, ...]:
    """Blocking calls by name; time outside the window does not count."""
    inside = calls[flags(calls, "blocking") & _touching(calls, window)]
    time_ns = np.minimum(ints(inside, "end_ns"), window[1]) - np.maximum(ints(inside, "start_ns"), window[0])
    return _by_call(inside, time_ns)


def _by_call(calls: pd.DataFrame, time_ns: Int64) -> tuple[CallSummary, ...]:
    """Calls by API function, and by site within each; most time first."""
    names, sites = calls["name"].cat.categories, calls["site"].cat.categories
    name_codes, site_codes = calls["name"].cat.codes.to_numpy(), calls["site"].cat.codes.to_numpy()
    counts: Counter[int] = Counter()
    totals_ns: Counter[int] = Counter()
    for part in blocks(len(calls)):
        place, pairs = pd.factorize(int64(name_codes[part]) * len(sites) + site_codes[part])
        numbers, sums_ns = np.bincount(place), np.zeros(len(pairs), dtype=np.int64)
        np.add.at(sums_ns, place, time_ns[part])
        counts.update(dict(zip(pairs.tolist(), numbers.tolist(), strict=True)))
        totals_ns.update(dict(zip(pairs.tolist(), sums_ns.tolist(), strict=True)))
    by_name: defaultdict[str, list[CallSite]] = defaultdict(list)
    for pair, count in counts.items():
        name, site = divmod(pair, len(sites))
        found = CallSite(where=str(sites[site]), count=count, total_ns=totals_ns[pair])
        by_name[str(names[name])].append(found)
    summaries = [_summary(name, own) for name, own in by_name.items()]
    return tuple(sorted(summaries, key=lambda summary: (-summary.total_ns, summary.name)))


def _summary(name: str, sites: list[CallSite]) -> CallSummary:
    known = sorted((site for site in sites if site.where), key=lambda site: (-site.total_ns, site.where))
    return CallSummary(
        name=name,
        count=sum(site.count for site in sites),
        total_ns=sum(site.total_ns for site in sites),
        sites=tuple(known[:MOST_SITES]),
    )
