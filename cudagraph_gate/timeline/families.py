"""Families of rows in one Parquet table: each in row groups of its own, read group by group.

A ``family`` column says what each row is; columns that a family does not have are null in its rows. The
statistics of that column tell which row groups hold which family, and those of a number column whether it
holds one value only, which then is not read. Files whose row groups mix families are read too, in one piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from cudagraph_gate.timeline.texts import coded

Columns = Mapping[str, str]
"""Column names with their dtypes."""

ROW_GROUP_ROWS: Final = 2**20
"""Bounds what writing and reading take beside the frames, and is large enough to decode at full speed."""
FAMILY: Final = "family"


def time_order(*keys: npt.NDArray[Any]) -> npt.NDArray[np.int64] | None:
    """The stable order of rows by the first key, ties by the next; None where they have it already."""
    if rises(keys[0]):
        return None
    tied = np.ones(max(len(keys[0]) - 1, 0), dtype=np.bool_)
    for key in keys:
        if (tied & (key[1:] < key[:-1])).any():
            return np.asarray(np.lexsort(keys[::-1]), dtype=np.int64)
        tied &= key[1:] == key[:-1]
        if not tied.any():
            break
    return None


def rises(values: npt.NDArray[Any]) -> bool:
    """Whether each value is larger than the one before."""
    return bool((values[1:] > values[:-1]).all())


def operation_order(rows: pd.DataFrame) -> npt.NDArray[np.int64] | None:
    """Operations by start, ties by correlation, then by whatever an analysis may look at, so that the order
    of the rows never matters; None where they have it already."""
    names = (
        "start_ns",
        "correlation",
        "end_ns",
        "context",
        "stream",
        "graph",
        "node",
        "queued_ns",
        "submitted_ns",
    )
    return time_order(*(rows[name].to_numpy() for name in names), rows["name"].cat.codes.to_numpy())


def call_order(rows: pd.DataFrame) -> npt.NDArray[np.int64] | None:
    """Calls by start, of those that start together the outer one first; None where they have it already."""
    starts = rows["start_ns"].to_numpy()
    if rises(starts):
        return None
    others = (rows[name].to_numpy() for name in ("thread", "blocking"))
    return time_order(starts, -rows["end_ns"].to_numpy(), *others, rows["name"].cat.codes.to_numpy())


def constant(value: Any, dtype: str, rows: int) -> npt.NDArray[Any]:
    """``rows`` times the same value, read-only, without the memory of a column."""
    return np.broadcast_to(np.array(value, dtype=dtype), rows)


def write_families(
    path: Path,
    frames: Mapping[str, pd.DataFrame],
    columns: Mapping[str, Columns],
    metadata: Mapping[bytes, bytes],
) -> None:
    """Write ``frames`` (by family, with the ``columns`` of each). Operations and calls go in time order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(columns).with_metadata(dict(metadata))
    # Times and correlations grow steadily: differences take a third of the space of the values.
    counts = [column.name for column in schema if pa.types.is_int64(column.type)]
    writer = pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        use_dictionary=[column.name for column in schema if column.name not in counts],
        column_encoding=dict.fromkeys(counts, "DELTA_BINARY_PACKED"),
    )
    with writer:
        for family, rows in frames.items():
            for part in _parts(rows, ORDER[family](rows) if family in ORDER else None):
                writer.write_table(_part_table(family, part, schema), row_group_size=ROW_GROUP_ROWS)


def _schema(columns: Mapping[str, Columns]) -> Any:
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    types = {"category": text, "bool": pa.bool_(), "int32": pa.int32(), "int64": pa.int64()}
    fields = {name: types[dtype] for family in columns.values() for name, dtype in family.items()}
    return pa.schema({**fields, FAMILY: text})


ORDER: Final = {"operations": operation_order, "calls": call_order}


def _parts(rows: pd.DataFrame, order: npt.NDArray[np.int64] | None) -> Iterator[pd.DataFrame]:
    for first in range(0, len(rows), ROW_GROUP_ROWS):
        end = first + ROW_GROUP_ROWS
        yield rows.iloc[first:end] if order is None else rows.take(order[first:end])


def _part_table(family: str, rows: pd.DataFrame, schema: Any) -> Any:
    import pyarrow as pa

    arrays = [
        _arrow(rows[name], field.type) if name in rows else pa.nulls(len(rows), field.type)
        for name, field in zip(schema.names, schema, strict=True)
        if name != FAMILY
    ]
    named = pa.DictionaryArray.from_arrays(np.zeros(len(rows), dtype=np.int32), pa.array([family]))
    return pa.Table.from_arrays([*arrays, named], schema=schema)


def _arrow(column: pd.Series[Any], kind: Any) -> Any:
    import pyarrow as pa

    if not pa.types.is_dictionary(kind):
        return pa.array(np.ascontiguousarray(column.to_numpy()), type=kind)
    codes = column.cat.codes.to_numpy().astype(np.int32)
    texts = pa.array([str(text) for text in column.cat.categories], type=pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), texts)


