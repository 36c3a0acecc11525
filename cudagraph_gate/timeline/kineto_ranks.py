"""A folder of Kineto files, one a rank, as one timeline.

Problems speak of "file 1 of 4" in order of name: torch's own file names hold the name of the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from cudagraph_gate.errors import EvidenceError
from cudagraph_gate.timeline.kineto import SOURCE, read_kineto
from cudagraph_gate.timeline.kineto_checks import filled
from cudagraph_gate.timeline.table import FAMILIES, Timeline, TimelineMeta

TRACE_FILES: Final = ("*.json", "*.json.gz")
OTHER_TRACES: Final = (".sqlite", ".nsys-rep", ".qdrep", ".qdstrm", ".ncu-rep")
"""Traces of Nsight by the ends of their names: a folder is read for Kineto files only."""
NAMED_FILES: Final = 8
"""So many files are named by number in one line; more are counted."""


def read_ranks(folder: Path) -> Timeline:
    """Read all Kineto files of a folder, one a rank, as one timeline.

    Processes that carry the same number in several files get numbers of their own. Problems begin with the
    number of their file; files that can't be read are problems too. Raises EvidenceError if none can, and
    where files share no moment with the others: what lies between them would count as idle time.
    """
    if not folder.is_dir():
        raise EvidenceError("not a folder of traces", where=str(folder))
    paths, twice = _rank_files(folder)
    read: dict[int, Timeline] = {}
    problems: list[str] = []
    for number, path in enumerate(paths, 1):
        name = _file(number, len(paths))
        if path in twice:
            problems.append(f"{name} is there plain and compressed: one of them is read")
        try:
            read[number] = read_kineto(path)
        except EvidenceError as error:
            problems.append(f"{name}: not read: {error.what}")
            continue
        problems += [f"{name}: {line}" for line in read[number].meta.problems]
    if not read:
        raise EvidenceError(problems[0] if problems else "no .json or .json.gz file in it", where=str(folder))
    if apart := _apart(read):
        raise EvidenceError(_recorded_apart(apart, len(paths)), where=str(folder))
    return _joined(list(read.values()), [*problems, *_not_read(folder)])


def _rank_files(folder: Path) -> tuple[list[Path], set[Path]]:
    """The files to read in order of name, and those of them whose compressed twin is left out."""
    found = sorted({path for pattern in TRACE_FILES for path in folder.glob(pattern) if path.is_file()})
    plain = {path.name for path in found}
    twins = {path for path in found if path.name.removesuffix(".gz") in plain - {path.name}}
    return [path for path in found if path not in twins], {path.with_suffix("") for path in twins}


def _file(number: int, of: int) -> str:
    return f"file {number} of {of}"


def _not_read(folder: Path) -> list[str]:
    kinds = Counter(path.suffix.lower() for path in folder.iterdir() if path.is_file())
    return [
        f"{kinds[kind]} {kind} {'file' if kinds[kind] == 1 else 'files'} beside the JSON files not read"
        for kind in OTHER_TRACES
        if kinds[kind]
    ]


# --- moments --------------------------------------------------------------------------------------
def _apart(read: dict[int, Timeline]) -> list[int]:
    """The files that share no moment, not even by way of other files, with the largest group that does."""
    spans = sorted((*_span(timeline), number) for number, timeline in read.items() if filled(timeline))
    groups: list[list[int]] = []
    latest = 0
    for start, end, number in spans:
        if groups and start <= latest:
            groups[-1].append(number)
        else:
            groups.append([number])
            latest = end
        latest = max(latest, end)
    together = max(groups, key=len, default=[])
    return sorted(number for group in groups if group is not together for number in group)


def _span(timeline: Timeline) -> tuple[int, int]:
    frames = filled(timeline)
    return (
        min(int(rows["start_ns"].min()) for rows in frames),
        max(int(rows["end_ns"].max()) for rows in frames),
    )


def _recorded_apart(apart: list[int], files: int) -> str:
    if len(apart) == 1:
        which = f"{_file(apart[0], files)} shares"
    elif len(apart) <= NAMED_FILES:
        which = f"files {', '.join(map(str, apart))} of {files} share"
    else:
        which = f"{len(apart)} of {files} files share"
    why = "recorded at other times or by other clocks: read them one by one"
    return f"{which} no moment with the others: {why}"


# --- one timeline ---------------------------------------------------------------------------------
def _joined(read: list[Timeline], problems: list[str]) -> Timeline:
    timelines = list(_with_own_processes(read))
    metas = [timeline.meta for timeline in timelines]
    meta = TimelineMeta(
        source=f"{SOURCE}, {len(read)} files",
        level="full" if any(meta.level == "full" for meta in metas) else "light",
        resolution_ns=max(meta.resolution_ns for meta in metas),
        dropped_records=sum(meta.dropped_records for meta in metas),
        problems=tuple(problems),
    )
    frames = {family: _stacked([getattr(timeline, family) for timeline in timelines]) for family in FAMILIES}
    return Timeline(meta=meta, **frames)


def _with_own_processes(timelines: Iterable[Timeline]) -> Iterator[Timeline]:
    """The timelines, each process that an earlier one used already under the next free number."""
    used: set[int] = set()
    for timeline in timelines:
        own = {int(process) for rows in filled(timeline) for process in rows["process"].unique()}
        numbers: dict[int, int] = {}
        for process in sorted(own):
            taken = used | set(numbers.values()) | own
            numbers[process] = process if process not in used else max(taken) + 1
        used |= set(numbers.values())
        yield _renumbered(timeline, numbers)


def _renumbered(timeline: Timeline, numbers: dict[int, int]) -> Timeline:
    if all(old == new for old, new in numbers.items()):
        return timeline
    for rows in filled(timeline):
        rows["process"] = rows["process"].map(numbers).astype("int32")
    return timeline


def _stacked(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """Frames of one family below each other, in order of start."""
    joined: dict[str, Any] = {}
    for name, dtype in parts[0].dtypes.items():
        columns = [part[name] for part in parts]
        if dtype == "category":
            joined[str(name)] = union_categoricals(columns)
        else:
            joined[str(name)] = np.concatenate([column.to_numpy() for column in columns])
    return pd.DataFrame(joined).sort_values("start_ns", kind="stable", ignore_index=True)
