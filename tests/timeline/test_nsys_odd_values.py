"""Values of a kind that does not belong into their column."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.timeline.nsys import read_nsys
from cudagraph_gate.timeline.nsys_database import Database, integer_of
from cudagraph_gate.timeline.nsys_pages import NULL
from tests.timeline import nsys_files as tables
from tests.timeline.nsys_files import NEWEST, TEXT_COLUMNS, Export, global_tid

ODD: list[Any] = ["x", b"zz", 2.5, 1e300, None, -1, 1 << 62, -(1 << 63)]
INTEGER_COLUMNS = [
    (table, column) for table, columns in NEWEST.items() for column in columns if column not in TEXT_COLUMNS
]


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "report.sqlite")


@pytest.mark.parametrize(("table", "column"), INTEGER_COLUMNS)
def test_no_odd_value_of_any_column_stops_the_import(export: Export, table: str, column: str) -> None:
    for name, columns in NEWEST.items():
        right = {one: "text" if one in TEXT_COLUMNS else 1 for one in columns}
        right |= {one: global_tid() for one in ("globalTid", "globalPid") if one in columns}
        right |= {"start": 10, "end": 20}
        export.add(name, **right)
        for value in ODD if name == table else ():
            export.add(name, **(right | {column: value}))
    timeline = read_nsys(export.done())
    assert (timeline.operations["start_ns"] == 10).any()
    assert (timeline.calls["start_ns"] == 10).any()


@pytest.mark.parametrize("value", ["x", b"zz", 2.5])
@pytest.mark.parametrize("column", ["start", "end", "correlationId", "streamId", "demangledName"])
def test_values_that_are_no_integers_are_counted(export: Export, column: str, value: object) -> None:
    times: dict[str, Any] = {"start": 3, "end": 4}
    problems = read_nsys(export.kernel(1, 2).kernel(**(times | {column: value})).done()).meta.problems
    assert f"1 values of {column} in table {tables.KERNEL} are no integers and count as absent" in problems


def test_integers_that_stand_as_text_or_fractions_are_read(export: Export) -> None:
    columns = ", ".join(NEWEST[tables.KERNEL])
    export.execute(f"CREATE TABLE {tables.KERNEL} ({columns})")
    for start, end in (("10", "20"), (30.0, 40.0), (50, "60.5"), (70, " 80"), (90, 1e17)):
        values = [start, end, 0, 1, 7, 1, global_tid()]
        shown = ", ".join(repr(value) for value in values)
        export.execute(f"INSERT INTO {tables.KERNEL} ({', '.join(tables.PLACE)}) VALUES ({shown})")
    timeline = read_nsys(export.done())
    assert timeline.operations[["start_ns", "end_ns"]].values.tolist() == [[10, 20], [30, 40]]
    assert timeline.meta.problems[0] == (
        f"3 values of end in table {tables.KERNEL} are no integers and count as absent"
    )


@pytest.mark.parametrize("number", ["x", b"1", 1.5, None])
def test_strings_without_a_number_are_left_out_and_counted(tmp_path: Path, number: object) -> None:
    path = Export(tmp_path / "report.sqlite").kernel(1, 2, name="gemm").done()
    db = sqlite3.connect(path)
    db.execute("DROP TABLE StringIds")
    db.execute("CREATE TABLE StringIds (id, value)")
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(number, "lost"), ("1", "gemm"), (2.0, b"short")])
    db.commit()
    db.close()
    timeline = read_nsys(path)
    assert timeline.operations["name"].tolist() == ["gemm"]
    assert timeline.meta.problems == ("1 strings of the file have no id or no text and are left out",)


def test_names_that_stand_as_bytes_are_text(export: Export) -> None:
    export.execute("INSERT INTO StringIds VALUES (9, x'67656d6d')")
    export.kernel(1, 2, demangledName=9).range(1, 2, text=b"step")  # type: ignore[arg-type]
    timeline = read_nsys(export.done())
    assert timeline.operations["name"].tolist() == ["gemm"]
    assert timeline.ranges["name"].tolist() == ["step"]


def test_control_characters_in_names_stay_as_they_are(export: Export) -> None:
    name = "gemm\x1b[31m\a"
    assert read_nsys(export.kernel(1, 2, name=name).done()).operations["name"].tolist() == [name]


@pytest.mark.parametrize("device", [None, "x", -1, 1 << 40])
def test_operations_without_a_device_are_lost(export: Export, device: object) -> None:
    timeline = read_nsys(export.kernel(1, 2).kernel(3, 4, deviceId=device).done())
    assert timeline.operations["start_ns"].tolist() == [1]
    assert timeline.meta.dropped_records == 1
    assert f"1 rows of {tables.KERNEL} name no device and are left out" in timeline.meta.problems


def test_operations_without_a_stream_are_pointed_out(export: Export) -> None:
    timeline = read_nsys(export.kernel(1, 2).kernel(3, 4, streamId=None).done())
    assert timeline.operations["stream"].tolist() == [7, 0]
    assert timeline.meta.problems == (f"1 rows of {tables.KERNEL} name no stream and count as stream 0",)


@pytest.mark.parametrize(("start", "end"), [(-(1 << 62), 5), (3, 1 << 62)])
def test_times_beyond_all_clocks_are_left_out(export: Export, start: int, end: int) -> None:
    timeline = read_nsys(export.kernel(1, 2).kernel(start, end).done())
    assert timeline.operations["start_ns"].tolist() == [1]
    assert "no complete device timestamps" in timeline.meta.problems[0]


def test_a_thread_is_on_no_cpu_between_events_of_no_known_kind(export: Export) -> None:
    export.call("cudaMalloc", 1, 2)
    for start, scheduled in ((10, 1), (20, None), (30, 0), (40, 1), (50, 0)):
        export.add("SCHED_EVENTS", start=start, cpu=0, isSchedIn=scheduled, globalTid=global_tid())
    times = read_nsys(export.done()).cpu_times
    assert times[["start_ns", "end_ns", "on_cpu_ns"]].values.tolist() == [[30, 40, 0], [40, 50, 10]]


@settings(deadline=None, max_examples=100)
@given(
    value=st.none()
    | st.integers(-(2**63) + 2, 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.integers(-(2**54), 2**54).map(float)
    | st.integers(-(2**62), 2**62).map(str)
    | st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=4)
    | st.binary(max_size=4)
)
def test_columns_and_single_values_follow_one_rule(value: Any) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.sqlite"
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE t (a)")
        db.execute("INSERT INTO t VALUES (?)", (value,))
        db.commit()
        db.close()
        database = Database.open(path)
        rows = database.integers("t", ("a",), by_sqlite=True)
        database.close()
    number = integer_of(value)
    assert rows is not None
    assert rows["a"].tolist() == [NULL if number is None else number]
    assert len(database.problems) == (number is None and value is not None)
