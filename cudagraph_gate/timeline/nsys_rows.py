"""What the rows of Nsight Systems tables have in common: identifiers, string ids, times without sense."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from cudagraph_gate.timeline.nsys_database import Database, Int64, Rows, integer_of, text_of
from cudagraph_gate.timeline.nsys_pages import NULL
from cudagraph_gate.timeline.table import frame
from cudagraph_gate.timeline.texts import coded

Bools = npt.NDArray[np.bool_]
Values = dict[str, Any]
"""Columns of a timeline family: arrays or categoricals of one length."""

ID_BITS: Final = 24
ID_MASK: Final = (1 << ID_BITS) - 1
"""A ``globalTid`` holds the thread in its lowest 24 bits and the process in the next 24; a ``globalPid`` is
the same with thread 0. Above them stands the machine (Nsight Systems, exported data, "Serialized process and
thread identifiers")."""
MACHINE_AND_PROCESS_MASK: Final = (1 << 64 - ID_BITS) - 1
OTHER_MACHINES: Final = ID_MASK + 1
"""Processes whose id is taken by one of another machine are numbered from here: no process id is as high."""
NOT_NAMED: Final = -1
"""No process."""
MOMENTS: Final = 1 << 62
"""Times lie between minus and plus this, 146 years: what is further off is damage, and would not fit an int64
when two are subtracted."""
CORRELATIONS: Final = 1 << 32
"""CUPTI's correlation ids are below it."""
NO_NAME: Final = "(no name)"
"""Stands for a name whose string the file lacks."""
INT32: Final = np.iinfo(np.int32)


def thread_of(ids: Int64) -> Int64:
    """Thread of each ``globalTid``; 0, which is *not recorded*, where it is NULL."""
    return or_zero(ids) & ID_MASK


def or_zero(values: Int64) -> Int64:
    """The values with 0 for NULL."""
    return np.where(values == NULL, 0, values)


def correlation_of(values: Int64) -> Int64:
    """The correlation ids with 0, which is *none*, for NULL and for what can't be one."""
    return np.where((values < 0) | (values >= CORRELATIONS), 0, values)


def small(values: Int64) -> Int64:
    """The values with 0 for NULL and for what does not fit a timeline's 32 bits."""
    return np.where(fits(values), values, 0)


def fits(values: Int64) -> Bools:
    """Whether each value is there and fits a timeline's 32 bits."""
    return np.asarray((values >= INT32.min) & (values <= INT32.max), np.bool_)


def same(value: str, count: int) -> pd.Categorical:
    """A column that says the same in every row."""
    return coded(np.zeros(count, np.int8), [value])


class Processes:
    """Process of each row.

    A process keeps its id as its number, unless a process of another machine has it: then it gets one of its
    own, from OTHER_MACHINES on. Rows without a process id belong to the one process that ``tables`` name, if
    there is one; else to process 0, which matches no other.
    """

    def __init__(self, database: Database, tables: Mapping[str, str]) -> None:
        """``tables``: the tables that matter, with the column of their process or thread ids."""
        self._database = database
        self._tables = tables
        self._numbers: dict[int, int] = {}
        self._taken: set[int] = set()
        self._renumbered = 0
        self._sole: int | None = None

    def of(self, ids: Int64) -> Int64:
        """Process of each ``globalPid`` or ``globalTid``."""
        codes, distinct = pd.factorize(_machine_and_process(ids), sort=True)
        numbers = [self._unnamed() if key == NOT_NAMED else self._number(int(key)) for key in distinct]
        return np.array(numbers, np.int64)[codes]

    def known(self, ids: Int64) -> Int64:
        """As ``of``, but NOT_NAMED for a process of which no row has been read yet."""
        codes, distinct = pd.factorize(_machine_and_process(ids))
        return np.array([self._numbers.get(int(key), NOT_NAMED) for key in distinct], np.int64)[codes]

    def problems(self) -> list[str]:
        """What the numbers do not tell of processes, as far as rows have been read."""
        machines = {key >> ID_BITS for key in self._numbers}
        if len(machines) < 2:
            return []
        line = f"the report covers {len(machines)} machines"
        if self._renumbered:
            line += (
                f": {self._renumbered} processes have an id that another machine's process has too, and are "
                f"numbered from {OTHER_MACHINES} on"
            )
        return [line]

    def _number(self, key: int) -> int:
        if key not in self._numbers:
            process = key & ID_MASK
            taken = process in self._taken
            self._numbers[key] = OTHER_MACHINES + self._renumbered if taken else process
            self._renumbered += taken
            self._taken.add(process)
        return self._numbers[key]

    def _unnamed(self) -> int:
        """Process of the rows that name none."""
        if self._sole is None:
            found = self._named()
            self._sole = self._number(found.pop()) if len(found) == 1 else 0
            if len(found) > 1:
                self._database.problems.append("some rows don't name their process, and there are several")
        return self._sole

    def _named(self) -> set[int]:
        found: set[int] = set()
        for table, column in self._tables.items():
            has = self._database.has(table, column)
            rows = self._database.integers(table, (column,)) if has else None
            if rows is not None:
                found |= set(pd.unique(_machine_and_process(rows[column])).tolist())
        return found - {NOT_NAMED}


def _machine_and_process(ids: Int64) -> Int64:
    """Machine and process of each ``globalPid`` or ``globalTid`` in one; NOT_NAMED where it is NULL."""
    return np.where(ids == NULL, NOT_NAMED, ids >> ID_BITS & MACHINE_AND_PROCESS_MASK)


class Strings:
    """The table StringIds. ``missing`` counts the rows whose string it lacks."""

    def __init__(self, database: Database) -> None:
        rows = [(integer_of(one), text) for one, text in database.values("StringIds", ("id", "value"))]
        self._texts = {one: text_of(text) for one, text in rows if one is not None and text is not None}
        if unusable := sum(one is None or text is None for one, text in rows):
            database.problems.append(f"{unusable} strings of the file have no id or no text and are left out")
        self.missing = 0

    def text(self, number: int) -> str:
        """One string; NO_NAME if the file lacks it."""
        return self._texts.get(number, NO_NAME)

    def lacks(self, number: int) -> bool:
        """Whether the file has no such string."""
        return number not in self._texts

    def column(self, ids: Int64, rename: Callable[[str], str] = str) -> pd.Categorical:
        """The strings of ``ids``, renamed; NO_NAME where the file lacks one."""
        codes, distinct = pd.factorize(ids)
        found = [self._texts.get(int(number)) for number in distinct]
        lacking = np.array([text is None for text in found], np.bool_)
        self.missing += int(lacking[codes].sum()) if len(codes) else 0
        texts = [NO_NAME if text is None else rename(text) for text in found]
        return coded(codes, texts)


def sensible(rows: Rows) -> Bools:
    """Rows with both times that end no earlier than they start; an end of 0 means that there is none.

    Times before 0 are right: they count from the start of the session, and tracing begins before it.
    """
    start, end = rows["start"], rows["end"]
    return np.asarray((start > -MOMENTS) & (end < MOMENTS) & (end >= start) & (end != 0), np.bool_)


def picked(values: Mapping[str, Any], chosen: Any) -> Values:
    """The chosen rows of every column."""
    return {name: column[chosen] for name, column in values.items()}


def in_order(columns: Mapping[str, str], parts: Sequence[Values], keys: Sequence[str]) -> tuple[Values, int]:
    """The parts as one, in order of start, without rows that are there twice; how many those were.

    ``keys`` tell rows of one start apart.
    """
    whole = _stacked(columns, parts)
    if not whole:
        return {}, 0
    start = whole["start_ns"]
    if (start[1:] < start[:-1]).any():
        whole = picked(whole, np.argsort(start, kind="stable"))
        start = whole["start_ns"]
    twice = _repeated(whole, keys)
    return (picked(whole, ~twice) if twice.any() else whole), int(twice.sum())


def as_frame(columns: Mapping[str, str], values: Values) -> pd.DataFrame:
    """A timeline frame; columns that ``values`` lacks are blank."""
    if not values:
        return frame(columns)
    rows = len(values["start_ns"])
    blank = {name: same("", rows) for name, dtype in columns.items() if dtype == "category"}
    return frame(columns, blank | values)


def _stacked(columns: Mapping[str, str], parts: Sequence[Values]) -> Values:
    filled = [part for part in parts if len(part["start_ns"])]
    if len(filled) < 2:
        return filled[0] if filled else {}
    named = [name for name in columns if any(name in part for part in filled)]
    return {name: _joined([_given(part, name, columns[name]) for part in filled]) for name in named}


def _given(part: Values, name: str, dtype: str) -> Any:
    rows = len(part["start_ns"])
    blank = same("", rows) if dtype == "category" else np.zeros(rows, np.int64)
    return part.get(name, blank)


def _joined(columns: list[Any]) -> Any:
    if isinstance(columns[0], pd.Categorical):
        return pd.api.types.union_categoricals(columns, sort_categories=True)
    return np.concatenate(columns)


def _repeated(whole: Values, keys: Sequence[str]) -> Bools:
    """Rows equal to an earlier one in start and ``keys``."""
    start = whole["start_ns"]
    tied = np.zeros(len(start), np.bool_)
    equal = start[1:] == start[:-1]
    tied[1:] |= equal
    tied[:-1] |= equal
    at = np.flatnonzero(tied)
    compared = {name: _codes(whole[name][at]) for name in ("start_ns", *keys) if name in whole}
    tied[at] = pd.DataFrame(compared).duplicated().to_numpy()
    return tied


def _codes(column: Any) -> npt.NDArray[Any]:
    return np.asarray(column.codes if isinstance(column, pd.Categorical) else column)
