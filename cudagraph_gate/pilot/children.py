"""Child processes of a recorded script: recorded as well, or named as not recorded.

A child is known by the base name of its program; its arguments are never looked at. A forked child shares
the parent's recorder, which CUDA and CUPTI do not survive, so it is never recorded.
"""

from __future__ import annotations

import multiprocessing.process
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from cudagraph_gate.errors import EvidenceError
from cudagraph_gate.pilot.child_recording import REFUSED, STARTED, TIMELINE, start_time
from cudagraph_gate.timeline.table import FAMILIES, Timeline, frame, load

HOOK_FOLDER: Final = Path(__file__).parent / "child_hook"
PACKAGE_ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER_VARIABLE: Final = "CGATE_CHILDREN_FOLDER"
ROOT_VARIABLE: Final = "CGATE_CHILDREN_ROOT"
GRACE_S: Final = 10.0
"""How long children that are told to end may take to write their timelines."""
POLL_S: Final = 0.05
FORKED: Final = "forked"

_STARTING: Final = ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.spawn")
"""Audit events whose first argument is the program that starts."""


class Children:
    """Counts the processes that this one starts, by program; ``folder`` takes recordings of Python ones.

    Without a folder nothing is recorded of them. Made once in a process: its audit hook stays.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._process = os.getpid()
        self.programs: Counter[str] = Counter()
        """Program's base name, or ``forked``, to processes started."""

    def watch(self) -> None:
        """Count from now on, and let Python children record themselves if there is a folder for it."""
        sys.addaudithook(self._heard)
        multiprocessing.process.BaseProcess.start = _counting(  # type: ignore[method-assign]
            multiprocessing.process.BaseProcess.start, self.programs
        )
        if self._folder is not None:
            self._folder.mkdir(exist_ok=True)
            before = os.environ.get("PYTHONPATH", "")
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HOOK_FOLDER), before)))
            os.environ[FOLDER_VARIABLE] = str(self._folder)
            os.environ[ROOT_VARIABLE] = str(PACKAGE_ROOT)

    def end(self, grace_s: float = GRACE_S) -> None:
        """Tell children that still record to end, and wait for their timelines."""
        if self._folder is None:
            return
        for process in _recording(self._folder):
            with suppress(OSError):
                os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline and _recording(self._folder):
            time.sleep(POLL_S)

    def timelines(self) -> tuple[list[Timeline], list[str]]:
        """What the children recorded, and what was not recorded of whom; their files are gone afterwards."""
        try:
            return self._timelines()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _timelines(self) -> tuple[list[Timeline], list[str]]:
        if self._folder is None:
            return [], [*self._unrecorded(self.programs, ": --trace-children records Python ones")]
        found, problems = [], []
        for path in sorted(self._folder.glob(f"*{TIMELINE}")):
            try:
                found.append(load(path))
            except EvidenceError as error:
                problems.append(f"the recording of a child process can't be read ({error.what})")
        lost = len(list(self._folder.glob(f"*{STARTED}")))
        if lost:
            problems.append(f"{_processes(lost)} ended without leaving a recording: killed, or crashed")
        refused = Counter(path.read_text() for path in self._folder.glob(f"*{REFUSED}"))
        problems += [f"{_processes(count)} can't be recorded: {why}" for why, count in refused.items()]
        others = Counter({name: n for name, n in self.programs.items() if not _is_python(name)})
        return found, [*problems, *self._unrecorded(others, "")]

    def _unrecorded(self, programs: Counter[str], hint: str) -> Iterable[str]:
        started = Counter({name: count for name, count in programs.items() if name != FORKED})
        if started:
            names = ", ".join(sorted(started))
            were = "was" if started.total() == 1 else "were"
            yield f"{_processes(started.total())} ({names}) {were} not recorded{hint}"
        if forked := programs[FORKED]:
            were = "was" if forked == 1 else "were"
            yield f"{_processes(forked)} {were} forked and not recorded: CUDA can't be used in a fork"

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if os.getpid() != self._process:
            return
        if event in _STARTING:
            self.programs[_base_name(arguments[0])] += 1
        elif event == "os.system":
            self.programs["sh"] += 1
        elif event in ("os.fork", "os.forkpty"):
            self.programs[FORKED] += 1


def _recording(folder: Path) -> list[int]:
    """Children that record and still run: not a later process that was given the number of a dead one."""
    found = []
    for path in folder.glob(f"*{STARTED}"):
        with suppress(OSError):  # it wrote its timeline at this moment
            process, began = int(path.stem), path.read_text()
            if began and start_time(process) == began:
                found.append(process)
    return found


def _counting(start: Callable[..., None], programs: Counter[str]) -> Callable[..., None]:
    """``multiprocessing``'s start, which raises no audit event unless it forks."""

    def counted(process: multiprocessing.process.BaseProcess) -> None:
        start(process)
        method = getattr(getattr(process, "_popen", None), "method", "")
        if method != "fork":
            programs[_base_name(sys.executable)] += 1

    return counted


def _processes(count: int) -> str:
    return "1 child process" if count == 1 else f"{count} child processes"


def _base_name(program: Any) -> str:
    try:
        return os.path.basename(os.fsdecode(program))  # noqa: PTH119  (of bytes or text, as given)
    except (TypeError, ValueError):
        return "unknown"


def _is_python(name: str) -> bool:
    return name.startswith("python")


def merged(own: Timeline, others: Sequence[Timeline]) -> Timeline:
    """One timeline of several processes, whose clocks are one; problems and dropped records add up."""
    if not others:
        return own
    every = (own, *others)
    meta = msgspec.structs.replace(
        own.meta,
        dropped_records=sum(timeline.meta.dropped_records for timeline in every),
        problems=tuple(dict.fromkeys(text for timeline in every for text in timeline.meta.problems)),
    )
    families = {
        family: _joined(columns, [getattr(timeline, family) for timeline in every])
        for family, columns in FAMILIES.items()
    }
    return replace(own, meta=meta, **families)


def _joined(columns: Any, parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    filled = [part for part in parts if len(part)] or list(parts[:1])
    values: dict[str, Any] = {
        name: union_categoricals([part[name] for part in filled])
        if dtype == "category"
        else np.concatenate([part[name].to_numpy() for part in filled])
        for name, dtype in columns.items()
    }
    return frame(columns, values).sort_values("start_ns", kind="stable", ignore_index=True)
