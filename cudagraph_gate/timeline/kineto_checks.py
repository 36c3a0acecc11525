"""What a Kineto timeline can't be trusted in: jumped clocks, launches without their work, no GPU rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from cudagraph_gate.timeline.api_names import BEGIN_CAPTURE, END_CAPTURE, is_kernel_launch
from cudagraph_gate.timeline.kineto_rows import OTHER_ACCELERATORS
from cudagraph_gate.timeline.table import Timeline

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

APART_NS: Final = 3_600_000_000_000
"""One hour: a profiler's recording lasts seconds to minutes, so what is further from the rest is a clock that
jumped or another recording."""
_FAMILIES: Final = ("operations", "calls", "ranges", "overheads")


@dataclass(frozen=True)
class Finding:
    """``lost`` operations may be missing from the timeline; ``problems`` says it in words."""

    lost: int = 0
    problems: tuple[str, ...] = ()


def filled(timeline: Timeline) -> list[pd.DataFrame]:
    """The frames that have rows."""
    return [rows for family in _FAMILIES if len(rows := getattr(timeline, family))]


def together(timeline: Timeline) -> tuple[Timeline, Finding]:
    """The timeline without what lies more than APART_NS from the longest run of events that do not."""
    frames = [rows for rows in (timeline.operations, timeline.calls) if len(rows)] or filled(timeline)
    starts = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *map(_starts, frames)]))
    breaks = np.flatnonzero(np.diff(starts) > APART_NS) + 1
    if not len(breaks):
        return timeline, Finding()
    stretch = max(np.split(starts, breaks), key=len)
    kept: dict[str, Any] = {family: _near(getattr(timeline, family), stretch) for family in _FAMILIES}
    left_out = {family: len(getattr(timeline, family)) - len(rows) for family, rows in kept.items()}
    line = (
        f"{sum(left_out.values())} events ({left_out['operations']} of them operations) lie more than an hour"
        " from the rest and are left out: the clock jumped, or the file holds several recordings"
    )
    return replace(timeline, **kept), Finding(left_out["operations"], (line,))


def _near(rows: pd.DataFrame, stretch: Ints) -> pd.DataFrame:
    starts = rows["start_ns"].to_numpy()
    near = (starts >= stretch[0] - APART_NS) & (starts <= stretch[-1] + APART_NS)
    kept: pd.DataFrame = rows[near].reset_index(drop=True)
    for name in kept.select_dtypes("category").columns:
        kept[name] = kept[name].cat.remove_unused_categories()
    return kept


def launches_without_operation(timeline: Timeline) -> Finding:
    """Launch calls whose kernel is not in the file, apart from graph launches.

    Those between begin and end of a capture were recorded into a graph and did not run; of the others, the
    records are missing, and those before the last operation may hide work in what looks idle.
    """
    launches, operations = _named(timeline.calls, is_kernel_launch), timeline.operations
    if operations.empty or launches.empty:
        return Finding()
    missing = launches[~_with_operation(launches, operations)]
    captured = _in_capture(missing, timeline.calls)
    problems = []
    if count := int(captured.sum()):
        problems.append(
            f"{count} of {len(launches)} launch calls were captured into a graph and have no operation: "
            "the file was recorded during capture and says little of the normal path"
        )
    if count := int((~captured).sum()):
        problems.append(
            f"{count} of {len(launches)} launch calls have no operation: their records are missing"
        )
    hidden = ~captured & (missing["start_ns"].to_numpy() < operations["end_ns"].max())
    return Finding(int(hidden.sum()), tuple(problems))


def _named(calls: pd.DataFrame, wanted: Callable[[str], bool]) -> pd.DataFrame:
    return calls[calls["name"].isin([name for name in calls["name"].cat.categories if wanted(name)])]


def _with_operation(launches: pd.DataFrame, operations: pd.DataFrame) -> Bools:
    found = np.zeros(len(launches), dtype=np.bool_)
    for process in launches["process"].unique():
        own = _numbers(operations["correlation"][operations["process"] == process])
        calls = (launches["process"] == process).to_numpy()
        found[calls] = _contained(_numbers(launches["correlation"])[calls], np.sort(own[own != 0]))
    return found


def _contained(wanted: Ints, ordered: Ints) -> Bools:
    # A search in sorted numbers is several times faster than isin with as many distinct ones.
    if not len(ordered):
        return np.zeros(len(wanted), dtype=np.bool_)
    place = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.asarray(ordered[place] == wanted, dtype=np.bool_)


def _in_capture(launches: pd.DataFrame, calls: pd.DataFrame) -> Bools:
    """Whether a capture was under way; one that began before the recording or did not end in it counts."""
    begins = _starts(_named(calls, lambda name: BEGIN_CAPTURE in name))
    ends = _starts(_named(calls, lambda name: END_CAPTURE in name))
    known = _open_captures(begins, ends, np.concatenate([begins, ends]))
    outside = int(np.min(known, initial=0))
    return np.asarray(_open_captures(begins, ends, _starts(launches)) > outside, dtype=np.bool_)


def _starts(calls: pd.DataFrame) -> Ints:
    return _numbers(calls["start_ns"])


def _numbers(column: Any) -> Ints:
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _open_captures(begins: Ints, ends: Ints, moments: Ints) -> Ints:
    """Captures begun less those ended at each moment; ``begins`` and ``ends`` are in order."""
    opened = np.searchsorted(begins, moments, "right") - np.searchsorted(ends, moments, "right")
    return np.asarray(opened, dtype=np.int64)


def without_operations(timeline: Timeline, categories: Iterable[str]) -> Finding:
    """What is known of a file without any GPU operation: its GPU was not idle, it was not seen."""
    if len(timeline.operations):
        return Finding()
    others = [name for name in categories if name.lower().startswith(OTHER_ACCELERATORS)]
    if others:
        kinds = ", ".join(sorted(others))
        return _no_operations(f"no CUDA or HIP operation: the events are of another accelerator ({kinds})")
    if calls := len(timeline.calls):
        return _no_operations(
            f"no GPU operation beside {calls} CUDA or HIP calls: the profiler recorded or kept no GPU "
            "activity, or all work was captured and never run"
        )
    return _no_operations(
        f"no GPU operation and no CUDA or HIP call, only {len(timeline.ranges)} operators and annotations: "
        "recorded without GPU activities, or nothing used a GPU"
    )


def _no_operations(problem: str) -> Finding:
    return Finding(0, (problem,))
