"""What happened, as columns: one timeline, whoever recorded it.

In memory a timeline is four frames whose columns are named here and nowhere else; on disk it is one
Parquet table with a ``family`` column. Times are integer ns on one clock. As in CUPTI, 0 means *none* for
``correlation``, ``graph`` and ``node`` and *not recorded* for ``queued_ns``, ``submitted_ns`` and ``thread``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import pandas as pd

from cudagraph_gate.errors import EvidenceError
from cudagraph_gate.timeline.families import FamilyFile, constant, write_families
from cudagraph_gate.timeline.texts import coded

TIMELINE_SCHEMA_VERSION: Final = 1

KERNEL: Final = "kernel"
MEMCPY: Final = "memcpy"
MEMSET: Final = "memset"
GRAPH: Final = "graph"
"""A whole graph launch recorded as one operation, without its nodes."""

DIGITS: Final = "0123456789"
COPY_NAMES: Final = ("HtoD", "DtoH", "DtoD", "HtoH", "PtoP", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA")

REQUEST_DOMAIN: Final = "cgate"
REQUEST_RANGE: Final = "request"
"""A range of this name in this domain marks one request."""

OPERATION_COLUMNS: Final[Mapping[str, str]] = {
    "kind": "category",
    "name": "category",
    "start_ns": "int64",
    "end_ns": "int64",
    "device": "int32",
    "context": "int32",
    "stream": "int32",
    "process": "int32",
    "correlation": "int64",
    "queued_ns": "int64",
    "submitted_ns": "int64",
    "graph": "int64",
    "node": "int64",
    "bytes": "int64",
    "grid_x": "int32",
    "grid_y": "int32",
    "grid_z": "int32",
    "block_x": "int32",
    "block_y": "int32",
    "block_z": "int32",
}
"""GPU operations: kernels, copies (``name`` says the direction), memsets and whole graph launches.

``name`` of a copy is a direction of ``COPY_NAMES`` (HtoD, DtoH, …)."""
CALL_COLUMNS: Final[Mapping[str, str]] = {
    "name": "category",
    "start_ns": "int64",
    "end_ns": "int64",
    "process": "int32",
    "thread": "int64",
    "correlation": "int64",
    "blocking": "bool",
    "status": "int32",
    "site": "category",
    "stream": "int32",
    "event": "int64",
}
"""Host calls of the CUDA API; ``blocking`` ones wait for the device; ``status`` 0 is success.

``site`` is where in the program the call was made, empty where that is not known. ``stream`` and ``event``
are what the call is about, as far as the recorder says it, else 0: a stream wait names the stream that waits
and the event that it waits for, an event record the event and its stream."""
RANGE_COLUMNS: Final[Mapping[str, str]] = {
    "name": "category",
    "domain": "category",
    "start_ns": "int64",
    "end_ns": "int64",
    "process": "int32",
    "thread": "int64",
    "end_thread": "int64",
}
"""NVTX ranges; ``end_thread`` differs from ``thread`` where a range ends on another thread."""
OVERHEAD_COLUMNS: Final[Mapping[str, str]] = {
    "name": "category",
    "start_ns": "int64",
    "end_ns": "int64",
    "process": "int32",
}
"""Intervals that the recorder itself cost."""

CPU_TIME_COLUMNS: Final[Mapping[str, str]] = {
    "process": "int32",
    "thread": "int64",
    "start_ns": "int64",
    "end_ns": "int64",
    "on_cpu_ns": "int64",
}
"""How long a thread was on a CPU within an interval. Intervals of one thread do not overlap."""

FAMILIES: Final[Mapping[str, Mapping[str, str]]] = {
    "operations": OPERATION_COLUMNS,
    "calls": CALL_COLUMNS,
    "ranges": RANGE_COLUMNS,
    "overheads": OVERHEAD_COLUMNS,
    "cpu_times": CPU_TIME_COLUMNS,
}


ADDED_COLUMNS: Final[Mapping[str, frozenset[str]]] = {"calls": frozenset(("site", "stream", "event"))}
"""Columns by family that files of earlier versions lack: blank where they do."""


class TimelineMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What a timeline's recorder says of itself."""

    source: str
    """Who recorded it: ``cupti 13.0``, ``simulated``, …"""
    level: str
    """``light`` (operations and ranges) or ``full`` (API calls too)."""
    simulated: bool = False
    resolution_ns: int = 1
    dropped_records: int = 0
    problems: tuple[str, ...] = ()
    """What could not be recorded or read, one line each."""
    request_range: str = ""
    """Name of the user range that marks requests (also numbered, as in ``step#12``); empty: cgate's own."""