class FamilyFile:
    """An open file of families. What can't be read raises what pyarrow raises, or ValueError."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self._file = pq.ParquetFile(path)
        self._place = {name: place for place, name in enumerate(self._file.schema_arrow.names)}

    @property
    def metadata(self) -> Mapping[bytes, bytes]:
        """What the writer gave."""
        return self._file.schema_arrow.metadata or {}

    def read(self, family: str, columns: Columns, added: frozenset[str]) -> dict[str, Any]:
        """The columns of a family, without those of ``added`` that the file lacks; empty without rows.

        Raises ValueError where another column, or a value of it, is missing.
        """
        names = [name for name in columns if name in self._place]
        if self._groups is None:
            rows = self._mixed(family)
            count = rows.num_rows
            found = _read({name: columns[name] for name in names}, count, [rows])
        else:
            groups = self._groups.get(family, [])
            count = sum(self._file.metadata.row_group(group).num_rows for group in groups)
            found = self._pure(groups, {name: columns[name] for name in names}, count)
        if not count:
            return {}
        found = {name: values for name, values in found.items() if values is not None}
        missing = sorted(set(columns) - set(found) - added)
        if missing:
            raise ValueError(f"{family} without {', '.join(missing)}")
        return found

    @cached_property
    def _groups(self) -> dict[str, list[int]] | None:
        """Row groups by family; None where one holds rows of several families, or does not say."""
        found: dict[str, list[int]] = {}
        for group in range(self._file.num_row_groups):
            if self._file.metadata.row_group(group).num_rows:
                values = self._values_of([group], FAMILY)
                if values is None or len(values) != 1:
                    return None
                found.setdefault(str(values.pop()), []).append(group)
        return found

    def _values_of(self, groups: list[int], name: str) -> set[Any] | None:
        """The least and the largest value of a column; None where the file does not say, or values lack."""
        found: set[Any] = set()
        for group in groups:
            known = self._file.metadata.row_group(group).column(self._place[name]).statistics
            if known is None or not known.has_min_max or not known.has_null_count or known.null_count:
                return None
            found |= {known.min, known.max}
        return found

    def _pure(self, groups: list[int], columns: Columns, count: int) -> dict[str, Any]:
        """Each column's values in row groups that hold nothing else; None where it has none at all."""
        found, varied = {}, {}
        for name, dtype in columns.items():
            values = self._values_of(groups, name) if dtype != "category" else None
            if values is not None and len(values) == 1:
                found[name] = constant(values.pop(), dtype, count)
            else:
                varied[name] = dtype
        tables = (self._file.read_row_group(group, columns=list(varied)) for group in groups)
        return found | _read(varied, count, tables)

    def _mixed(self, family: str) -> Any:
        """The rows of a family where row groups mix them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table = self._file.read()
        return table.filter(pc.equal(table.column(FAMILY).cast(pa.string()), family))


def _read(columns: Columns, count: int, tables: Iterable[Any]) -> dict[str, Any]:
    """The columns of several Arrow tables, one table after the other; None for a column without any value."""
    readers = {
        name: _Texts(count) if dtype == "category" else _Numbers(name, dtype, count)
        for name, dtype in columns.items()
    }
    for table in tables:
        for name, reader in readers.items():
            reader.add(table.column(name))
    return {name: reader.values() for name, reader in readers.items()}


class _Numbers:
    """A column of integers or flags. Empty rows would make it float64 and lose nanoseconds: not allowed."""

    def __init__(self, name: str, dtype: str, rows: int) -> None:
        self._name = name
        self._values = np.empty(rows, dtype=dtype)
        self._count = 0
        self._empty = 0

    def add(self, column: Any) -> None:
        """Take in an Arrow column."""
        end = self._count + len(column)
        self._empty += column.null_count
        if not column.null_count:
            found = column.to_numpy()
            if not np.can_cast(found.dtype, self._values.dtype):
                raise ValueError(f"column {self._name} has type {found.dtype}")
            self._values[self._count : end] = found
        self._count = end

    def values(self) -> npt.NDArray[Any] | None:
        """The whole column; None if all rows are empty."""
        if 0 < self._empty < self._count:
            raise ValueError(f"column {self._name} has {self._empty} empty rows")
        return None if self._empty else self._values


class _Texts:
    """A column of texts. Dictionary codes become category codes: no text is decoded for a row."""

    def __init__(self, rows: int) -> None:
        self._codes = np.empty(rows, dtype=np.int32)
        self._count = 0
        self._known: dict[str, int] = {}

    def add(self, column: Any) -> None:
        """Take in an Arrow column."""
        import pyarrow as pa

        for chunk in column.chunks:
            coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
            found = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            texts = [str(text) for text in coded.dictionary.to_pylist()]
            used = np.zeros(len(texts) + 1, dtype=np.bool_)
            used[found] = True
            codes = [
                self._known.setdefault(text, len(self._known)) if used[place] else -1
                for place, text in enumerate(texts)
            ]
            self._codes[self._count : self._count + len(found)] = np.array([*codes, -1])[found]
            self._count += len(found)

    def values(self) -> pd.Categorical[Any] | None:
        """The whole column, its categories in alphabetical order; None if all rows are empty."""
        if not self._known:
            return None
        texts = sorted(self._known)
        ranks = np.empty(len(texts) + 1, dtype=np.min_scalar_type(-len(texts) - 1))
        ranks[[self._known[text] for text in texts]] = np.arange(len(texts))
        ranks[-1] = -1
        return coded(ranks[self._codes], texts)
