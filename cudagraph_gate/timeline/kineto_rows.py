"""Kineto events as columns: each list of events becomes NumPy arrays at once, names become codes."""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cudagraph_gate.timeline.kineto_events import NO_ARGUMENTS, Arguments, Event

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

KERNELS: Final = "kernels"
COPIES: Final = "copies"
MEMSETS: Final = "memsets"
CALLS: Final = "calls"
SYNCS: Final = "syncs"
ANNOTATIONS: Final = "annotations"
CPU_OPS: Final = "cpu_ops"
FUNCTIONS: Final = "functions"
OVERHEADS: Final = "overheads"
"""What a timeline is made of; each is a table of columns here."""

TABLES: Final = {
    "kernel": KERNELS,
    "gpu_memcpy": COPIES,
    "memcpy": COPIES,
    "gpu_memset": MEMSETS,
    "memset": MEMSETS,
    "cuda_runtime": CALLS,
    "runtime": CALLS,
    "cuda_driver": CALLS,
    "driver": CALLS,
    "hip_runtime": CALLS,
    "cuda_sync": SYNCS,
    "user_annotation": ANNOTATIONS,
    "cpu_op": CPU_OPS,
    "operator": CPU_OPS,
    "python_function": FUNCTIONS,
    "overhead": OVERHEADS,
}
"""Category, in small letters, to table: the short names are those of 2020 to 2022."""
OPERATION_TABLES: Final = (KERNELS, COPIES, MEMSETS)
ARGUMENT_COLUMNS: Final = {
    KERNELS: ("device", "context", "stream", "correlation", "graph", "node"),
    COPIES: ("device", "context", "stream", "correlation", "graph", "node", "bytes"),
    MEMSETS: ("device", "context", "stream", "correlation", "graph", "node", "bytes"),
    CALLS: ("correlation",),
    SYNCS: ("stream", "correlation", "wait_stream", "wait_event", "wait_record"),
}
PLACE_COLUMNS: Final = ("pid", "tid")
SHAPE_COLUMNS: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")

OTHER_ACCELERATORS: Final = ("mtia_", "hpu_", "xpu_", "privateuse1_", "glow_")
"""How Kineto's categories of accelerators without CUDA or HIP begin."""
COMPLETE: Final = "X"
PAIRED: Final = ("B", "E")
PASSED_OVER: Final = frozenset("MiIRstfCnbeNODPvVc()")
"""Phases that hold no interval of one thread: metadata, instants, flows, counters, objects and the like."""

LATEST_US: Final = 9.0e15
"""No time beyond the year 2255: what is later would not fit into 64 bits of ns."""
LARGEST_INT64: Final = 2**63 - 1

BAD_START: Final = "have no valid start time"
BAD_DURATION: Final = "have no valid duration"
BAD_NUMBER: Final = "have a number that can't be read and counts as 0"
UNPAIRED: Final = "begin or end without the other"
UNKNOWN_PHASE: Final = "have an unknown phase"
NO_EVENT: Final = "are no events"

_DIGITS: Final = re.compile(r"-?\d+")


class Names(dict[str, int]):
    """Distinct names in the order of their first appearance, each with its code."""

    def __missing__(self, name: str) -> int:
        code = self[name] = len(self)
        return code


