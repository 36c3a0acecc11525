"""CUDA API calls of an Nsight Systems export, what they waited for, and where they were made."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.timeline.api_names import is_blocking
from cudagraph_gate.timeline.nsys_database import Database, Int64, Rows
from cudagraph_gate.timeline.nsys_pages import NULL
from cudagraph_gate.timeline.nsys_rows import (
    Processes,
    Strings,
    Values,
    as_frame,
    correlation_of,
    in_order,
    or_zero,
    picked,
    same,
    sensible,
    small,
    thread_of,
)
from cudagraph_gate.timeline.table import CALL_COLUMNS
from cudagraph_gate.timeline.texts import coded

API_TABLES: Final = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
"""Driver calls stand among the runtime calls; some early exports had a table of their own."""
SYNCHRONIZATIONS: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT_RECORDS: Final = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
CALLCHAINS: Final = "CUDA_CALLCHAINS"

RUNTIME_VERSION: Final = re.compile(r"_v\d{4,}$")
"""Nsight Systems adds the CUDA version of the function to runtime names: cudaMalloc_v3020. The driver's own
suffixes (cuGetProcAddress_v2) have one digit and belong to the name."""
NO_EVENT: Final = (NULL, 0, (1 << 32) - 1)
STREAM_WAIT: Final = "StreamWaitEvent"

NOT_THE_PROGRAM: Final = re.compile(
    r"(^|/)(lib(cuda|cudart|cupti|nvidia|Tools|nsys|nvToolsExt|c|pthread|dl|m|stdc\+\+)|ld)[-.\d\w]*\.so"
    r"|nsight|\[Unknown\]|\[Broken",
    re.IGNORECASE,
)
"""Modules of the driver, the recorder and the system: no place in the user's program."""
API_SYMBOL: Final = re.compile(r"^(_*cuda|cu[A-Z]|_*pthread|_*GI_|_*libc_|0x)")
"""Symbols of the CUDA runtime, which is often linked into the program, and addresses without one."""


class Calls:
    """Reads the API calls into ``frame``; what was left out is added to the database's problems."""

    def __init__(self, database: Database, strings: Strings, processes: Processes) -> None:
        self._database = database
        self._strings = strings
        self._processes = processes
        parts = [self._api(table) for table in API_TABLES]
        keys = ("end_ns", "process", "thread", "correlation", "name")
        values, twice = in_order(CALL_COLUMNS, parts, keys)
        if twice:
            database.problems.append(f"{twice} API calls are in the file twice and count once")
        if values:
            self._add_event_records(values)
            self._add_waits(values)
        self.frame = as_frame(CALL_COLUMNS, values)

    def _api(self, table: str) -> Values:
        more = ("globalTid", "correlationId", "nameId", "returnValue", "callchainId")
        rows = self._database.integers(table, ("start", "end"), more)
        if rows is None:
            return {"start_ns": np.zeros(0, np.int64)}
        kept = sensible(rows)
        if lost := int((~kept).sum()):
            self._database.problems.append(f"{lost} API calls have no complete times and are left out")
            rows = picked(rows, kept)
        return self._api_values(rows)

    def _api_values(self, rows: Rows) -> Values:
        name = self._strings.column(rows["nameId"], lambda text: RUNTIME_VERSION.sub("", text))
        blocking = np.array([is_blocking(text) for text in name.categories], np.bool_)
        values: Values = {
            "name": name,
            "start_ns": rows["start"],
            "end_ns": rows["end"],
            "process": self._processes.of(rows["globalTid"]),
            "thread": thread_of(rows["globalTid"]),
            "correlation": correlation_of(rows["correlationId"]),
            "blocking": blocking[name.codes] if len(name) else np.zeros(0, np.bool_),
            "status": small(rows["returnValue"]),
            "site": self._sites(rows["callchainId"]),
            "stream": np.zeros(len(name), np.int64),
            "event": np.zeros(len(name), np.int64),
        }
        return values

    # --- where calls were made --------------------------------------------------------------------
    def _sites(self, chains: Int64) -> pd.Categorical:
        codes, distinct = pd.factorize(or_zero(chains))
        if not (or_zero(chains) != 0).any():
            return same("", len(chains))
        sites = self._site_of_chains()
        return coded(codes, [sites.get(int(chain), "") for chain in distinct])

    def _site_of_chains(self) -> dict[int, str]:
        """The innermost frame of each callchain that belongs to the user's program."""
        rows = self._database.integers(CALLCHAINS, ("id", "symbol"), ("module", "unresolved", "stackDepth"))
        if rows is None:
            return {}
        found: dict[int, str] = {}
        order = np.lexsort((rows["stackDepth"], rows["id"]))
        columns = [rows[name][order].tolist() for name in ("id", "symbol", "module", "unresolved")]
        for chain, symbol, module, unresolved in zip(*columns, strict=True):
            if chain not in found and unresolved in (NULL, 0) and self._is_user_frame(symbol, module):
                found[chain] = self._strings.text(symbol)
        return found

    def _is_user_frame(self, symbol: int, module: int) -> bool:
        if self._strings.lacks(symbol) or API_SYMBOL.search(self._strings.text(symbol)):
            return False
        return module == NULL or NOT_THE_PROGRAM.search(self._strings.text(module)) is None

    # --- what they are about ----------------------------------------------------------------------
    def _add_event_records(self, calls: Values) -> None:
        rows = self._database.integers(
            EVENT_RECORDS, ("correlationId",), ("globalPid", "streamId", "eventId")
        )
        if rows is not None:
            at = _row_of_call(
                calls, self._processes.of(rows["globalPid"]), correlation_of(rows["correlationId"])
            )
            _fill(calls, at, rows)

    def _add_waits(self, calls: Values) -> None:
        """Mark the calls that waited by their synchronisation rows.

        ``syncType`` means other things in other versions (2 is a stream synchronisation up to 2025.5 and a
        stream's wait for an event in 2026.2), so the name of the call with the same correlation decides.
        """
        rows = self._database.integers(
            SYNCHRONIZATIONS, ("start", "end", "correlationId"), ("globalPid", "streamId", "eventId")
        )
        if rows is None:
            return
        rows = picked(rows, sensible(rows))
        at = _row_of_call(calls, self._processes.of(rows["globalPid"]), correlation_of(rows["correlationId"]))
        _fill(calls, at, rows)
        waits = np.array([STREAM_WAIT in name for name in calls["name"].categories], np.bool_)
        waited = at[at >= 0]
        calls["blocking"][waited[~waits[calls["name"].codes[waited]]]] = True
        if lost := int((at < 0).sum()):
            self._database.problems.append(
                f"{lost} synchronisations belong to no recorded API call and are left out"
            )


def _row_of_call(calls: Values, process: Int64, correlation: Int64) -> Int64:
    """Row of the call with this process and correlation; -1 where there is none."""
    given = calls["process"] << 32 | calls["correlation"]
    wanted = np.where(correlation != 0, process << 32 | correlation, NULL)
    order = np.argsort(given, kind="stable")
    place = np.minimum(np.searchsorted(given[order], wanted), len(order) - 1)
    found = order[place]
    return np.where(given[found] == wanted, found, -1)


def _fill(calls: Values, at: Int64, rows: Rows) -> None:
    """Write stream and event of ``rows`` into the calls at ``at``."""
    known = at >= 0
    event = np.where(np.isin(rows["eventId"], NO_EVENT), 0, rows["eventId"])
    calls["stream"][at[known]] = small(rows["streamId"])[known]
    calls["event"][at[known]] = event[known]
