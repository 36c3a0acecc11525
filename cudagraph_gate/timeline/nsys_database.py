"""One exported Nsight Systems database: which tables and columns it has, and their values as arrays.

The file is opened read-only and as immutable, so that a file in a read-only folder, or one that another
program holds, can be read and nothing is ever written beside it.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cudagraph_gate.errors import EvidenceError
from cudagraph_gate.timeline.nsys_pages import NULL, NotPlainError, Pages

Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Strings = npt.NDArray[np.object_]

MAGIC: Final = b"SQLite format 3\x00"
ROWS_AT_A_TIME: Final = 20_000
"""Rows fetched at a time where SQLite itself reads: their Python objects must not pile up."""
LISTED_TABLES: Final = 5
"""So many tables of a foreign file are named: enough to recognise it."""

UNREADABLE: Final = (sqlite3.Error, MemoryError)
"""What SQLite raises in a damaged file; a broken length makes it ask for more memory than there is."""

NO_INTEGER: Final = NULL + 1
"""What SQLite is told to give for a value that is no integer; no time, id or size has this value."""
EXACT: Final = 1 << 53
"""Fractions up to here stand for integers exactly: tools that know no integer NULL write ids as fractions."""

Rows = dict[str, Int64]
"""Columns of a table; ``nsys_pages.NULL`` stands for NULL and for a column that the table lacks."""


@dataclass
class Database:
    """An open export. ``problems`` says what could not be read, one line each; ``lost_rows`` counts, by
    table, the rows that damage has swallowed (an estimate, at least 1)."""

    path: Path
    tables: dict[str, tuple[str, ...]]
    """Table name to its columns, in order."""
    problems: list[str] = field(default_factory=list)
    lost_rows: dict[str, int] = field(default_factory=dict)
    _roots: dict[str, int] = field(default_factory=dict)
    _connection: sqlite3.Connection | None = None
    _pages: Pages | None = None

    @classmethod
    def open(cls, path: Path) -> Database:
        """Open an export. Raises EvidenceError when the file is not a SQLite database that can be opened."""
        _check_magic(path)
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        connection.text_factory = _text
        try:
            # Without this, SQLite refuses a file that is shorter than its header says. Nothing is written.
            connection.execute("PRAGMA writable_schema=ON")
            named = connection.execute(
                "SELECT name, rootpage FROM sqlite_master WHERE type = 'table' "
                "AND typeof(name) = 'text' AND typeof(rootpage) = 'integer' AND rootpage > 0"
            ).fetchall()
            tables = {name: _columns(connection, name) for name, _ in named}
        except UNREADABLE as error:
            connection.close()
            raise EvidenceError(
                f"the SQLite file is damaged ({error})", where=str(path), hint=EXPORT_AGAIN
            ) from error
        opened = cls(path, tables, _roots=dict(named), _connection=connection)
        opened._map(path)
        return opened

    def close(self) -> None:
        """Release the file."""
        self._pages = None
        if self._connection is not None:
            self._connection.close()

    def _map(self, path: Path) -> None:
        wal = path.with_name(path.name + "-wal")
        if wal.is_file() and wal.stat().st_size:
            self.problems.append("rows that another program has not merged into the file yet are left out")
        try:
            self._pages = Pages.of(path)
        except NotPlainError:
            self._pages = None
        missing = self._pages.missing if self._pages else 0
        if missing:
            self.problems.append(f"the file is cut off: {missing} of its pages are missing")

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table is there and has these columns."""
        return table in self.tables and set(columns) <= set(self.tables[table])

    def integers(
        self, table: str, needed: Sequence[str], optional: Sequence[str] = (), *, by_sqlite: bool = False
    ) -> Rows | None:
        """Columns of a table. None when the table is absent, or lacks a needed column: a problem says which.

        ``by_sqlite`` reads with SQLite itself, so that rows stand as in ``values``.
        """
        if table not in self.tables:
            return None
        width = self.tables[table]
        missing = [name for name in needed if name not in width]
        if missing:
            self.problems.append(f"table {table} has no column {', '.join(missing)}: it is left out")
            return None
        wanted = [name for name in (*needed, *optional) if name in width]
        found = None if by_sqlite else self._decoded(table, wanted)
        if found is None:
            found = self._fetched(table, wanted)
        rows = len(found[0])
        absent = {name: np.full(rows, NULL, np.int64) for name in optional if name not in width}
        return dict(zip(wanted, found, strict=True)) | absent

    def values(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Rows of a small table as Python values; none where the table or a column is absent."""
        if not self.has(table, *columns):
            return []
        found: list[tuple[Any, ...]] = []
        for rows in self._batches(table, ", ".join(_quoted(name) for name in columns)):
            found.extend(rows)
        return found

    # --- reading ----------------------------------------------------------------------------------
    def _decoded(self, table: str, wanted: Sequence[str]) -> list[Int64] | None:
        width = self.tables[table]
        if self._pages is None:
            return None
        try:
            read = self._pages.table(self._roots[table], [width.index(name) for name in wanted], len(width))
        except NotPlainError:
            return None
        if read.lost_pages or read.lost_rows:
            by_page = max(len(read.columns[0]) // max(read.read_pages, 1), 1)
            self._lose(table, read.lost_rows + by_page * read.lost_pages)
        return list(read.columns)

    def _fetched(self, table: str, wanted: Sequence[str]) -> list[Int64]:
        what = ", ".join(_number(name) for name in wanted)
        parts = [np.array(rows, np.int64).T for rows in self._batches(table, what)]
        if not parts:
            return [np.zeros(0, np.int64) for _ in wanted]
        columns = list(np.concatenate(parts, axis=1))
        for name, values in zip(wanted, columns, strict=True):
            odd = values == NO_INTEGER
            if count := int(odd.sum()):
                self.problems.append(
                    f"{count} values of {name} in table {table} are no integers and count as absent"
                )
                values[odd] = NULL
        return columns

    def _batches(self, table: str, what: str) -> Iterator[list[tuple[Any, ...]]]:
        """Rows, many at a time, up to the first one that SQLite can't read."""
        assert self._connection is not None
        batch: list[tuple[Any, ...]] = []
        try:
            # Row by row: fetchmany would lose what it has already fetched when it fails.
            for row in self._connection.execute(f"SELECT {what} FROM {_quoted(table)}"):
                batch.append(row)
                if len(batch) == ROWS_AT_A_TIME:
                    yield batch
                    batch = []
        except UNREADABLE:
            self._lose(table, 1)
        if batch:
            yield batch

    def _lose(self, table: str, rows: int) -> None:
        # A table that is read twice has lost the same rows each time.
        self.lost_rows[table] = max(self.lost_rows.get(table, 0), rows)
        self.problems.append(f"table {table} is damaged: about {rows} rows or more can't be read")


INTEGER: Final = re.compile("0|-?[1-9][0-9]{0,18}")
"""How SQLite writes an integer as text."""
EXPORT_AGAIN: Final = "export the report again: nsys export --type sqlite"


def _check_magic(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
    except OSError as error:
        raise EvidenceError(f"can't read the file ({error.strerror})", where=str(path)) from error
    if not start:
        raise EvidenceError("the file is empty", where=str(path), hint=EXPORT_AGAIN)
    if start != MAGIC:
        raise EvidenceError("not a SQLite file", where=str(path), hint=EXPORT_AGAIN)


def _columns(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    return tuple(row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(table)})"))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _number(name: str) -> str:
    """The column as an integer, also where an integer stands as text or as a fraction; else NO_INTEGER."""
    column = _quoted(name)
    integer = f"CAST({column} AS INTEGER)"
    return (
        f"CASE WHEN typeof({column}) = 'integer' THEN {column} "
        f"WHEN {column} IS NULL THEN {NULL + 1} - 1 "
        f"WHEN typeof({column}) = 'real' AND abs({column}) <= {EXACT} AND {integer} = {column} "
        f"THEN {integer} "
        f"WHEN typeof({column}) = 'text' AND CAST({integer} AS TEXT) = {column} THEN {integer} "
        f"ELSE {NO_INTEGER} END"
    )


def text_of(value: object) -> str:
    """The text that a value of a text column stands for, also as bytes."""
    return _text(value) if isinstance(value, bytes) else str(value)


def integer_of(value: object) -> int | None:
    """The integer that a value stands for, also as text or as a fraction; None where it is none."""
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if abs(value) <= EXACT and value.is_integer() else None
    if isinstance(value, str) and INTEGER.fullmatch(value):
        return int(value)
    return None


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
