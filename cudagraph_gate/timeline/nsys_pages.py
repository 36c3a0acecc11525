"""Integer columns of a SQLite table, decoded from the file's pages with NumPy.

A row of the tables that matter has up to forty columns, and ``sqlite3`` makes a Python object of every value:
0.4 million rows a second where this module decodes 2.7 million, many pages at a time (two cores of an EPYC,
``docs/measurements/sqlite_speed.py``). SQLite's own JSON functions reach 0.6 million; the ADBC driver, 1.3
million, would be one more dependency. This way also goes on after a broken page, where SQLite stops. The
layout is that of https://www.sqlite.org/fileformat2.html, sections 1.6, 2.1 and 2.3.

Only plain tables are read here: ordinary rowid tables whose rows lie whole in their page and have every
column. For anything else :class:`NotPlainError` sends the caller to SQLite itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

NULL: Final = -(1 << 63)
"""Stands for NULL in the arrays of this module; no time, id or size has this value."""

HEADER_BYTES: Final = 100
LEAF: Final = 0x0D
INTERIOR: Final = 0x05
LEAF_HEADER: Final = 8
INTERIOR_HEADER: Final = 12
LOCAL_MARGIN: Final = 35
"""A row longer than the usable page less this continues on overflow pages (file format, section 1.6)."""
VARINT_BYTES: Final = 9
BATCH_BYTES: Final = 4 << 20
"""Pages decoded at a time: small enough to stay in the processor's cache, large enough for NumPy to pay."""

