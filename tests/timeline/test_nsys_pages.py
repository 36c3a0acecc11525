from __future__ import annotations

import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.timeline.nsys_pages import NULL, NotPlainError, Pages, Table

INT64 = st.integers(-(2**63) + 1, 2**63 - 1)
SMALL = st.integers(-3, 300)
ROWS = st.lists(st.tuples(*[st.none() | SMALL | INT64] * 4), max_size=60)


def make(
    path: Path, rows: list[tuple[Any, ...]], *, page_size: int = 512, columns: str = "a, b, c, d"
) -> int:
    """A database with one table; returns its root page."""
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA page_size={page_size}")
    db.execute(f"CREATE TABLE t ({columns})")
    if rows:
        db.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(rows[0]))})", rows)
    db.commit()
    (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 't'").fetchone()
    db.close()
    return int(root)


def read(path: Path, root: int, wanted: tuple[int, ...] = (0, 1, 2, 3), width: int = 4) -> Table:
    return Pages.of(path).table(root, wanted, width)


def spoil(path: Path, page: int, offset: int, content: bytes, page_size: int = 512) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * page_size + offset)
        file.write(content)


@settings(deadline=None, max_examples=40)
@given(rows=ROWS, page_size=st.sampled_from([512, 1024, 4096, 65536]))
def test_every_integer_comes_back_as_sqlite_stores_it(rows: list[tuple[Any, ...]], page_size: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.sqlite"
        table = read(path, make(path, rows, page_size=page_size))
    expected = [[NULL if value is None else value for value in row] for row in rows]
    assert np.array(table.columns, np.int64).T.tolist() == expected
    assert (table.lost_pages, table.lost_rows) == (0, 0)


def test_wanted_columns_come_in_the_wanted_order(tmp_path: Path) -> None:
    root = make(tmp_path / "t", [(1, 22, 333, 4444), (5, 66, 777, 8888)])
    table = read(tmp_path / "t", root, (2, 0))
    assert [column.tolist() for column in table.columns] == [[333, 777], [1, 5]]


def test_a_tree_of_many_pages_is_read_whole(tmp_path: Path) -> None:
    rows = [(number, number * 10**9, -number, None) for number in range(20_000)]
    table = read(tmp_path / "t", make(tmp_path / "t", rows))
    assert table.columns[0].tolist() == list(range(20_000))
    assert int(table.columns[1].sum()) == 10**9 * 19_999 * 10_000
    assert table.read_pages > 500


def test_short_text_between_the_columns_is_skipped(tmp_path: Path) -> None:
    root = make(tmp_path / "t", [(1, "ninety", 3, 4), (5, None, 7, 8)])
    assert [column.tolist() for column in read(tmp_path / "t", root, (0, 2, 3)).columns] == [
        [1, 5],
        [3, 7],
        [4, 8],
    ]


@pytest.mark.parametrize(
    "row", [(1, 2.5, 3, 4), (1, "text", 3, 4), (1, b"x", 3, 4)], ids=["fraction", "text", "blob"]
)
def test_a_wanted_column_that_is_no_integer_needs_sqlite(tmp_path: Path, row: tuple[Any, ...]) -> None:
    root = make(tmp_path / "t", [(1, 2, 3, 4), row])
    with pytest.raises(NotPlainError):
        read(tmp_path / "t", root)


def test_long_rows_need_sqlite(tmp_path: Path) -> None:
    root = make(tmp_path / "t", [(1, "x" * 5000, 3, 4)])
    with pytest.raises(NotPlainError):
        read(tmp_path / "t", root, (0,))


def test_rows_older_than_the_last_column_need_sqlite(tmp_path: Path) -> None:
    root = make(tmp_path / "t", [(1, 2, 3, 4)])
    db = sqlite3.connect(tmp_path / "t")
    db.execute("ALTER TABLE t ADD COLUMN e INTEGER DEFAULT 5")
    db.commit()
    db.close()
    with pytest.raises(NotPlainError):
        read(tmp_path / "t", root, (0,), 5)


def test_a_table_without_rowid_needs_sqlite(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "t")
    db.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b) WITHOUT ROWID")
    db.execute("INSERT INTO t VALUES (1, 2)")
    db.commit()
    (root,) = db.execute("SELECT rootpage FROM sqlite_master").fetchone()
    db.close()
    with pytest.raises(NotPlainError):
        read(tmp_path / "t", root, (0,), 2)


def test_a_page_of_zeros_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    rows = [(number, 10**12, 10**12, 10**12) for number in range(200)]
    root = make(tmp_path / "t", rows)
    whole = read(tmp_path / "t", root)
    spoil(tmp_path / "t", root + 3, 0, bytes(512))
    table = read(tmp_path / "t", root)
    assert (table.lost_pages, table.read_pages) == (1, whole.read_pages - 1)
    assert 150 < len(table.columns[0]) < 200
    assert set(table.columns[0].tolist()) < set(range(200))


def test_a_cut_off_file_loses_its_last_pages(tmp_path: Path) -> None:
    root = make(tmp_path / "t", [(number, 10**12, 10**12, 10**12) for number in range(200)])
    content = (tmp_path / "t").read_bytes()
    (tmp_path / "t").write_bytes(content[: len(content) // 2])
    table = read(tmp_path / "t", root)
    assert table.lost_pages > 0
    assert 0 < len(table.columns[0]) < 200
    assert Pages.of(tmp_path / "t").missing == len(content) // 512 - len(content) // 2 // 512


def test_cells_that_point_nowhere_are_lost_rows(tmp_path: Path) -> None:
    root = make(tmp_path / "t", [(1, 2, 3, 4), (5, 6, 7, 8)])
    spoil(tmp_path / "t", root, 8, b"\x00\x01")
    table = read(tmp_path / "t", root)
    assert ([column.tolist() for column in table.columns], table.lost_rows) == ([[5], [6], [7], [8]], 1)


def test_a_tree_that_points_at_itself_ends(tmp_path: Path) -> None:
    root = make(tmp_path / "t", [(number, 10**12, 10**12, 10**12) for number in range(200)])
    spoil(tmp_path / "t", root, 8, root.to_bytes(4, "big"))
    table = read(tmp_path / "t", root)
    assert (len(table.columns[0]) < 200, table.lost_pages) == (True, 1)


@settings(deadline=None, max_examples=80)
@given(at=st.integers(512, 512 * 40), content=st.binary(min_size=1, max_size=40))
def test_no_damage_makes_it_fail_in_another_way(at: int, content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.sqlite"
        root = make(path, [(number, 10**12, None, 1) for number in range(600)])
        spoil(path, 1, at, content)
        try:
            table = read(path, root)
        except NotPlainError:
            return
    assert all(len(column) == len(table.columns[0]) for column in table.columns)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\x00", bytes(100), b"x" * 600])
def test_a_header_without_sense_needs_sqlite(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(NotPlainError):
        Pages.of(tmp_path / "t")