def frame(columns: Mapping[str, str], values: Mapping[str, Any] | None = None, rows: int = 0) -> pd.DataFrame:
    """A frame with exactly ``columns`` and their dtypes; those missing from ``values`` are zero or empty.

    Arrays that have their column's dtype are shared with the frame, not copied.
    """
    given = dict(values or {})
    rows = len(next(iter(given.values()))) if given else rows
    unknown = sorted(set(given) - set(columns))
    if unknown:
        raise ValueError(f"not timeline columns: {', '.join(unknown)}")
    made = {
        name: pd.Series(given[name] if name in given else _blank(dtype, rows), dtype=dtype, copy=False)
        for name, dtype in columns.items()
    }
    return pd.DataFrame(made, columns=list(columns), copy=False)


def frame_of(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A frame from one mapping a row: for tests and small recorders."""
    names = [name for name in columns if any(name in row for row in rows)]
    blanks = {name: "" if columns[name] == "category" else 0 for name in names}
    return frame(columns, {name: [row.get(name, blanks[name]) for row in rows] for name in names})


def _blank(dtype: str, rows: int) -> Any:
    if dtype == "category":
        return coded(constant(0, "int8", rows), [""] if rows else [])
    return constant(0, dtype, rows)


def _empty_family(columns: Mapping[str, str]) -> Any:
    return field(default_factory=lambda: frame(columns))


@dataclass(frozen=True)
class Timeline:
    """One recording; see the module's column lists for what the frames hold."""

    meta: TimelineMeta
    operations: pd.DataFrame = _empty_family(OPERATION_COLUMNS)
    calls: pd.DataFrame = _empty_family(CALL_COLUMNS)
    ranges: pd.DataFrame = _empty_family(RANGE_COLUMNS)
    overheads: pd.DataFrame = _empty_family(OVERHEAD_COLUMNS)
    cpu_times: pd.DataFrame = _empty_family(CPU_TIME_COLUMNS)

    def requests(self) -> pd.DataFrame:
        """The ranges that mark requests, in time order."""
        ranges, named = self.ranges, self.meta.request_range
        if named:
            plain = (named, f"{named}#")
            categories = ranges["name"].cat.categories
            names = [name for name in categories if name == named or name.rstrip(DIGITS) in plain]
            marked = ranges[ranges["name"].isin(names)]
        else:
            marked = ranges[(ranges["domain"] == REQUEST_DOMAIN) & (ranges["name"] == REQUEST_RANGE)]
        return marked.sort_values("start_ns", kind="stable", ignore_index=True)

    def window(self) -> tuple[int, int]:
        """What an analysis is about unless told otherwise, in ns: the requests, else the operations.

        From the start of the first to the end of the last; (0, 0) where there are none.
        """
        marked = self.requests()
        rows = self.operations if marked.empty else marked
        return (int(rows["start_ns"].min()), int(rows["end_ns"].max())) if len(rows) else (0, 0)


def save(timeline: Timeline, path: Path) -> None:
    """Write a timeline as one Parquet file, operations and calls in order of start.

    The caller makes the write atomic.
    """
    metadata = {
        b"cgate_schema_version": str(TIMELINE_SCHEMA_VERSION).encode(),
        b"cgate_meta": msgspec.json.encode(timeline.meta),
    }
    write_families(path, {family: getattr(timeline, family) for family in FAMILIES}, FAMILIES, metadata)


def load(path: Path) -> Timeline:
    """Read a timeline that :func:`save` wrote. Raises EvidenceError with the reason when it can't."""
    import pyarrow as pa

    try:
        stored = FamilyFile(path)
        version = int(stored.metadata.get(b"cgate_schema_version", b"0"))
        if version != TIMELINE_SCHEMA_VERSION:
            raise EvidenceError(
                f"timeline has schema version {version}, this cgate reads {TIMELINE_SCHEMA_VERSION}",
                where=str(path),
                hint="profile the workload again",
            )
        meta = msgspec.json.decode(stored.metadata[b"cgate_meta"], type=TimelineMeta)
        families = {
            family: frame(columns, stored.read(family, columns, ADDED_COLUMNS.get(family, frozenset())))
            for family, columns in FAMILIES.items()
        }
    except (OSError, pa.ArrowException, KeyError, ValueError, msgspec.MsgspecError) as error:
        raise EvidenceError(f"can't read the timeline ({error})", where=str(path)) from error
    return Timeline(meta=meta, **families)