class Columns:
    """The columns of all tables of one file, grown list by list."""

    def __init__(self) -> None:
        self.names = Names()
        self.lost: Counter[tuple[str, str]] = Counter()
        """(table, reason) -> rows left out or damaged."""
        self.categories: Counter[str] = Counter()
        """Complete events by category, as far as they are in no table."""
        self.fractional = False
        """Whether any time had a fraction of a µs."""
        self.latest_us = 0.0
        self._parts: dict[str, list[dict[str, npt.NDArray[Any]]]] = defaultdict(list)
        self._open: dict[tuple[Any, Any], list[Event]] = defaultdict(list)

    def add(self, events: list[Event]) -> None:
        """Add a list of events in the file's order."""
        sorted_out: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            if event.ph == COMPLETE:
                sorted_out[event.cat].append(event)
            elif event.ph not in PASSED_OVER:
                self._add_unusual(event, sorted_out)
        for category, rows in sorted_out.items():
            table = TABLES.get(category.lower())
            if table is None:
                self.categories[category] += len(rows)
            else:
                self._add_rows(table, rows)

    def close(self) -> None:
        """Say what never ended; no events may follow."""
        if unended := sum(len(rows) for rows in self._open.values()):
            self.lost["events", UNPAIRED] += unended

    @property
    def any_events(self) -> bool:
        """Whether there was any complete event."""
        return bool(self._parts or self.categories)

    def table(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """The columns of a table, each as one array; {} where the file has no row of it."""
        parts = self._parts.pop(name, [])
        columns = parts[0] if parts else {}
        return {column: np.concatenate([part[column] for part in parts]) for column in columns}

    def _add_unusual(self, event: Event, sorted_out: dict[str, list[Event]]) -> None:
        """Two events that begin and end an interval become one complete event."""
        if not event.ph:
            self.lost["entries", NO_EVENT] += 1
            return
        if event.ph not in PAIRED:
            self.lost["events", UNKNOWN_PHASE] += 1
            return
        waiting = self._open[event.pid, event.tid]
        if event.ph == "B":
            waiting.append(event)
        elif waiting:
            begun = waiting.pop()
            begun.dur = event.ts - begun.ts
            sorted_out[begun.cat].append(begun)
        else:
            self.lost["events", UNPAIRED] += 1

    def _add_rows(self, table: str, rows: list[Event]) -> None:
        starts, durations = _matrix(rows, ("ts", "dur"), np.float64)
        good_start = (starts >= 0) & (starts < LATEST_US)
        good = good_start & (durations >= 0) & (durations < LATEST_US)
        if not good.all():
            self.lost[table, BAD_START] += int((~good_start).sum())
            self.lost[table, BAD_DURATION] += int((good_start & ~good).sum())
            rows = [row for row, kept in zip(rows, good, strict=True) if kept]
            starts, durations = starts[good], durations[good]
        if rows:
            self._parts[table].append({**self._times(starts, durations), **self._fields(table, rows)})

    def _times(self, starts: Floats, durations: Floats) -> dict[str, Ints]:
        self.latest_us = max(self.latest_us, float(np.max(starts)))
        if not self.fractional:
            self.fractional = bool((starts % 1).any() or (durations % 1).any())
        start_ns = nanoseconds(starts)
        return {"start_ns": start_ns, "end_ns": start_ns + nanoseconds(durations)}

    def _fields(self, table: str, rows: list[Event]) -> dict[str, Ints]:
        names = map(self.names.__getitem__, map(attrgetter("name"), rows))
        columns = {"name": np.fromiter(names, dtype=np.int64, count=len(rows))}
        if table not in OPERATION_TABLES:
            columns |= self._numbers(table, rows, PLACE_COLUMNS)
        wanted = ARGUMENT_COLUMNS.get(table, ())
        if not wanted:
            return columns
        arguments = [row.args or NO_ARGUMENTS for row in rows]
        columns |= self._numbers(table, arguments, wanted)
        if table in OPERATION_TABLES:
            self._complete(table, rows, arguments, columns)
        return columns | (_shapes(arguments) if table == KERNELS else {})

    def _complete(
        self, table: str, rows: list[Event], arguments: list[Arguments], columns: dict[str, Ints]
    ) -> None:
        """Old and hand-made rows say device and stream only by the row of the picture that they stand in."""
        for name, instead in zip(("device", "stream"), PLACE_COLUMNS, strict=True):
            values = list(map(attrgetter(name), arguments))
            if None in values:
                missing = np.array([value is None for value in values])
                place = self._numbers(table, rows, (instead,))[instead]
                columns[name] = np.where(missing, place, columns[name])

    def _numbers(
        self, table: str, rows: Sequence[Event | Arguments], names: tuple[str, ...]
    ) -> dict[str, Ints]:
        try:
            return dict(zip(names, _matrix(rows, names, np.int64), strict=True))
        except (TypeError, ValueError, OverflowError):
            return {name: self._odd_numbers(table, rows, name) for name in names}

    def _odd_numbers(self, table: str, rows: Sequence[Event | Arguments], name: str) -> Ints:
        """One column value by value: texts, nulls or numbers beyond 64 bits are among them."""
        read = thread_number if name == "tid" else whole_number
        numbers = [read(getattr(row, name)) for row in rows]
        self.lost[table, BAD_NUMBER] += sum(number is None for number in numbers)
        return np.array([number or 0 for number in numbers], dtype=np.int64)


def nanoseconds(times_us: Floats) -> Ints:
    """µs as whole ns.

    Files hold whole ns as decimal µs, and the nearest double to such a time is less than 0.5 ns away from it
    up to 2**43 µs (101 days): rounding gives back the very ns. Whole µs are multiplied as integers, because a
    time since the epoch has more ns than a double can count.
    """
    whole = np.floor(times_us)
    return whole.astype(np.int64) * 1000 + np.rint((times_us - whole) * 1000).astype(np.int64)


def whole_number(value: int | str | None) -> int | None:
    """A number as files write it: ``7``, ``"7"``, ``"0x7"``, ``"stream 7"``; 0 for None, else None."""
    if value is None:
        return 0
    if isinstance(value, str):
        if value.startswith("0x"):
            return _hexadecimal(value)
        digits = _DIGITS.findall(value)
        value = int(digits[-1]) if digits and len(digits[-1]) < 20 else LARGEST_INT64 + 1
    return int(value) if -LARGEST_INT64 <= value <= LARGEST_INT64 else None


def thread_number(value: int | str | None) -> int | None:
    """The same for a thread; one that is named without any digit gets a number made of its name."""
    if isinstance(value, str) and not _DIGITS.search(value):
        return (1 << 32) | zlib.crc32(value.encode("utf-8", "replace"))
    return whole_number(value)


def _hexadecimal(value: str) -> int | None:
    try:
        number = int(value, 16)
    except ValueError:
        return None
    return number if number <= LARGEST_INT64 else None


def _matrix(rows: Sequence[Event | Arguments], names: tuple[str, ...], dtype: Any) -> npt.NDArray[Any]:
    """One row a name, one column an event: filled in one pass over the events."""
    fields = map(attrgetter(*names), rows)
    values: Iterable[Any] = chain.from_iterable(fields) if len(names) > 1 else fields
    flat = np.fromiter(values, dtype=dtype, count=len(rows) * len(names))
    return np.ascontiguousarray(flat.reshape(len(rows), len(names)).T)


def _shapes(arguments: list[Arguments]) -> dict[str, Ints]:
    none = (0, 0, 0)
    columns: dict[str, Ints] = {}
    for name in ("grid", "block"):
        sides = chain.from_iterable(shape or none for shape in map(attrgetter(name), arguments))
        values = np.fromiter(sides, dtype=np.int64, count=3 * len(arguments)).reshape(-1, 3)
        columns |= {f"{name}_{side}": values[:, place] for place, side in enumerate("xyz")}
    return columns
