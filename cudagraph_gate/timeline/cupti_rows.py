"""CUPTI records as timeline frames, column by column: no Python object a record."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from cudagraph_gate.timeline.api_names import is_blocking
from cudagraph_gate.timeline.cupti_buffers import Columns
from cudagraph_gate.timeline.cupti_kinds import (
    COPY_NAMES,
    KIND_DRIVER,
    KIND_EVENT,
    KIND_KERNEL,
    KIND_MARKER,
    KIND_MEMCPY,
    KIND_MEMSET,
    KIND_OVERHEAD,
    KIND_RUNTIME,
    KIND_SYNCHRONIZATION,
    MARKER_END,
    MARKER_START,
    NO_SUCH,
    OVERHEAD_NAMES,
    PROGRAM_OVERHEADS,
    SHAPE_FIELDS,
    SYNC_NAMES,
)
from cudagraph_gate.timeline.table import (
    CALL_COLUMNS,
    KERNEL,
    MEMCPY,
    MEMSET,
    OPERATION_COLUMNS,
    OVERHEAD_COLUMNS,
    RANGE_COLUMNS,
    frame,
)
from cudagraph_gate.timeline.texts import coded, named

Ints = npt.NDArray[np.int64]
Table = dict[str, Any]
"""Arrays by column name; text is a pandas Categorical."""
CallbackName = Callable[[int, int], str]
"""(1 for the driver API or 2 for the runtime API, callback id) -> function name."""
DRIVER_DOMAIN: Final = 1
RUNTIME_DOMAIN: Final = 2


class Decoder:
    """Frames of one recording from its records by activity kind; ``problems`` says what was left out.

    ``sites`` says where calls were made, by correlation.
    """

    def __init__(
        self,
        records: Mapping[int, Columns],
        *,
        process: int,
        callback_name: CallbackName,
        read_text: Callable[[int], str] | None = None,
        sites: Mapping[int, str] | None = None,
    ) -> None:
        self._records = {kind: rows for kind, rows in records.items() if _count(rows)}
        self._process = process
        self._callback_name = callback_name
        self._read_text = read_text or text_at
        self._sites = sites or {}
        self.problems: list[str] = []
        self.operations = self._operations()
        self.calls = self._calls()
        self.ranges = self._ranges()
        self.overheads = self._overheads()

    # --- operations -------------------------------------------------------------------------------
    def _operations(self) -> pd.DataFrame:
        rows = _joined(OPERATION_COLUMNS, [*self._kernels(), *self._copies(), *self._memsets()])
        start, end = rows["start_ns"], rows["end_ns"]
        finished = (start > 0) & (end >= start)
        if lost := int((~finished).sum()):
            self.problems.append(f"{lost} operations have no complete device timestamps and are left out")
            rows = _taken(rows, np.flatnonzero(finished))
        return frame(OPERATION_COLUMNS, _ordered(rows, rows["start_ns"]))

    def _kernels(self) -> list[Table]:
        rows = self._records.get(KIND_KERNEL)
        if rows is None:
            return []
        # Kernels of a graph carry a stale queued stamp and no submitted one (CUPTI 13.0).
        stamped = (rows["graph_id"] == 0) & (rows["submitted"] > 0)
        stamps = {f"{name}_ns": _integers(rows[name]) * stamped for name in ("queued", "submitted")}
        shapes = {name: rows[name] for name in SHAPE_FIELDS}
        return [self._operation_table(rows, KERNEL, self._texts(rows["name"]), {**shapes, **stamps})]

    def _copies(self) -> list[Table]:
        rows = self._records.get(KIND_MEMCPY)
        if rows is None:
            return []
        names = named(rows["copy_kind"], lambda kind: COPY_NAMES.get(kind, f"copy kind {kind}"))
        return [self._operation_table(rows, MEMCPY, names, {"bytes": _integers(rows["bytes"])})]

    def _memsets(self) -> list[Table]:
        rows = self._records.get(KIND_MEMSET)
        if rows is None:
            return []
        names = _same(MEMSET, _count(rows))
        return [self._operation_table(rows, MEMSET, names, {"bytes": _integers(rows["bytes"])})]

    def _operation_table(self, rows: Columns, kind: str, names: pd.Categorical, more: Table) -> Table:
        return {
            "kind": _same(kind, _count(rows)),
            "name": names,
            "start_ns": _integers(rows["start"]),
            "end_ns": _integers(rows["end"]),
            "device": rows["device_id"],
            "context": rows["context_id"],
            "stream": rows["stream_id"],
            "process": np.full(_count(rows), self._process, np.int32),
            "correlation": _integers(rows["correlation_id"]),
            "graph": _integers(rows["graph_id"]),
            "node": _integers(rows["graph_node_id"]),
            **more,
        }

    # --- calls ------------------------------------------------------------------------------------
    def _calls(self) -> pd.DataFrame:
        parts = [*self._api(KIND_RUNTIME, RUNTIME_DOMAIN), *self._api(KIND_DRIVER, DRIVER_DOMAIN)]
        rows = _joined(CALL_COLUMNS, parts)
        # A runtime call and the driver call under it share their correlation: the outer one is the call.
        order = np.lexsort((-rows["end_ns"], rows["start_ns"]))
        inner = pd.Series(rows["correlation"][order]).duplicated().to_numpy()
        rows = _taken(rows, order[~inner])
        self._add_subjects(rows)
        return frame(CALL_COLUMNS, self._with_synchronisation(self._with_sites(rows)))

    def _api(self, kind: int, domain: int) -> list[Table]:
        rows = self._records.get(kind)
        if rows is None:
            return []
        codes, distinct = pd.factorize(rows["cbid"])
        names = [self._callback_name(domain, int(number)) for number in distinct]
        blocking = np.array([is_blocking(name) for name in names], dtype=bool)
        return [
            {
                "name": coded(codes, names),
                "start_ns": _integers(rows["start"]),
                "end_ns": _integers(rows["end"]),
                "process": rows["process_id"],
                "thread": _integers(rows["thread_id"]),
                "correlation": _integers(rows["correlation_id"]),
                "blocking": blocking[codes],
                "status": rows["return_value"].astype(np.int32),
            }
        ]

    def _add_subjects(self, calls: Table) -> None:
        """Write the stream and event that event records, stream waits and synchronisation are about."""
        events, waits = self._records.get(KIND_EVENT), self._records.get(KIND_SYNCHRONIZATION)
        for rows, event in ((events, "event_id"), (waits, "cuda_event_id")):
            if rows is None:
                continue
            places = _places(calls["correlation"], _integers(rows["correlation_id"]))
            for column, field in (("stream", "stream_id"), ("event", event)):
                values = _integers(rows[field])
                known = (places >= 0) & (values != NO_SUCH)
                calls[column][places[known]] = values[known]

    def _with_sites(self, calls: Table) -> Table:
        places = _places(calls["correlation"], np.array(list(self._sites), np.int64))
        found = np.flatnonzero(places >= 0)
        if not len(found):
            return calls
        names = list(dict.fromkeys(self._sites.values()))
        codes = np.array([names.index(site) for site in self._sites.values()])
        every = np.full(len(calls["correlation"]), len(names))
        every[places[found]] = codes[found]
        return {**calls, "site": coded(every, [*names, ""])}

    def _with_synchronisation(self, calls: Table) -> Table:
        """Mark calls that waited by their synchronisation records; records without a call become calls."""
        every = self._records.get(KIND_SYNCHRONIZATION)
        if every is None:
            return calls
        blocking = np.flatnonzero(np.isin(every["type"], list(SYNC_NAMES)))
        rows = {name: values[blocking] for name, values in every.items()}
        places = _places(calls["correlation"], _integers(rows["correlation_id"]))
        calls["blocking"][places[places >= 0]] = True
        rows = {name: values[places < 0] for name, values in rows.items()}
        count = _count(rows)
        alone: Table = {
            "name": named(rows["type"], SYNC_NAMES.__getitem__),
            "start_ns": _integers(rows["start"]),
            "end_ns": _integers(rows["end"]),
            "process": np.full(count, self._process, np.int32),
            "correlation": _integers(rows["correlation_id"]),
            "blocking": np.ones(count, dtype=bool),
            "stream": _valid(rows["stream_id"]),
            "event": _valid(rows["cuda_event_id"]),
        }
        joined = _joined(CALL_COLUMNS, [calls, alone])
        return _ordered(joined, joined["start_ns"])

    # --- ranges and overheads ---------------------------------------------------------------------
    def _ranges(self) -> pd.DataFrame:
        rows = self._records.get(KIND_MARKER)
        if rows is None:
            return frame(RANGE_COLUMNS)
        started = _markers(rows, MARKER_START)
        ended = _markers(rows, MARKER_END)
        pairs = started.merge(ended, on="id", suffixes=("", "_end"))
        if lost := len(started) - len(pairs):
            self.problems.append(f"{lost} ranges were open when the recording ended")
        return frame(
            RANGE_COLUMNS,
            {
                "name": self._texts(pairs["name"].to_numpy()),
                "domain": self._texts(pairs["domain"].to_numpy()),
                "start_ns": pairs["time"],
                "end_ns": pairs["time_end"],
                "process": pairs["process"],
                "thread": pairs["thread"],
                "end_thread": pairs["thread_end"],
            },
        )

    def _overheads(self) -> pd.DataFrame:
        rows = self._records.get(KIND_OVERHEAD)
        if rows is None:
            return frame(OVERHEAD_COLUMNS)
        own = ~np.isin(rows["overhead_kind"], PROGRAM_OVERHEADS)
        rows = {name: values[own] for name, values in rows.items()}
        return frame(
            OVERHEAD_COLUMNS,
            {
                "name": named(
                    rows["overhead_kind"], lambda kind: OVERHEAD_NAMES.get(kind, f"overhead {kind}")
                ),
                "start_ns": _integers(rows["start"]),
                "end_ns": _integers(rows["end"]),
                "process": np.full(_count(rows), self._process),
            },
        )

    def _texts(self, pointers: npt.NDArray[Any]) -> pd.Categorical:
        return named(pointers, self._read_text)


def _markers(rows: Columns, flag: int) -> pd.DataFrame:
    chosen = (rows["flags_"] & flag) != 0
    fields = {
        "id": "id",
        "time": "timestamp",
        "name": "name",
        "domain": "domain",
        "process": "object_id.pt.process_id",
        "thread": "object_id.pt.thread_id",
    }
    return pd.DataFrame({name: _integers(rows[field][chosen]) for name, field in fields.items()})


def _count(rows: Columns) -> int:
    return len(next(iter(rows.values())))


def _integers(values: npt.NDArray[Any]) -> Ints:
    return values.astype(np.int64, copy=False)


def _valid(values: npt.NDArray[Any]) -> Ints:
    return np.where(values == NO_SUCH, 0, _integers(values))


def _same(name: str, count: int) -> pd.Categorical:
    return coded(np.zeros(count, np.int8), [name])


def _joined(columns: Mapping[str, str], parts: Sequence[Table]) -> Table:
    """The parts one after the other, with every column of the timeline's family."""
    counts = [len(part["start_ns"]) for part in parts]
    return {
        name: _joined_texts(name, parts, counts)
        if dtype == "category"
        else _joined_numbers(name, dtype, parts)
        for name, dtype in columns.items()
    }


