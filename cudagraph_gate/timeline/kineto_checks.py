"""What a Kineto timeline can't be trusted in: jumped clocks, launches without their work, no GPU rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from cudagraph_gate.timeline.api_names import is_kernel_launch, is_launch
from cudagraph_gate.timeline.kineto_rows import OTHER_ACCELERATORS
from cudagraph_gate.timeline.lost_launches import captured_launches, lost_and_unfinished
from cudagraph_gate.timeline.table import Timeline

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

APART_NS: Final = 3_600_000_000_000
"""One hour: a profiler's recording lasts seconds to minutes, so what is further from the rest is a clock that
jumped or another recording."""
SUBMITTER: Final = ["process", "correlation"]
"""What joins an operation to its call."""
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


def launches_without_operation(timeline: Timeline, shared: pd.DataFrame) -> Finding:
    """Launch calls without an operation in the file: captured, unfinished or lost (:mod:`lost_launches`).

    ``shared`` holds ``process`` and ``correlation`` of launches that have an operation though it is not known
    which. Graph launches say when others ran, but are not counted: their own idle time is not measured.
    """
    launches, operations = _named(timeline.calls, is_launch), timeline.operations
    if operations.empty or launches.empty:
        return Finding()
    submitted = pd.concat([operations[SUBMITTER], shared]) if len(shared) else operations
    captured = captured_launches(submitted, launches, timeline.calls)
    kernels = _is_named(launches, is_kernel_launch)
    lost, unfinished = lost_and_unfinished(submitted, launches, captured | ~kernels)
    problems = []
    if count := int((captured & kernels).sum()):
        problems.append(
            f"{count} of {int(kernels.sum())} launch calls were captured into a graph and have no operation: "
            "the file was recorded during capture and says little of the normal path"
        )
    if lost:
        problems.append(f"{lost} of {int(kernels.sum())} launch calls have no operation in the file")
    if unfinished:
        problems.append(f"{unfinished} launches had not run when the recording ended, or lack their records")
    return Finding(lost, tuple(problems))


def _named(calls: pd.DataFrame, wanted: Callable[[str], bool]) -> pd.DataFrame:
    return calls[_is_named(calls, wanted)]


def _is_named(calls: pd.DataFrame, wanted: Callable[[str], bool]) -> Bools:
    names = [name for name in calls["name"].cat.categories if wanted(name)]
    return np.asarray(calls["name"].isin(names).to_numpy(), dtype=np.bool_)


def _starts(calls: pd.DataFrame) -> Ints:
    return np.asarray(calls["start_ns"].to_numpy(), dtype=np.int64)


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
