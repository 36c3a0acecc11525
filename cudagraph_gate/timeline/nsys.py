"""Import of a SQLite file that Nsight Systems exported (``nsys export --type sqlite``), from schema 3.13 on.

Tables and columns come and go between versions, and exports create tables only when they have rows: each one
is looked for, and none but the operations is needed. Environment, command lines, host, user and path names
that such a file holds are not read, or (diagnostics) not passed on.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from cudagraph_gate.errors import EvidenceError
from cudagraph_gate.timeline.nsys_calls import API_TABLES, Calls
from cudagraph_gate.timeline.nsys_database import EXPORT_AGAIN, LISTED_TABLES, Database, text_of
from cudagraph_gate.timeline.nsys_device import OPERATION_TABLES, Operations
from cudagraph_gate.timeline.nsys_host import NVTX, Ranges, cpu_times_of, overheads_of
from cudagraph_gate.timeline.nsys_launches import missing_operations
from cudagraph_gate.timeline.nsys_rows import Processes, Strings
from cudagraph_gate.timeline.table import Timeline, TimelineMeta

DIAGNOSTICS: Final = "DIAGNOSTIC_EVENT"
VERSION: Final = re.compile(r"[\w.]{1,40}")
"""What a product version looks like; anything else is not passed on."""
LOST_EVENTS: Final = re.compile(r"(?i)\b(lost|dropped|discarded)\b")
OF_CUDA: Final = re.compile(r"(?i)\b(CUDA|CUPTI|GPU|kernel)")
COUNT: Final = re.compile(r"\b(\d{1,12})\b")
MAYBE_LOST: Final = re.compile(r"(?i)not all CUDA events might have been collected")
"""Nsight Systems says so of most reports that end with the program: no proof that anything is missing."""


def read_nsys(path: Path) -> Timeline:
    """The timeline of an export. Times are ns on the recording's clock, exact as Nsight Systems gives them.

    What could not be read stands in ``meta.problems``. Raises EvidenceError when the file is no such export,
    is damaged so that nothing can be read, or holds no CUDA activity.
    """
    database = Database.open(path)
    try:
        _check_tables(database)
        return _timeline(database)
    finally:
        database.close()


def _check_tables(database: Database) -> None:
    """Raises EvidenceError for a database of another kind: it says what the file holds."""
    if set(database.tables) & {*OPERATION_TABLES, *API_TABLES, NVTX}:
        return
    where = str(database.path)
    if "StringIds" in database.tables:
        raise EvidenceError(
            "the report holds no CUDA activity",
            where=where,
            hint="record it with nsys profile --trace=cuda,nvtx",
        )
    some = ", ".join(sorted(database.tables)[:LISTED_TABLES]) or "no table"
    raise EvidenceError(
        f"not an export of Nsight Systems: the SQLite file holds {some}", where=where, hint=EXPORT_AGAIN
    )


def _timeline(database: Database) -> Timeline:
    strings = Strings(database)
    processes = Processes(
        database, dict.fromkeys(OPERATION_TABLES, "globalPid") | dict.fromkeys(API_TABLES, "globalTid")
    )
    operations = Operations(database, strings, processes).frame
    calls = Calls(database, strings, processes).frame
    ranges = Ranges(database, strings, processes).frame
    if not len(operations) and not len(calls) and not len(ranges):
        reason = "; ".join(database.problems) or "its tables are empty"
        raise EvidenceError(
            f"nothing can be read from the report ({reason})", where=str(database.path), hint=EXPORT_AGAIN
        )
    timeline = Timeline(
        meta=TimelineMeta(source="", level=""),
        operations=operations,
        calls=calls,
        ranges=ranges,
        overheads=overheads_of(database, strings, processes),
        cpu_times=cpu_times_of(database, calls, processes),
    )
    database.problems.extend(processes.problems())
    return Timeline(**{**vars(timeline), "meta": _meta(database, strings, timeline)})


def _meta(database: Database, strings: Strings, timeline: Timeline) -> TimelineMeta:
    missing = missing_operations(timeline.operations, timeline.calls)
    problems = [*database.problems, *missing.problems]
    if strings.missing:
        problems.append(f"{strings.missing} names are missing in the file")
    if not len(timeline.operations):
        problems.append(
            "the report holds no GPU operation: idle can't be told from work that was not recorded"
        )
    said, told = _diagnostics(database)
    return TimelineMeta(
        source=_source(database),
        level="full" if len(timeline.calls) else "light",
        resolution_ns=1,
        # Of what was lost, damage, launches and the recorder may each tell the same part.
        dropped_records=max(_lost_operations(database), missing.lost, told),
        problems=tuple(dict.fromkeys((*problems, *said))),
    )


def _source(database: Database) -> str:
    for name, value in database.values("META_DATA_EXPORT", ("name", "value")):
        if name == "EXPORT_PRODUCT_VERSION" and VERSION.fullmatch(text_of(value)):
            return f"Nsight Systems {text_of(value)}"
    return "Nsight Systems"


def _lost_operations(database: Database) -> int:
    """Operations and calls that damage has swallowed: with them, what looks idle may be work."""
    return sum(database.lost_rows.get(table, 0) for table in (*OPERATION_TABLES, *API_TABLES))


def _diagnostics(database: Database) -> tuple[list[str], int]:
    """What the recorder says of lost CUDA records, in our words, and how many it lost."""
    problems, lost = [], 0
    for (text,) in database.values(DIAGNOSTICS, ("text",)):
        message = text_of(text)
        if LOST_EVENTS.search(message) and OF_CUDA.search(message):
            counted = COUNT.search(message)
            lost += max(int(counted[1]), 1) if counted else 1
        elif MAYBE_LOST.search(message):
            problems.append("Nsight Systems can't rule out that CUDA events are missing")
    if lost:
        problems.append("Nsight Systems says that it lost CUDA records")
    return problems, lost
