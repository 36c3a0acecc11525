"""Timelines as files: exact round trips, versions, and errors that say why."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.errors import EvidenceError
from cudagraph_gate.timeline.families import ROW_GROUP_ROWS, time_order
from cudagraph_gate.timeline.table import (
    CALL_COLUMNS,
    FAMILIES,
    KERNEL,
    OPERATION_COLUMNS,
    OVERHEAD_COLUMNS,
    RANGE_COLUMNS,
    Timeline,
    TimelineMeta,
    frame,
    frame_of,
    load,
    save,
)

BIG = 2**60 + 1
META = TimelineMeta(
    source="cupti 13.0", level="full", resolution_ns=32, dropped_records=2, problems=("lost µ",)
)


def filled() -> Timeline:
    operations = [
        {"kind": KERNEL, "name": "gemm", "start_ns": BIG, "end_ns": BIG + 2, "graph": BIG, "grid_x": 7},
        {"kind": "memcpy", "name": "HtoD", "start_ns": BIG + 4, "end_ns": BIG + 5, "bytes": BIG},
    ]
    calls = [{"name": "cuLaunchKernel", "start_ns": BIG, "thread": BIG, "blocking": True, "status": -1}]
    ranges = [{"name": "request", "domain": "cgate", "start_ns": BIG, "end_ns": BIG + 9}]
    overheads = [{"name": "flush", "start_ns": BIG, "end_ns": BIG + 1, "process": 3}]
    return Timeline(
        meta=META,
        operations=frame_of(OPERATION_COLUMNS, operations),
        calls=frame_of(CALL_COLUMNS, calls),
        ranges=frame_of(RANGE_COLUMNS, ranges),
        overheads=frame_of(OVERHEAD_COLUMNS, overheads),
    )


def assert_same(one: Timeline, other: Timeline) -> None:
    assert one.meta == other.meta
    for family in FAMILIES:
        left, right = getattr(one, family), getattr(other, family)
        assert list(left.dtypes.astype(str)) == list(right.dtypes.astype(str))
        assert left.astype(plain(left)).to_dict("records") == right.astype(plain(right)).to_dict("records")


def plain(rows: pd.DataFrame) -> dict[str, str]:
    return {name: "str" for name in rows.columns if isinstance(rows[name].dtype, pd.CategoricalDtype)}


def test_a_round_trip_keeps_every_value_beyond_2_to_the_53(tmp_path: Path) -> None:
    save(filled(), tmp_path / "timeline.parquet")
    again = load(tmp_path / "timeline.parquet")
    assert_same(again, filled())
    assert again.operations["start_ns"].tolist() == [BIG, BIG + 4]
    assert again.calls["thread"].tolist() == [BIG]


def test_an_empty_timeline_comes_back_empty(tmp_path: Path) -> None:
    save(Timeline(meta=META), tmp_path / "timeline.parquet")
    assert_same(load(tmp_path / "timeline.parquet"), Timeline(meta=META))


def test_frames_have_every_column_in_its_type() -> None:
    rows = frame_of(OPERATION_COLUMNS, [{"name": "k", "start_ns": 5}])
    assert dict(rows.dtypes.astype(str)) == dict(OPERATION_COLUMNS)
    assert (rows["name"][0], rows["kind"][0], rows["start_ns"][0], rows["graph"][0]) == ("k", "", 5, 0)


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(ValueError, match="not timeline columns: durations"):
        frame(CALL_COLUMNS, {"durations": [1]})


def test_requests_are_the_marked_ranges_in_time_order() -> None:
    marks = [
        ("request", "cgate", 50),
        ("request", "app", 20),
        ("step", "cgate", 30),
        ("request", "cgate", 10),
    ]
    rows = [{"name": name, "domain": domain, "start_ns": start} for name, domain, start in marks]
    timeline = Timeline(meta=META, ranges=frame_of(RANGE_COLUMNS, rows))
    assert timeline.requests()["start_ns"].tolist() == [10, 50]


def test_the_window_spans_the_requests_else_the_operations() -> None:
    operations = frame_of(OPERATION_COLUMNS, [{"start_ns": 5, "end_ns": 90}, {"start_ns": 7, "end_ns": 20}])
    marks = [
        {"name": "request", "domain": "cgate", "start_ns": start, "end_ns": start + 9} for start in (40, 10)
    ]
    ranges = frame_of(RANGE_COLUMNS, marks)
    assert Timeline(meta=META, operations=operations, ranges=ranges).window() == (10, 49)
    assert Timeline(meta=META, operations=operations).window() == (5, 90)
    assert Timeline(meta=META).window() == (0, 0)


def test_another_schema_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "timeline.parquet"
    save(filled(), path)
    table = pq.read_table(path)
    pq.write_table(
        table.replace_schema_metadata({**table.schema.metadata, b"cgate_schema_version": b"99"}), path
    )
    with pytest.raises(EvidenceError, match="schema version 99, this cgate reads 1"):
        load(path)


def test_a_parquet_file_of_another_tool_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(EvidenceError, match="schema version 0"):
        load(path)


@pytest.mark.parametrize("content", [b"", b"not parquet", b"PAR1 cut off PAR1"])
def test_a_damaged_file_is_refused_with_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "timeline.parquet"
    path.write_bytes(content)
    with pytest.raises(EvidenceError, match=r"timeline\.parquet: can't read the timeline"):
        load(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="can't read the timeline"):
        load(tmp_path / "none.parquet")


def test_a_missing_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "timeline.parquet"
    save(filled(), path)
    pq.write_table(pq.read_table(path).drop_columns(["correlation"]), path)
    with pytest.raises(EvidenceError, match="correlation"):
        load(path)


def old_save(timeline: Timeline, path: Path, without: tuple[str, ...] = ()) -> None:
    """A file as earlier versions wrote it: all families in one row group, texts as plain strings."""
    parts = []
    for family in FAMILIES:
        rows = getattr(timeline, family).drop(columns=list(without), errors="ignore")
        rows = rows.astype(plain(rows)).assign(family=family)
        parts.append(pa.Table.from_pandas(rows, preserve_index=False))
    table = pa.concat_tables(parts, promote_options="permissive")
    meta = {b"cgate_schema_version": b"1", b"cgate_meta": msgspec.json.encode(timeline.meta)}
    pq.write_table(table.replace_schema_metadata(meta), path)


def test_each_family_has_row_groups_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "timeline.parquet"
    save(filled(), path)
    families = [pq.ParquetFile(path).read_row_group(group).column("family").to_pylist() for group in range(4)]
    assert families == [["operations"] * 2, ["calls"], ["ranges"], ["overheads"]]


def test_a_file_whose_row_groups_mix_families_still_loads(tmp_path: Path) -> None:
    old_save(filled(), tmp_path / "timeline.parquet")
    assert_same(load(tmp_path / "timeline.parquet"), filled())


@pytest.mark.parametrize("without", [("site", "stream", "event"), ("site", "event", "on_cpu_ns")])
def test_columns_that_an_old_file_lacks_are_blank(tmp_path: Path, without: tuple[str, ...]) -> None:
    timeline = Timeline(meta=META, calls=filled().calls)
    old_save(timeline, tmp_path / "timeline.parquet", without)
    assert_same(load(tmp_path / "timeline.parquet"), timeline)


def test_a_column_of_another_family_does_not_stand_in_for_a_lacking_one(tmp_path: Path) -> None:
    old_save(filled(), tmp_path / "timeline.parquet", ("thread",))
    with pytest.raises(EvidenceError, match="calls without thread"):
        load(tmp_path / "timeline.parquet")


def replaced(path: Path, name: str, values: pa.Array) -> None:
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index(name), name, values), path)


@pytest.mark.parametrize("values", [pa.array([1.5, 2.5]), pa.array([1, None])])
def test_numbers_that_are_no_integers_are_refused(tmp_path: Path, values: pa.Array) -> None:
    path = tmp_path / "timeline.parquet"
    save(Timeline(meta=META, operations=filled().operations), path)
    replaced(path, "start_ns", values)
    with pytest.raises(EvidenceError, match="column start_ns"):
        load(path)


def test_operations_and_calls_come_back_in_order_of_start(tmp_path: Path) -> None:
    rows = [{"name": name, "start_ns": start, "correlation": 9 - start} for start, name in enumerate("abca")]
    calls = [{"name": "inner", "start_ns": 5, "end_ns": 7}, {"name": "outer", "start_ns": 5, "end_ns": 9}]
    timeline = Timeline(
        meta=META,
        operations=frame_of(OPERATION_COLUMNS, [rows[2], rows[0], rows[3], rows[1]]),
        calls=frame_of(CALL_COLUMNS, calls),
    )
    save(timeline, tmp_path / "timeline.parquet")
    again = load(tmp_path / "timeline.parquet")
    assert again.operations["name"].tolist() == ["a", "b", "c", "a"]
    assert again.operations["correlation"].tolist() == [9, 8, 7, 6]
    assert again.calls["name"].tolist() == ["outer", "inner"]


def test_texts_keep_only_names_that_occur_in_alphabetical_order_and_gaps(tmp_path: Path) -> None:
    names = pd.Categorical.from_codes([2, 0, -1], categories=["z", "unused", "a"])
    timeline = Timeline(
        meta=META, operations=frame(OPERATION_COLUMNS, {"name": names, "start_ns": [1, 2, 3]})
    )
    save(timeline, tmp_path / "timeline.parquet")
    again = load(tmp_path / "timeline.parquet").operations["name"]
    assert again.cat.categories.tolist() == ["a", "z"]
    assert again.cat.codes.tolist() == [0, 1, -1]


def test_a_family_of_several_row_groups_is_whole(tmp_path: Path) -> None:
    count = ROW_GROUP_ROWS + 3
    values = {
        "name": pd.Categorical.from_codes(np.arange(count, dtype=np.int32) % 3, ["a", "b", "c"]),
        "start_ns": BIG + np.arange(count),
        "process": np.full(count, 7, dtype=np.int32),
    }
    timeline = Timeline(meta=META, operations=frame(OPERATION_COLUMNS, values))
    save(timeline, tmp_path / "timeline.parquet")
    again = load(tmp_path / "timeline.parquet").operations
    assert again["name"].cat.categories.tolist() == ["a", "b", "c"]
    coded = [rows.assign(name=rows["name"].cat.codes) for rows in (again, timeline.operations)]
    pd.testing.assert_frame_equal(*(rows.drop(columns="kind") for rows in coded))
    assert again["process"].to_numpy().strides == (0,), "one value alone takes no memory"


def test_arrays_of_the_right_type_are_shared_not_copied() -> None:
    starts = np.arange(5)
    assert np.shares_memory(frame(CALL_COLUMNS, {"start_ns": starts})["start_ns"].to_numpy(), starts)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=9))
def test_rows_are_ordered_by_every_key_in_turn(rows: list[tuple[int, int, int]]) -> None:
    keys = [np.array([row[place] for row in rows], dtype=np.int64) for place in range(3)]
    order = time_order(*keys)
    assert (order is None) == (rows == sorted(rows))
    assert [rows[place] for place in (range(len(rows)) if order is None else order)] == sorted(rows)
