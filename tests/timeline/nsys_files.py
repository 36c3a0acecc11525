"""Small databases laid out as Nsight Systems exports them, in several schema versions."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Final

PLACE: Final = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
SHAPE: Final = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
KERNEL: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNC: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
GRAPH_TRACE: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
CUDA_EVENT: Final = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
CUPTI_OVERHEAD: Final = "CUPTI_ACTIVITY_KIND_OVERHEAD"
DRIVER: Final = "CUPTI_ACTIVITY_KIND_DRIVER"

CALL: Final = (
    "start",
    "end",
    "eventClass",
    "globalTid",
    "correlationId",
    "nameId",
    "returnValue",
    "callchainId",
)
NEWEST: Final[dict[str, tuple[str, ...]]] = {
    KERNEL: (*PLACE, "demangledName", "shortName", "mangledName", *SHAPE, "gridId", "graphNodeId", "graphId"),
    MEMCPY: (*PLACE, "bytes", "copyKind", "graphNodeId", "virtualAddress", "copyCount"),
    MEMSET: (*PLACE, "value", "bytes", "graphNodeId", "memKind"),
    RUNTIME: CALL,
    DRIVER: CALL,
    SYNC: (*PLACE, "deprecatedSyncType", "syncType", "eventId", "eventSyncId"),
    GRAPH_TRACE: (*PLACE, "graphId", "graphExecId"),
    CUDA_EVENT: ("timestamp", *PLACE[2:], "eventId", "eventSyncId"),
    CUPTI_OVERHEAD: ("start", "end", "globalTid", "correlationId", "nameId", "overheadType"),
    "CUDA_GRAPH_NODE_EVENTS": ("start", "end", "globalTid", "nameId", "graphNodeId", "originalGraphNodeId"),
    "NVTX_EVENTS": (
        *("start", "end", "eventType", "rangeId", "text", "globalTid", "endGlobalTid", "textId", "domainId"),
    ),
    "PROFILER_OVERHEAD": ("start", "end", "globalTid", "nameId", "overheadType"),
    "SCHED_EVENTS": ("start", "cpu", "isSchedIn", "globalTid", "threadState", "threadBlock"),
    "CUDA_CALLCHAINS": ("id", "symbol", "module", "kernelMode", "unresolved", "originalIP", "stackDepth"),
    "DIAGNOSTIC_EVENT": ("timestamp", "timestampType", "source", "severity", "text", "globalPid"),
    "META_DATA_EXPORT": ("name", "value"),
    "META_DATA_CAPTURE": ("name", "value"),
    "TARGET_INFO_SYSTEM_ENV": ("globalVid", "devStateName", "name", "nameEnum", "value"),
    "PROCESSES": ("globalPid", "pid", "name"),
}
LATER: Final = {
    KERNEL: ("graphId",),
    MEMCPY: ("copyCount",),
    SYNC: ("deprecatedSyncType", "eventSyncId"),
    "PROFILER_OVERHEAD": ("overheadType",),
}
"""Columns that schema 3.13 does not have yet."""
MINIMAL: Final[dict[str, tuple[str, ...]]] = {
    KERNEL: ("start", "end", "deviceId", "streamId", "correlationId", "shortName", "demangledName", *SHAPE),
    RUNTIME: ("start", "end", "correlationId", "globalTid", "nameId"),
    MEMCPY: ("start", "end", "deviceId", "streamId", "correlationId", "bytes", "copyKind"),
    "META_DATA_EXPORT": ("name", "value"),
}
SCHEMAS: Final = {
    "3.25.0": NEWEST,
    "3.13.2": {
        table: tuple(name for name in columns if name not in LATER.get(table, ()))
        for table, columns in NEWEST.items()
    },
    "minimal": MINIMAL,
}
TEXT_COLUMNS: Final = ("text", "value", "name", "devStateName")
PROCESS: Final = 100
THREAD: Final = 101
MACHINE: Final = 0x0001 << 48


def global_tid(process: int = PROCESS, thread: int = THREAD) -> int:
    """The serialised id of a thread."""
    return MACHINE | process << 24 | thread


class Export:
    """Writes one database. Like Nsight Systems, it creates a table with its first row."""

    def __init__(self, path: Path, schema: str = "3.25.0", *, page_size: int = 512) -> None:
        self.path = path
        self._columns = dict(SCHEMAS[schema])
        self._db = sqlite3.connect(path)
        self._db.execute(f"PRAGMA page_size={page_size}")
        self._db.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
        self._strings: dict[str, int] = {}
        self._made: set[str] = set()

    def string(self, text: str) -> int:
        """The id of a string, added if it is new."""
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self._db.execute("INSERT INTO StringIds VALUES (?, ?)", (self._strings[text], text))
        return self._strings[text]

    def without(self, table: str, *columns: str) -> Export:
        """From now on the table lacks these columns."""
        self._columns[table] = tuple(name for name in self._columns[table] if name not in columns)
        return self

    def add(self, table: str, **values: Any) -> Export:
        """One row; columns that this schema lacks are left out, those not given are NULL."""
        columns = self._columns[table]
        if table not in self._made:
            types = ("TEXT" if name in TEXT_COLUMNS else "INTEGER" for name in columns)
            described = ", ".join(f'"{name}" {kind}' for name, kind in zip(columns, types, strict=True))
            self._db.execute(f"CREATE TABLE {table} ({described})")
            self._made.add(table)
        marks = ", ".join("?" * len(columns))
        self._db.execute(f"INSERT INTO {table} VALUES ({marks})", [values.get(name) for name in columns])
        return self

    def operation(
        self, table: str, start: int | None, end: int | None, correlation: int = 1, **more: Any
    ) -> Export:
        """A row of a table of GPU activity, on device 0, context 1, stream 7 unless told otherwise."""
        place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": global_tid(thread=0)}
        return self.add(table, **(place | {"start": start, "end": end, "correlationId": correlation} | more))

    def kernel(
        self,
        start: int | None,
        end: int | None,
        correlation: int | None = 1,
        name: str = "kernel",
        **more: Any,
    ) -> Export:
        """A kernel of one block."""
        names = {"demangledName": self.string(name), "shortName": self.string(f"short {name}")}
        return self.operation(KERNEL, start, end, correlation, **(names | dict.fromkeys(SHAPE, 1) | more))

    def call(
        self, name: str, start: int | None, end: int | None, correlation: int = 1, **more: Any
    ) -> Export:
        """An API call that succeeded."""
        fixed = {"nameId": self.string(name), "globalTid": global_tid(), "returnValue": 0, "eventClass": 0}
        times = {"start": start, "end": end, "correlationId": correlation}
        return self.add(RUNTIME, **(fixed | times | more))

    def range(self, start: int | None, end: int | None, text: str | None = None, **more: Any) -> Export:
        """A push/pop range of the default domain."""
        fixed = {"start": start, "end": end, "text": text, "eventType": 59, "domainId": 0}
        return self.add("NVTX_EVENTS", **(fixed | {"globalTid": global_tid()} | more))

    def execute(self, statement: str) -> Export:
        """Any statement."""
        self._db.execute(statement)
        return self

    def done(self) -> Path:
        """Write everything; returns the path."""
        self._db.commit()
        self._db.close()
        return self.path
