"""NVTX ranges, recorder overhead and CPU time of threads of an Nsight Systems export."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.timeline.nsys_database import Database, Int64, Rows, text_of
from cudagraph_gate.timeline.nsys_pages import NULL
from cudagraph_gate.timeline.nsys_rows import (
    ID_BITS,
    ID_MASK,
    MOMENTS,
    NO_NAME,
    NOT_NAMED,
    Bools,
    Processes,
    Strings,
    Values,
    as_frame,
    in_order,
    or_zero,
    picked,
    sensible,
    thread_of,
)
from cudagraph_gate.timeline.table import CPU_TIME_COLUMNS, OVERHEAD_COLUMNS, RANGE_COLUMNS
from cudagraph_gate.timeline.texts import coded

NVTX: Final = "NVTX_EVENTS"
RANGE_TYPES: Final = (59, 60, 70, 71)
"""Push/pop and start/end ranges, of the program and of text files (ENUM_NSYS_EVENT_TYPE)."""
DOMAIN_TYPES: Final = (75,)
"""A row of this type names a domain of its process."""
DOMAIN_MASK: Final = (1 << 32) - 1
"""Numbers of domains have 32 bits."""
DEFAULT_DOMAIN: Final = "NVTX"

OVERHEADS: Final = "PROFILER_OVERHEAD"
CUPTI_OVERHEADS: Final = "CUPTI_ACTIVITY_KIND_OVERHEAD"
PROGRAM_OVERHEADS: Final = (2, 6, 7, 8)
"""Overhead types that the program would have without the recorder too: the driver's compiler, module loading,
lazy loading, a full command buffer (ENUM_CUPTI_OVERHEAD_TYPE)."""
RECORDER_OVERHEADS: Final = (3, 4, 5)
"""Buffer flush, instrumentation, resource creation of the recorder."""

SCHEDULING: Final = "SCHED_EVENTS"


class Ranges:
    """Reads the NVTX ranges that have a start and an end into ``frame``; marks are left out."""

    def __init__(self, database: Database, strings: Strings, processes: Processes) -> None:
        self._database = database
        self._strings = strings
        self._processes = processes
        self.frame = as_frame(RANGE_COLUMNS, self._values())

    def _values(self) -> Values:
        rows, texts = self._rows()
        if not len(texts):
            return {}
        kind = rows["eventType"]
        marked = np.isin(kind, RANGE_TYPES) | ((kind == NULL) & (rows["end"] != NULL))
        complete = marked & sensible(rows)
        if lost := int(marked.sum() - complete.sum()):
            self._database.problems.append(f"{lost} ranges have no complete times and are left out")
        names = _text_column(texts, rows["textId"], self._strings)
        process = self._processes.of(rows["globalTid"])
        domain = self._domains(rows, process, names, complete)
        rows = picked(rows, complete)
        end_thread = np.where(rows["endGlobalTid"] == NULL, rows["globalTid"], rows["endGlobalTid"])
        values = {
            "name": names[complete].remove_unused_categories(),
            "domain": domain,
            "start_ns": rows["start"],
            "end_ns": rows["end"],
            "process": process[complete],
            "thread": thread_of(rows["globalTid"]),
            "end_thread": thread_of(end_thread),
        }
        # Equal ranges are no duplicates: what is pushed twice in the same nanosecond was pushed twice.
        return picked(values, np.argsort(rows["start"], kind="stable"))

    def _rows(self) -> tuple[Rows, list[str | None]]:
        optional = ("eventType", "textId", "domainId", "globalTid", "endGlobalTid")
        rows = self._database.integers(NVTX, ("start", "end"), optional)
        if rows is None:
            return {}, []
        count = len(rows["start"])
        if not self._database.has(NVTX, "text"):
            return rows, [None] * count
        texts: list[str | None] = [text for (text,) in self._database.values(NVTX, ("text",))]
        if len(texts) != count:  # a damaged table: SQLite stops at the same row for every column
            rows = self._database.integers(NVTX, ("start", "end"), optional, by_sqlite=True) or {}
            count = min(len(rows["start"]), len(texts))
            rows, texts = picked(rows, slice(count)), texts[:count]
        return rows, texts

    def _domains(self, rows: Rows, process: Int64, names: pd.Categorical, chosen: Bools) -> pd.Categorical:
        """Name of the domain of each chosen row; domains are numbered by process."""
        key = process << 32 | or_zero(rows["domainId"]) & DOMAIN_MASK
        created = np.flatnonzero(np.isin(rows["eventType"], DOMAIN_TYPES))
        named = {int(key[row]): str(names[row]) for row in created}
        codes, distinct = pd.factorize(key[chosen])
        texts = [named.get(int(one), _unnamed(int(one) & DOMAIN_MASK)) for one in distinct]
        unknown = sum(int(one) not in named and bool(int(one) & DOMAIN_MASK) for one in distinct)
        if unknown:
            self._database.problems.append(f"{unknown} NVTX domains have no name in the file")
        return coded(codes, texts)


def _unnamed(number: int) -> str:
    return f"domain {number}" if number else DEFAULT_DOMAIN


def _text_column(texts: list[str | None], ids: Int64, strings: Strings) -> pd.Categorical:
    """The text of each row: its own, else the string that it names, else NO_NAME."""
    codes, distinct = pd.factorize(np.array(texts, dtype=object))
    own = coded(codes, [text_of(text) for text in distinct]) if (codes >= 0).all() else None
    if own is not None:
        return own
    places, numbers = pd.factorize(np.where(codes >= 0, NULL, ids))
    found = [NO_NAME if strings.lacks(int(number)) else strings.text(int(number)) for number in numbers]
    return coded(
        np.where(codes >= 0, codes, places + len(distinct)), [*(text_of(text) for text in distinct), *found]
    )


def overheads_of(database: Database, strings: Strings, processes: Processes) -> pd.DataFrame:
    """Intervals that the recorder itself cost; what the program would cost without it is left out."""
    parts = [_overheads(database, strings, processes, table) for table in (OVERHEADS, CUPTI_OVERHEADS)]
    values, _ = in_order(OVERHEAD_COLUMNS, parts, ("end_ns", "process", "name"))
    return as_frame(OVERHEAD_COLUMNS, values)


def _overheads(database: Database, strings: Strings, processes: Processes, table: str) -> Values:
    rows = database.integers(table, ("start", "end"), ("globalTid", "nameId", "overheadType"))
    if rows is None:
        return {"start_ns": np.zeros(0, np.int64)}
    if table == OVERHEADS:
        of_recorder = ~np.isin(rows["overheadType"], PROGRAM_OVERHEADS)
    else:
        of_recorder = np.isin(rows["overheadType"], RECORDER_OVERHEADS)
    rows = picked(rows, of_recorder & sensible(rows))
    return {
        "name": strings.column(rows["nameId"]),
        "start_ns": rows["start"],
        "end_ns": rows["end"],
        "process": processes.of(rows["globalTid"]),
    }


def cpu_times_of(database: Database, calls: pd.DataFrame, processes: Processes) -> pd.DataFrame:
    """When the threads that made API calls were on a CPU, from one scheduling event to the next.

    A stretch between two events that don't fit together (one was lost) is left out: it was not sampled.
    """
    rows = database.integers(SCHEDULING, ("start", "isSchedIn", "globalTid"))
    if rows is None or calls.empty:
        return as_frame(CPU_TIME_COLUMNS, {})
    process, start = processes.known(rows["globalTid"]), rows["start"]
    key = process << ID_BITS | thread_of(rows["globalTid"])
    callers = calls[["process", "thread"]].drop_duplicates().to_numpy(dtype=np.int64)
    of_caller = (process != NOT_NAMED) & np.isin(key, callers[:, 0] << ID_BITS | callers[:, 1])
    wanted = of_caller & (start > -MOMENTS) & (start < MOMENTS)
    key, start, scheduled = key[wanted], start[wanted], rows["isSchedIn"][wanted]
    order = np.lexsort((start, key))
    key, start, scheduled = key[order], start[order], scheduled[order]
    told = np.isin(scheduled, (0, 1))
    turns = told[1:] & told[:-1] & (scheduled[1:] != scheduled[:-1])
    fits = (key[1:] == key[:-1]) & turns & (start[1:] > start[:-1])
    at = np.flatnonzero(fits)
    values = {
        "process": key[at] >> ID_BITS,
        "thread": key[at] & ID_MASK,
        "start_ns": start[at],
        "end_ns": start[at + 1],
        "on_cpu_ns": np.where(scheduled[at] == 1, start[at + 1] - start[at], 0),
    }
    return as_frame(CPU_TIME_COLUMNS, values)
