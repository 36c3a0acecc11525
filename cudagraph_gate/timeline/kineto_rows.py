"""Kineto events as columns: each list of events becomes NumPy arrays at once, names become codes."""

from __future__ import annotations

import re
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cudagraph_gate.timeline.kineto_events import NO_ARGUMENTS, Arguments, Event, Triple

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
    KERNELS: ("context", "correlation", "graph", "node"),
    COPIES: ("context", "correlation", "graph", "node", "bytes"),
    MEMSETS: ("context", "correlation", "graph", "node", "bytes"),
    CALLS: ("correlation",),
    SYNCS: ("stream", "correlation", "wait_stream", "wait_event", "wait_record"),
}
"""Besides the device and the stream of operations."""
PLACE_COLUMNS: Final = ("pid", "tid")
Field = Callable[[Sequence[Any]], list[Any]]
FIELDS: Final[Mapping[str, Field]] = {
    "pid": lambda rows: [row.pid for row in rows],
    "tid": lambda rows: [row.tid for row in rows],
    "device": lambda rows: [row.device for row in rows],
    "context": lambda rows: [row.context for row in rows],
    "stream": lambda rows: [row.stream for row in rows],
    "correlation": lambda rows: [row.correlation for row in rows],
    "graph": lambda rows: [row.graph for row in rows],
    "node": lambda rows: [row.node for row in rows],
    "bytes": lambda rows: [row.bytes for row in rows],
    "wait_stream": lambda rows: [row.wait_stream for row in rows],
    "wait_event": lambda rows: [row.wait_event for row in rows],
    "wait_record": lambda rows: [row.wait_record for row in rows],
}
"""One field of all rows; spelled out, because an attribute by name takes twice as long to read."""
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
        starts, durations = _floats([row.ts for row in rows]), _floats([row.dur for row in rows])
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
        columns = {"name": _integers(list(map(self.names.__getitem__, [row.name for row in rows])))}
        if table not in OPERATION_TABLES:
            columns |= {name: self._numbers(table, name, rows) for name in PLACE_COLUMNS}
        if table not in ARGUMENT_COLUMNS:
            return columns
        arguments = [row.args or NO_ARGUMENTS for row in rows]
        for name in ARGUMENT_COLUMNS[table]:
            columns[name] = self._numbers(table, name, arguments)
        if table in OPERATION_TABLES:
            for name, instead in zip(("device", "stream"), PLACE_COLUMNS, strict=True):
                columns[name] = self._placed(table, rows, arguments, name, instead)
        return columns | (self._shapes(arguments) if table == KERNELS else {})

    def _placed(
        self, table: str, rows: list[Event], arguments: list[Arguments], name: str, instead: str
    ) -> Ints:
        """Old and hand-made rows say device and stream only by the row of the picture that they stand in."""
        values = FIELDS[name](arguments)
        try:
            return _integers(values)
        except struct.error:
            column = self._odd_numbers(table, name, values)
        missing = np.array([value is None for value in values])
        return np.where(missing, self._numbers(table, instead, rows), column) if missing.any() else column

    def _numbers(self, table: str, name: str, rows: Sequence[Event | Arguments]) -> Ints:
        values = FIELDS[name](rows)
        try:
            return _integers(values)
        except struct.error:
            return self._odd_numbers(table, name, values)

    def _shapes(self, arguments: list[Arguments]) -> dict[str, Ints]:
        none = (0, 0, 0)
        return {
            **self._sides("grid", [row.grid or none for row in arguments]),
            **self._sides("block", [row.block or none for row in arguments]),
        }

    def _sides(self, name: str, shapes: list[Triple]) -> dict[str, Ints]:
        sides = list(chain.from_iterable(shapes))
        try:
            values = _integers(sides)
        except struct.error:
            values = self._odd_numbers(KERNELS, name, sides)
        return {f"{name}_{side}": values[place::3] for place, side in enumerate("xyz")}

    def _odd_numbers(self, table: str, name: str, values: list[Any]) -> Ints:
        """One column value by value: texts, nulls or numbers beyond 64 bits are among them."""
        read = thread_number if name == "tid" else whole_number
        numbers = [read(value) for value in values]
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


def _integers(values: Sequence[int]) -> Ints:
    """Values as 64-bit integers; struct.error where one is no such integer. Faster than NumPy's own ways."""
    return np.frombuffer(struct.pack(f"{len(values)}q", *values), dtype=np.int64)


def _floats(values: Sequence[float]) -> Floats:
    return np.frombuffer(struct.pack(f"{len(values)}d", *values), dtype=np.float64)