ONE_BYTE: Final = 0x80
"""Serial types from here on take several bytes: long text, which these tables hold hardly ever."""
ZERO, ONE = 8, 9
"""Serial types of the constants 0 and 1, which take no space."""
INTEGER_TYPES: Final = (0, 1, 2, 3, 4, 5, 6, ZERO, ONE)
FIXED_SIZES: Final = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)
SIZES: Final = np.array([*FIXED_SIZES, *((number - 12) // 2 for number in range(12, ONE_BYTE))], np.int32)
"""Bytes that a value of each one-byte serial type takes in the row."""

SHIFTS: Final = np.where(SIZES > 0, 64 - 8 * np.minimum(SIZES, 8), 0).astype(np.int64)
"""Bits of eight bytes that end with a value that do not belong to it."""


class NotPlainError(Exception):
    """The table needs SQLite to be read."""


@dataclass(frozen=True)
class Table:
    """Values of the wanted columns, and what of the table could not be read."""

    columns: tuple[Int64, ...]
    read_pages: int
    lost_pages: int
    lost_rows: int


@dataclass(frozen=True)
class Pages:
    """The bytes of a SQLite file by page."""

    data: Bytes
    size: int
    usable: int
    missing: int
    """Pages that the header counts and the file lacks."""

    @classmethod
    def of(cls, path: Path) -> Pages:
        """Map a file of at least one page. Raises NotPlainError for a header that makes no sense."""
        if path.stat().st_size < HEADER_BYTES:
            raise NotPlainError
        data = np.memmap(path, dtype=np.uint8, mode="r")
        size = int(data[16]) << 8 | int(data[17])
        size = 65536 if size == 1 else size
        if size < 512 or size & (size - 1) or len(data) < size:
            raise NotPlainError
        said = int.from_bytes(bytes(data[28:32]), "big")
        return cls(data.view(np.ndarray), size, size - int(data[20]), max(said - len(data) // size, 0))

    def table(self, root: int, wanted: Sequence[int], width: int) -> Table:
        """Columns ``wanted`` (by position) of the table of ``width`` columns whose tree starts at ``root``.

        Raises NotPlainError when a row is none of those that this module reads.
        """
        leaves, lost_pages = self._leaves(root)
        room = int(self._unsigned((leaves - 1) * self.size + 3, 2).sum())
        columns = [np.empty(room, np.int64) for _ in wanted]
        step, filled, lost_rows = max(BATCH_BYTES // self.size, 1), 0, 0
        for at in range(0, len(leaves), step):
            record, types, ends, lost = self._records(leaves[at : at + step], max(wanted) + 1, width)
            lost_rows += lost
            for column, values in zip(wanted, columns, strict=True):
                place = record + ends[column]
                values[filled : filled + len(record)] = self._values(place + width + 1, types[column])
            filled += len(record)
        return Table(tuple(values[:filled] for values in columns), len(leaves), lost_pages, lost_rows)

    # --- the tree ---------------------------------------------------------------------------------
    def _leaves(self, root: int) -> tuple[Int64, int]:
        """Page numbers of the leaves in order of rows, and how many pages of the tree can't be read."""
        count = len(self.data) // self.size
        level, found, lost = np.array([root], np.int64), [np.zeros(0, np.int64)], 0
        seen = np.zeros(count + 1, np.bool_)
        while len(level):
            inside = level[(level > 1) & (level <= count)]
            inside = inside[np.sort(np.unique(inside, return_index=True)[1])]
            inside = inside[~seen[inside]]  # a page that is reached twice belongs to a broken tree
            seen[inside] = True
            kinds = self.data[(inside - 1) * self.size]
            found.append(inside[kinds == LEAF])
            inner = inside[kinds == INTERIOR]
            lost += len(level) - len(found[-1]) - len(inner)
            level = self._children(inner)
        leaves = np.concatenate(found)
        if not len(leaves) and self._is_index(root, count):
            raise NotPlainError  # a table without rowid
        return leaves, lost

    def _is_index(self, root: int, count: int) -> bool:
        return 1 < root <= count and int(self.data[(root - 1) * self.size]) in (0x02, 0x0A)

    def _children(self, pages: Int64) -> Int64:
        bases = (pages - 1) * self.size
        cells, owners, _ = self._cells(bases, INTERIOR_HEADER)
        children = np.concatenate([self._unsigned(cells, 4), self._unsigned(bases + 8, 4)])
        # The rightmost child of each page comes after those of its cells.
        order = np.argsort(np.concatenate([owners, np.arange(len(bases))]), kind="stable")
        return np.asarray(children[order], np.int64)

    def _cells(self, bases: Int64, header: int) -> tuple[Int64, Int64, int]:
        """Where the cells of the pages that start at ``bases`` begin, the index of their page, and how many
        lie nowhere sensible."""
        counts = self._unsigned(bases + 3, 2)
        sensible = header + 2 * counts <= self.usable
        counts = np.where(sensible, counts, 0)
        owners = np.repeat(np.arange(len(bases)), counts)
        places = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        pointers = self._unsigned(bases[owners] + header + 2 * places, 2)
        right = (pointers >= (header + 2 * counts)[owners]) & (pointers <= self.usable - 4)
        lost = int((~right).sum()) + int((~sensible).sum())
        return (bases[owners] + pointers)[right], owners[right], lost

    # --- the rows ---------------------------------------------------------------------------------
    def _records(
        self, leaves: Int64, count: int, width: int
    ) -> tuple[Int64, Bytes, npt.NDArray[np.int32], int]:
        """Where the rows of these pages begin, the serial types and ends of their first ``count`` columns (a
        row of the array each), and how many rows make no sense."""
        cells, _, lost = self._cells((leaves - 1) * self.size, LEAF_HEADER)
        length, at = self._varint(cells)
        _, record = self._varint(at)
        if (length > self.usable - LOCAL_MARGIN).any():
            raise NotPlainError
        page_ends = cells - cells % self.size + self.size
        whole = (record + length <= page_ends) & (length > width)
        record, length, lost = record[whole], length[whole], lost + int((~whole).sum())
        if (self.data[record] != width + 1).any():
            raise NotPlainError  # long text before the last column, or rows older than the last column
        window = np.lib.stride_tricks.sliding_window_view(self.data, count)
        types: Bytes = np.ascontiguousarray(window[record + 1].T)
        if (types >= ONE_BYTE).any():
            raise NotPlainError
        ends = _ends(types)
        fits = ends[-1] + width + 1 <= length
        if fits.all():
            return record, types, ends, lost
        return record[fits], types[:, fits], ends[:, fits], lost + int((~fits).sum())

    def _values(self, ends: Int64, types: npt.NDArray[Any]) -> Int64:
        """Integers that end before ``ends``."""
        present = np.bincount(types, minlength=ONE_BYTE)
        if int(present[list(INTEGER_TYPES)].sum()) != len(types):
            raise NotPlainError
        # Read the eight bytes that end with the value, then shift out what does not belong to it.
        eight = np.ndarray((len(self.data) - 7,), dtype=">i8", buffer=self.data, strides=(1,))
        shift = SHIFTS[types]
        values: Int64 = (eight[ends - 8].astype(np.int64) << shift) >> shift
        for kind, constant in ((0, NULL), (ZERO, 0), (ONE, 1)):
            if present[kind]:
                values[types == kind] = constant
        return values

    # --- numbers ----------------------------------------------------------------------------------
    def _unsigned(self, at: Int64, width: int) -> Int64:
        value = np.zeros(len(at), np.int64)
        for byte in range(width):
            value = value << 8 | self.data[at + byte]
        return value

    def _varint(self, at: Int64) -> tuple[Int64, Int64]:
        """Values of the variable-length integers at ``at``, and where they end."""
        value, after = np.zeros(len(at), np.int64), at.copy()
        going = np.arange(len(at))
        for byte in range(VARINT_BYTES):
            read = self.data[np.minimum(after[going], len(self.data) - 1)]
            last = byte == VARINT_BYTES - 1
            value[going] = value[going] << 8 | read if last else value[going] << 7 | (read & 0x7F)
            after[going] += 1
            going = going[read >= 0x80]
            if not len(going):
                break
        return value, after


def _ends(types: Bytes) -> npt.NDArray[np.int32]:
    """Where the value of each column (row of the array) ends in the body of its record."""
    ends = SIZES[types]
    for column in range(1, len(ends)):  # several times faster than a cumulative sum along this axis
        ends[column] += ends[column - 1]
    return ends
