"""The frames of a timeline from the columns of a Kineto file.

GPU rows carry the device's index where host rows carry their process, so operations belong to the process
that recorded the file; where there are several, to the one that made the call of their correlation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from cudagraph_gate.timeline.api_names import is_blocking, is_graph_launch, is_launch
from cudagraph_gate.timeline.kineto_rows import (
    ANNOTATIONS,
    BAD_NUMBER,
    CALLS,
    COPIES,
    CPU_OPS,
    FUNCTIONS,
    KERNELS,
    MEMSETS,
    OPERATION_TABLES,
    OVERHEADS,
    SHAPE_COLUMNS,
    SYNCS,
    Columns,
)
from cudagraph_gate.timeline.kineto_sites import NOWHERE, function_site, innermost_around
from cudagraph_gate.timeline.table import (
    CALL_COLUMNS,
    COPY_NAMES,
    KERNEL,
    MEMCPY,
    MEMSET,
    OPERATION_COLUMNS,
    OVERHEAD_COLUMNS,
    RANGE_COLUMNS,
    frame,
)
from cudagraph_gate.timeline.texts import coded

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Table = dict[str, npt.NDArray[Any]]

ANNOTATION: Final = "annotation"
CPU_OP: Final = "cpu_op"
"""Domains of the ranges: the user's annotations and the framework's operators."""
IN_A_GRAPH: Final = 1
"""Stands for the graph of operations that a graph launch submitted where the file does not number graphs."""
OTHER_COPY: Final = "copy"
"""A copy whose name tells no direction."""
NO_SUBJECT: Final = 2**32 - 1
"""CUPTI_SYNCHRONIZATION_INVALID_VALUE: the synchronisation is about no stream or no event."""

_NONE: Final = np.zeros(0, dtype=np.int64)

Namer = Callable[[str], str]
"""What makes a name of the timeline from a name of the file."""

_KINDS: Final = {KERNELS: KERNEL, COPIES: MEMCPY, MEMSETS: MEMSET}
_DIRECTION: Final = re.compile(rf"\b({'|'.join(COPY_NAMES)})\b")
_LONG_DIRECTION: Final = re.compile(r"(Host|Device|Peer|Array)To(Host|Device|Peer|Array)")
_INT32: Final = np.iinfo(np.int32)


_OPERATION_NUMBERS: Final = (
    "device",
    "context",
    "stream",
    "correlation",
    "graph",
    "node",
    "bytes",
    *SHAPE_COLUMNS,
)

RECORDER_OVERHEADS: Final = frozenset(
    ("Activity Buffer Request", "Buffer Flush", "Instrumentation", "Resource")
)
"""What the recorder costs. The other kinds (module loading, a full command buffer, the compiler) the program
would have without it."""


class Frames:
    """The frames of one file.

    ``ambiguous`` counts operations whose correlation several processes used; ``shared`` holds ``process`` and
    ``correlation`` of the launches that made them, the first launches of each correlation.
    """

    def __init__(self, columns: Columns) -> None:
        self._names = list(columns.names)
        self._lost = columns.lost
        self._calls = columns.table(CALLS)
        self._cpu_ops = columns.table(CPU_OPS)
        self._annotations = columns.table(ANNOTATIONS)
        self._functions = columns.table(FUNCTIONS)
        self._process = self._main_process()
        self.ambiguous = 0
        self.shared = _submitted(_NONE, _NONE)
        self.operations = self._operation_frame(columns)
        self.calls = self._call_frame(columns.table(SYNCS))
        self.ranges = self._range_frame()
        self.overheads = self._overhead_frame(columns.table(OVERHEADS))

    def _main_process(self) -> int:
        """The process with most calls, else with most operators or annotations, else 0."""
        for rows in (self._calls, self._cpu_ops, self._annotations):
            if rows:
                processes, counts = np.unique(rows["pid"], return_counts=True)
                return int(processes[np.argmax(counts)])
        return 0

    # --- operations -------------------------------------------------------------------------------
    def _operation_frame(self, columns: Columns) -> pd.DataFrame:
        tables = {name: rows for name in OPERATION_TABLES if (rows := columns.table(name))}
        if not tables:
            return frame(OPERATION_COLUMNS)
        rows = _stacked(list(tables.values()), ("name", "start_ns", "end_ns", *_OPERATION_NUMBERS))
        kinds = np.repeat(np.arange(len(tables)), [len(table["name"]) for table in tables.values()])
        order = np.argsort(rows["start_ns"], kind="stable")
        rows, kinds = {name: values[order] for name, values in rows.items()}, kinds[order]
        process = self._submitters(rows)
        values = {
            "kind": coded(kinds, [_KINDS[name] for name in tables]),
            "name": self._categories(rows["name"], kinds, [_NAMERS[name] for name in tables]),
            **{name: rows[name] for name in ("start_ns", "end_ns", *_OPERATION_NUMBERS)},
            "process": process,
            "graph": self._graphs(rows, process),
        }
        return self._frame(OPERATION_COLUMNS, values)

    def _submitters(self, rows: Table) -> Ints:
        """The process of each operation; correlations that several processes used become 0: not guessed."""
        process = np.full(len(rows["correlation"]), self._process, dtype=np.int64)
        processes = np.unique(self._calls["pid"]) if self._calls else np.zeros(0, dtype=np.int64)
        if len(processes) < 2:
            return process
        matches = np.zeros(len(process), dtype=np.int64)
        for candidate in processes:
            own = self._calls["correlation"][self._calls["pid"] == candidate]
            found = np.isin(rows["correlation"], own) & (rows["correlation"] != 0)
            process[found] = candidate
            matches += found
        process[matches > 1] = self._process
        self.shared = self._launches_of(rows["correlation"][matches > 1])
        rows["correlation"] = np.where(matches > 1, 0, rows["correlation"])
        self.ambiguous = int((matches > 1).sum())
        return process

    def _launches_of(self, correlations: Ints) -> pd.DataFrame:
        """As many launches of each correlation as it has operations, the first ones.

        Which of them belongs to which launch is not known, but so many launches lack none.
        """
        numbers, counts = np.unique(correlations, return_counts=True)
        if not len(numbers):
            return _submitted(_NONE, _NONE)
        launches = self._chosen(self._calls["name"], is_launch)
        order = np.argsort(self._calls["start_ns"][launches], kind="stable")
        made = _submitted(*(self._calls[name][launches][order] for name in ("pid", "correlation")))
        place, found = _places(made["correlation"].to_numpy(), numbers)
        operations = np.where(found, counts[place], 0)
        return made[made.groupby("correlation").cumcount().to_numpy() < operations]

    def _graphs(self, rows: Table, process: Ints) -> Ints:
        """The file's graph numbers, and IN_A_GRAPH where only the launch call says that there is a graph."""
        launched = np.zeros(len(process), dtype=np.bool_)
        if self._calls:
            launches = self._chosen(self._calls["name"], is_graph_launch)
            for owner in np.unique(self._calls["pid"][launches]):
                own = self._calls["correlation"][launches & (self._calls["pid"] == owner)]
                launched |= np.isin(rows["correlation"], own[own != 0]) & (process == owner)
        return np.where((rows["graph"] == 0) & launched, IN_A_GRAPH, rows["graph"])

    # --- calls ------------------------------------------------------------------------------------
    def _call_frame(self, syncs: Table) -> pd.DataFrame:
        if not self._calls:
            return frame(CALL_COLUMNS)
        order = np.argsort(self._calls["start_ns"], kind="stable")
        rows = {name: values[order] for name, values in self._calls.items()}
        blocking = self._chosen(rows["name"], is_blocking)
        values = {
            "name": self._categories(rows["name"]),
            "start_ns": rows["start_ns"],
            "end_ns": rows["end_ns"],
            "process": rows["pid"],
            "thread": rows["tid"],
            "correlation": rows["correlation"],
            "blocking": blocking,
            "site": self._sites(rows, blocking),
            **_subjects(rows["correlation"], syncs),
        }
        return self._frame(CALL_COLUMNS, values)

    def _sites(self, rows: Table, blocking: Bools) -> Any:
        """Where blocking calls were made: they are few, and the ones to find in the program."""
        chosen = {name: values[blocking] for name, values in rows.items()}
        codes = np.full(len(chosen["name"]), NOWHERE, dtype=np.int64)
        source = np.zeros(len(codes), dtype=np.int64)
        functions = self._with_sites(self._functions)
        for kind, intervals in enumerate((self._cpu_ops, functions)):
            if intervals:
                row = innermost_around(chosen, intervals)
                codes[row != NOWHERE] = intervals["name"][row[row != NOWHERE]]
                source[row != NOWHERE] = kind
        # One name more, the empty one, stands for the calls without a site.
        everywhere = np.full(len(blocking), len(self._names), dtype=np.int64)
        everywhere[blocking] = np.where(codes == NOWHERE, len(self._names), codes)
        kinds = np.zeros(len(blocking), dtype=np.int64)
        kinds[blocking] = source
        return self._categories(everywhere, kinds, [_itself, function_site])

    def _with_sites(self, functions: Table) -> Table:
        if not functions:
            return {}
        kept = self._chosen(functions["name"], lambda name: bool(function_site(name)))
        return {name: values[kept] for name, values in functions.items()}

    # --- ranges and overheads ---------------------------------------------------------------------
    def _range_frame(self) -> pd.DataFrame:
        tables = {
            domain: rows
            for domain, rows in ((ANNOTATION, self._annotations), (CPU_OP, self._cpu_ops))
            if rows
        }
        if not tables:
            return frame(RANGE_COLUMNS)
        rows = _stacked(list(tables.values()), ("name", "start_ns", "end_ns", "pid", "tid"))
        domains = np.repeat(np.arange(len(tables)), [len(table["name"]) for table in tables.values()])
        order = np.argsort(rows["start_ns"], kind="stable")
        rows, domains = {name: values[order] for name, values in rows.items()}, domains[order]
        values = {
            "name": self._categories(rows["name"]),
            "domain": coded(domains, list(tables)),
            "start_ns": rows["start_ns"],
            "end_ns": rows["end_ns"],
            "process": rows["pid"],
            "thread": rows["tid"],
            "end_thread": rows["tid"],
        }
        return self._frame(RANGE_COLUMNS, values)

    def _overhead_frame(self, rows: Table) -> pd.DataFrame:
        if not rows:
            return frame(OVERHEAD_COLUMNS)
        own = self._chosen(rows["name"], RECORDER_OVERHEADS.__contains__)
        values = {
            "name": self._categories(rows["name"][own]),
            "start_ns": rows["start_ns"][own],
            "end_ns": rows["end_ns"][own],
            # Kineto's overhead rows name no process (pid -1).
            "process": np.full(int(own.sum()), self._process, dtype=np.int64),
        }
        return self._frame(OVERHEAD_COLUMNS, values)

    # --- names and numbers ------------------------------------------------------------------------
    def _categories(self, codes: Ints, kinds: Ints | None = None, namers: list[Namer] | None = None) -> Any:
        """Names of ``codes``; ``kinds`` says by which of ``namers`` each is made from the file's name."""
        namers = namers or [_itself]
        names = [*self._names, ""]
        keys = codes if kinds is None else codes + kinds * len(names)
        distinct = np.flatnonzero(np.bincount(keys))
        texts = [namers[int(key) // len(names)](names[int(key) % len(names)]) for key in distinct]
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        place = np.zeros(len(namers) * len(names), dtype=np.int64)
        place[distinct] = [places[text] for text in texts]
        return coded(place[keys], list(places))

    def _chosen(self, codes: Ints, wanted: Callable[[str], bool]) -> Bools:
        """Whether each name is wanted."""
        answers = np.zeros(len(self._names), dtype=np.bool_)
        for code in np.flatnonzero(np.bincount(codes)):
            answers[code] = wanted(self._names[code])
        return np.asarray(answers[codes], dtype=np.bool_)

    def _frame(self, columns: Mapping[str, str], values: dict[str, Any]) -> pd.DataFrame:
        """The frame; numbers beyond a column's 32 bits count as 0 and are counted."""
        for name in values:
            if columns[name] == "int32":
                outside = (values[name] < _INT32.min) | (values[name] > _INT32.max)
                self._lost["events", BAD_NUMBER] += int(outside.sum())
                values[name] = np.where(outside, 0, values[name]).astype(np.int32)
        return frame(columns, values)


def copy_direction(name: str) -> str:
    """``HtoD`` from ``Memcpy HtoD (Pageable -> Device)`` or ``CopyHostToDevice``; else ``copy``."""
    if found := _DIRECTION.search(name):
        return found.group(1)
    if spelled := _LONG_DIRECTION.search(name):
        return f"{spelled.group(1)[0]}to{spelled.group(2)[0]}"
    return OTHER_COPY


def _itself(name: str) -> str:
    return name


def _memset(_: str) -> str:
    return MEMSET


_NAMERS: Final[dict[str, Namer]] = {KERNELS: _itself, COPIES: copy_direction, MEMSETS: _memset}


def _stacked(tables: list[Table], columns: tuple[str, ...]) -> Table:
    """The tables one below the other; what a table lacks is 0."""
    none = [np.zeros(len(table["name"]), dtype=np.int64) for table in tables]
    return {
        column: np.concatenate([table.get(column, zeros) for table, zeros in zip(tables, none, strict=True)])
        for column in columns
    }


def _submitted(process: Ints, correlation: Ints) -> pd.DataFrame:
    return pd.DataFrame({"process": process, "correlation": correlation})


def _subjects(correlation: Ints, syncs: Table) -> dict[str, Ints]:
    """Stream and event of the calls that synchronisation rows tell of, found by correlation.

    A wait names the call that recorded its event, so that one gets its stream and event as well.
    """
    stream, event = np.zeros_like(correlation), np.zeros_like(correlation)
    if syncs:
        for key, on in (("correlation", "stream"), ("wait_record", "wait_stream")):
            place, found = _places(correlation, syncs[key])
            stream[found] = _known(syncs[on])[place[found]]
            event[found] = _known(syncs["wait_event"])[place[found]]
    return {"stream": stream, "event": event}


def _known(numbers: Ints) -> Ints:
    return np.where(numbers == NO_SUBJECT, 0, numbers)


def _places(wanted: Ints, given: Ints) -> tuple[Ints, Bools]:
    """Row of ``given`` that holds each wanted number, and whether there is one; 0 is no number."""
    keys, first = np.unique(given, return_index=True)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.asarray(first[place], dtype=np.int64), np.asarray((keys[place] == wanted) & (wanted != 0))