def _joined_numbers(name: str, dtype: str, parts: Sequence[Table]) -> npt.NDArray[Any]:
    blank = np.zeros(0, dtype)
    values = [part[name] if name in part else np.zeros(len(part["start_ns"]), dtype) for part in parts]
    return np.concatenate([blank, *values]).astype(dtype, copy=False)


def _joined_texts(name: str, parts: Sequence[Table], counts: Sequence[int]) -> pd.Categorical:
    columns = [part.get(name, _same("", count)) for part, count in zip(parts, counts, strict=True)]
    names = [text for column in columns for text in column.categories]
    before = np.cumsum([0, *(len(column.categories) for column in columns)])
    codes = [column.codes.astype(np.int32) + first for column, first in zip(columns, before, strict=False)]
    return coded(np.concatenate([np.zeros(0, np.int32), *codes]), names)


def _taken(rows: Table, places: npt.NDArray[Any]) -> Table:
    return {name: values[places] for name, values in rows.items()}


def _ordered(rows: Table, key: Ints) -> Table:
    if bool(np.all(key[1:] >= key[:-1])):
        return rows
    return _taken(rows, np.argsort(key, kind="stable"))


def _places(values: Ints, wanted: Ints) -> Ints:
    """Where each of ``wanted`` lies in ``values``, which are distinct; -1 where it is not there."""
    if not len(values) or not len(wanted):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(values, kind="stable")
    found = order[np.minimum(np.searchsorted(values, wanted, sorter=order), len(values) - 1)]
    return np.where(values[found] == wanted, found, -1)


def text_at(pointer: int) -> str:
    """The text that a record points to, which CUPTI must still hold; empty for a null pointer."""
    raw = ctypes.c_char_p(pointer).value if pointer else None
    return raw.decode(errors="replace") if raw else ""
