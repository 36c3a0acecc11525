"""CUPTI records as timeline frames. Codes and flags are those of ``cupti_activity.h``."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from cudagraph_gate.timeline.cupti_buffers import Records
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

Ints = npt.NDArray[np.int64]
CallbackName = Callable[[int, int], str]
"""(1 for the driver API or 2 for the runtime API, callback id) -> function name."""

KIND_MEMCPY: Final = 1
KIND_MEMSET: Final = 2
KIND_DRIVER: Final = 4
KIND_RUNTIME: Final = 5
KIND_KERNEL: Final = 10
KIND_MARKER: Final = 12
KIND_OVERHEAD: Final = 17
KIND_SYNCHRONIZATION: Final = 38
"""Activity kinds (CUpti_ActivityKind)."""

COPY_NAMES: Final = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA"} | {
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
SYNC_NAMES: Final = {1: "cuEventSynchronize", 3: "cuStreamSynchronize", 4: "cuCtxSynchronize"}
"""Blocking kinds of synchronisation; 2 is a stream waiting for an event, which blocks no host thread."""
OVERHEAD_NAMES: Final = {
    1: "driver compiler",
    1 << 16: "buffer flush",
    2 << 16: "instrumentation",
    3 << 16: "resource",
    4 << 16: "module loading",
    5 << 16: "lazy function loading",
    6 << 16: "command buffer full",
    7 << 16: "activity buffer request",
    8 << 16: "unified memory set-up",
}
MARKER_START: Final = 2
MARKER_END: Final = 4
BLOCKING_CALL: Final = re.compile(r"Synchronize|^(cu|cuda)Memcpy(?!.*Async)(?!.*Batch)")
"""Calls that wait for the device: synchronisation, and copies that are not asynchronous."""


class Decoder:
    """Frames of one recording from its records by activity kind; ``problems`` says what was left out."""

    def __init__(
        self,
        records: Mapping[int, Records],
        *,
        process: int,
        callback_name: CallbackName,
        read_text: Callable[[int], str] | None = None,
    ) -> None:
        self._records = records
        self._process = process
        self._callback_name = callback_name
        self._read_text = read_text or _text_at
        self.problems: list[str] = []
        self.operations = self._operations()
        self.calls = self._calls()
        self.ranges = self._ranges()
        self.overheads = self._overheads()

    # --- operations -------------------------------------------------------------------------------
    def _operations(self) -> pd.DataFrame:
        parts = [self._kernels(), self._copies(), self._memsets()]
        rows = _joined(OPERATION_COLUMNS, parts)
        finished = (rows["start_ns"] > 0) & (rows["end_ns"] >= rows["start_ns"])
        if lost := int((~finished).sum()):
            self.problems.append(f"{lost} operations have no complete device timestamps and are left out")
        return rows[finished].sort_values("start_ns", kind="stable", ignore_index=True)

    def _kernels(self) -> pd.DataFrame:
        rows = self._records.get(KIND_KERNEL)
        if rows is None:
            return frame(OPERATION_COLUMNS)
        shapes = {
            name: rows[name] for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
        }
        # Kernels of a graph carry a stale queued stamp and no submitted one (CUPTI 13.0).
        stamped = (rows["graph_id"] == 0) & (rows["submitted"] > 0)
        stamps = {f"{name}_ns": _integers(rows[name]) * stamped for name in ("queued", "submitted")}
        return self._operation_frame(rows, KERNEL, self._texts(rows["name"]), {**shapes, **stamps})

    def _copies(self) -> pd.DataFrame:
        rows = self._records.get(KIND_MEMCPY)
        if rows is None:
            return frame(OPERATION_COLUMNS)
        names = [COPY_NAMES.get(int(kind), f"copy kind {kind}") for kind in rows["copy_kind"]]
        return self._operation_frame(rows, MEMCPY, names, {"bytes": _integers(rows["bytes"])})

    def _memsets(self) -> pd.DataFrame:
        rows = self._records.get(KIND_MEMSET)
        if rows is None:
            return frame(OPERATION_COLUMNS)
        names = [MEMSET] * len(rows)
        return self._operation_frame(rows, MEMSET, names, {"bytes": _integers(rows["bytes"])})

    def _operation_frame(
        self, rows: Records, kind: str, names: list[str], more: dict[str, Any]
    ) -> pd.DataFrame:
        values = {
            "kind": [kind] * len(rows),
            "name": names,
            "start_ns": _integers(rows["start"]),
            "end_ns": _integers(rows["end"]),
            "device": rows["device_id"],
            "context": rows["context_id"],
            "stream": rows["stream_id"],
            "process": np.full(len(rows), self._process),
            "correlation": _integers(rows["correlation_id"]),
            "graph": _integers(rows["graph_id"]),
            "node": _integers(rows["graph_node_id"]),
        }
        return frame(OPERATION_COLUMNS, values | more)

    # --- calls ------------------------------------------------------------------------------------
    def _calls(self) -> pd.DataFrame:
        parts = [self._api(kind, domain) for kind, domain in ((KIND_RUNTIME, 2), (KIND_DRIVER, 1))]
        rows = _joined(CALL_COLUMNS, parts).sort_values(["start_ns", "end_ns"], ascending=[True, False])
        # A runtime call and the driver call under it share their correlation: the outer one is the call.
        rows = rows.drop_duplicates(["process", "correlation"], ignore_index=True)
        return self._with_synchronisation(rows)

    def _api(self, kind: int, domain: int) -> pd.DataFrame:
        rows = self._records.get(kind)
        if rows is None:
            return frame(CALL_COLUMNS)
        distinct, inverse = np.unique(rows["cbid"], return_inverse=True)
        names = np.array([self._callback_name(domain, int(number)) for number in distinct], dtype=object)
        blocking = np.array([bool(BLOCKING_CALL.search(name)) for name in names], dtype=bool)
        return frame(
            CALL_COLUMNS,
            {
                "name": names[inverse],
                "start_ns": _integers(rows["start"]),
                "end_ns": _integers(rows["end"]),
                "process": rows["process_id"],
                "thread": _integers(rows["thread_id"]),
                "correlation": _integers(rows["correlation_id"]),
                "blocking": blocking[inverse],
                "status": rows["return_value"],
            },
        )

    def _with_synchronisation(self, calls: pd.DataFrame) -> pd.DataFrame:
        """Mark calls that waited by their synchronisation records; records without a call become calls."""
        rows = self._records.get(KIND_SYNCHRONIZATION)
        if rows is None:
            return calls
        rows = rows[np.isin(rows["type"], list(SYNC_NAMES))]
        correlations = _integers(rows["correlation_id"])
        calls = calls.assign(blocking=calls["blocking"] | calls["correlation"].isin(correlations))
        rows = rows[~np.isin(correlations, calls["correlation"].to_numpy())]
        alone = frame(
            CALL_COLUMNS,
            {
                "name": [SYNC_NAMES[int(kind)] for kind in rows["type"]],
                "start_ns": _integers(rows["start"]),
                "end_ns": _integers(rows["end"]),
                "process": np.full(len(rows), self._process),
                "correlation": _integers(rows["correlation_id"]),
                "blocking": np.ones(len(rows), dtype=bool),
            },
        )
        return _joined(CALL_COLUMNS, [calls, alone]).sort_values("start_ns", kind="stable", ignore_index=True)

    # --- ranges and overheads ---------------------------------------------------------------------
    def _ranges(self) -> pd.DataFrame:
        rows = self._records.get(KIND_MARKER)
        if rows is None:
            return frame(RANGE_COLUMNS)
        started = _markers(rows[(rows["flags_"] & MARKER_START) != 0])
        ended = _markers(rows[(rows["flags_"] & MARKER_END) != 0])
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
        names = [OVERHEAD_NAMES.get(int(kind), f"overhead {kind}") for kind in rows["overhead_kind"]]
        return frame(
            OVERHEAD_COLUMNS,
            {
                "name": names,
                "start_ns": _integers(rows["start"]),
                "end_ns": _integers(rows["end"]),
                "process": np.full(len(rows), self._process),
            },
        )

    def _texts(self, pointers: npt.NDArray[Any]) -> list[str]:
        distinct, inverse = np.unique(pointers.astype(np.int64), return_inverse=True)
        texts = [self._read_text(int(pointer)) for pointer in distinct]
        return [texts[place] for place in inverse]


def _markers(rows: Records) -> pd.DataFrame:
    thread = rows["object_id"]["pt"]
    return pd.DataFrame(
        {
            "id": _integers(rows["id"]),
            "time": _integers(rows["timestamp"]),
            "name": _integers(rows["name"]),
            "domain": _integers(rows["domain"]),
            "process": _integers(thread["process_id"]),
            "thread": _integers(thread["thread_id"]),
        }
    )


def _joined(columns: Mapping[str, str], parts: list[pd.DataFrame]) -> pd.DataFrame:
    filled = [part for part in parts if len(part)]
    if not filled:
        return frame(columns)
    names = {name: np.concatenate([part[name].to_numpy() for part in filled]) for name in columns}
    return frame(columns, names)


def _integers(values: npt.NDArray[Any]) -> Ints:
    return values.astype(np.int64)


def _text_at(pointer: int) -> str:
    raw = ctypes.c_char_p(pointer).value if pointer else None
    return raw.decode(errors="replace") if raw else ""
