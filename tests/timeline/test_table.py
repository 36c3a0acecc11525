"""Timelines as files: exact round trips, versions, and errors that say why."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cudagraph_gate.errors import EvidenceError
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
