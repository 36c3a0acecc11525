"""The picture of a timeline, read back: slices nest, arrows bind, and nothing is left out in silence."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.timeline.perfetto import IDLE_COLUMNS, Written, write_perfetto
from cudagraph_gate.timeline.perfetto_writer import microseconds
from cudagraph_gate.timeline.table import (
    CALL_COLUMNS,
    GRAPH,
    KERNEL,
    OPERATION_COLUMNS,
    OVERHEAD_COLUMNS,
    RANGE_COLUMNS,
    REQUEST_DOMAIN,
    REQUEST_RANGE,
    Timeline,
    TimelineMeta,
    frame,
    frame_of,
)

BASE = 1_700_000_000_000_000_001
GOLDEN = Path(__file__).parent / "golden" / "perfetto.json"
Row = dict[str, Any]


def at(start: int, end: int, **others: Any) -> Row:
    return {"process": 1, "start_ns": BASE + start, "end_ns": BASE + end} | others


def kernel(start: int, end: int, correlation: int, **others: Any) -> Row:
    base = {"kind": KERNEL, "name": "k", "stream": 7, "correlation": correlation, "grid_x": 2, "grid_y": 1}
    return at(start, end, **base | {"grid_z": 1} | others)


def call(start: int, end: int, correlation: int = 0, name: str = "cuLaunchKernel", **others: Any) -> Row:
    return at(start, end, **{"name": name, "thread": 10, "correlation": correlation} | others)


def span(name: str, start: int, end: int, **others: Any) -> Row:
    return at(start, end, **{"name": name, "domain": "app", "thread": 10, "end_thread": 10} | others)


def example() -> Timeline:
    """A kernel, a graph of three nodes on two streams, a request, nested ranges, and the recorder's cost."""
    node = {"graph": 4, "name": "n"}
    operations = [
        kernel(1_500, 2_500, 1),
        kernel(4_000, 5_000, 2, node=1, **node),
        kernel(5_001, 6_000, 2, node=2, **node),
        kernel(5_500, 7_000, 2, node=3, stream=8, **node),
    ]
    calls = [
        call(1_000, 1_400, 1, name="cudaLaunchKernel"),
        call(1_100, 1_300, 1),
        call(3_000, 3_500, 2, name="cudaGraphLaunch"),
        call(3_600, 7_100, name="cudaStreamSynchronize", blocking=True),
    ]
    ranges = [
        span(REQUEST_RANGE, 900, 7_200, domain=REQUEST_DOMAIN),
        span("step", 950, 7_150),
        span("crossing", 3_200, 7_180),
    ]
    return Timeline(
        meta=TimelineMeta(source="by hand", level="full"),
        operations=frame_of(OPERATION_COLUMNS, operations),
        calls=frame_of(CALL_COLUMNS, calls),
        ranges=frame_of(RANGE_COLUMNS, ranges),
        overheads=frame_of(OVERHEAD_COLUMNS, [at(2_600, 2_700, name="flush")]),
    )


PIECES = frame_of(IDLE_COLUMNS, [at(2_500, 2_600, cause="host_work"), at(2_600, 2_700, cause="profiler")])
WINDOW = (BASE + 900, BASE + 7_200)


def written(path: Path, timeline: Timeline, pieces: pd.DataFrame = PIECES, **others: Any) -> Row:
    write_perfetto(timeline, pieces, path, **{"window": WINDOW} | others)
    content: Row = json.loads(path.read_bytes())
    return content


def tracks(content: Row) -> dict[str, list[Row]]:
    """Slices by ``process / track``."""
    events = content["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[f"{processes[event['pid']]} / {names[event['pid'], event['tid']]}"].append(event)
    return dict(found)


def ns(microseconds: float) -> int:
    assert int(microseconds * 1000) == round(microseconds * 1000)
    return round(microseconds * 1000)


def borders(event: Row) -> tuple[int, int]:
    return ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])


def assert_nested(slices: list[Row]) -> None:
    open_ends: list[int] = []
    for start, end in (borders(event) for event in slices):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1]
        open_ends.append(end)


def test_the_file_is_the_golden_one(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    write_perfetto(example(), PIECES, path, window=WINDOW)
    assert path.read_text() == GOLDEN.read_text()


def test_each_stream_thread_and_cause_has_its_place(tmp_path: Path) -> None:
    found = {
        name: [e["name"] for e in slices]
        for name, slices in tracks(written(tmp_path / "t", example())).items()
    }
    assert found == {
        "process 1, GPU 0 / idle causes": ["host_work", "profiler"],
        "process 1, GPU 0 / stream 7": ["k", "graph launch 2 (2 nodes)", "n", "n"],
        "process 1, GPU 0 / stream 8": ["graph launch 2 (1 node)", "n"],
        "process 1, host / requests": ["request"],
        "process 1, host / recorder overhead": ["flush"],
        "process 1, host / thread 10": [
            "step",
            "cudaLaunchKernel",
            "cuLaunchKernel",
            "cudaGraphLaunch",
            "cudaStreamSynchronize",
        ],
        "process 1, host / thread 10 (2)": ["crossing"],
    }


def test_times_are_exact_and_count_from_the_window(tmp_path: Path) -> None:
    found = tracks(written(tmp_path / "t", example()))
    first, second = found["process 1, GPU 0 / stream 7"][2:]
    assert (borders(first), borders(second)) == ((3_100, 4_100), (4_101, 5_100))


def test_slices_nest_on_every_track(tmp_path: Path) -> None:
    overlapping = [kernel(start, start + 700, 0, stream=9) for start in range(900, 6_000, 300)]
    timeline = example()
    operations = pd.concat([timeline.operations, frame_of(OPERATION_COLUMNS, overlapping)], ignore_index=True)
    operations = operations.astype(dict(OPERATION_COLUMNS))
    found = tracks(written(tmp_path / "t", replace(timeline, operations=operations)))
    for slices in found.values():
        assert_nested(slices)
    assert [len(found[f"process 1, GPU 0 / stream 9{lane}"]) for lane in ("", " (2)", " (3)")] == [6, 6, 5]


def test_arrows_lead_from_the_outer_call_to_the_first_operation(tmp_path: Path) -> None:
    events = written(tmp_path / "t", example())["traceEvents"]
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert len(starts) == sum(e["ph"] == "s" for e in events)
    assert starts.keys() == ends.keys() == {1, 2}
    assert [around(events, starts[number])["name"] for number in (1, 2)] == [
        "cudaLaunchKernel",
        "cudaGraphLaunch",
    ]
    assert [around(events, ends[number])["name"] for number in (1, 2)] == ["k", "n"]
    assert [ns(ends[number]["ts"]) for number in (1, 2)] == [600, 3_100]


def around(events: list[Row], flow: Row) -> Row:
    """The innermost slice of the flow's track that is open at its time, as Perfetto binds it."""
    same = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (flow["pid"], flow["tid"])]
    seen = same[: [*same, flow].index(flow)]
    return [e for e in seen if borders(e)[0] <= ns(flow["ts"]) < borders(e)[1]][-1]


def test_a_queue_depth_counts_a_graph_launch_once(tmp_path: Path) -> None:
    events = [e for e in written(tmp_path / "t", example())["traceEvents"] if e["ph"] == "C"]
    assert [(ns(e["ts"]), e["args"]["value"]) for e in events] == [
        (100, 1),
        (1_600, 0),
        (2_100, 1),
        (6_100, 0),
    ]


def test_a_simulated_recording_says_so_in_every_process_name(tmp_path: Path) -> None:
    simulated = replace(example(), meta=TimelineMeta(source="simulated device", level="full", simulated=True))
    content = written(tmp_path / "t", simulated)
    names = [e["args"]["name"] for e in content["traceEvents"] if e["name"] == "process_name"]
    assert names == ["SIMULATED process 1, GPU 0", "SIMULATED process 1, host"]
    assert content["otherData"]["simulated"] is True


def test_what_the_limit_leaves_out_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    result = write_perfetto(example(), PIECES, path, window=WINDOW, limit=1)
    content = json.loads(path.read_bytes())
    assert result == Written(operations=1, left_out=3)
    assert content["otherData"]["operations_left_out"] == 3
    labels = {e["args"]["labels"] for e in content["traceEvents"] if e["name"] == "process_labels"}
    assert labels == {"first 1 of 4 operations"}
    assert [e["name"] for e in tracks(content)["process 1, GPU 0 / stream 7"]] == ["k"]
    assert all(e["ts"] <= 3.1 for e in content["traceEvents"] if "ts" in e and e["ph"] != "C")


def test_what_begins_before_the_window_is_cut_there_and_says_so(tmp_path: Path) -> None:
    content = written(tmp_path / "t", example(), window=(BASE + 2_000, BASE + 7_200))
    (first, *_) = tracks(content)["process 1, GPU 0 / stream 7"]
    assert (borders(first), first["args"]["before_ns"]) == ((0, 500), 500)
    assert all(e["ts"] >= 0 for e in content["traceEvents"] if "ts" in e)


def test_a_name_that_ends_in_gz_is_compressed_and_always_the_same(tmp_path: Path) -> None:
    for name in ("one.json.gz", "two.json.gz"):
        write_perfetto(example(), PIECES, tmp_path / name, window=WINDOW)
    one, two = ((tmp_path / name).read_bytes() for name in ("one.json.gz", "two.json.gz"))
    assert one == two
    assert gzip.decompress(one) == GOLDEN.read_bytes()


def test_whole_graph_records_and_devices_of_two_processes_stand_apart(tmp_path: Path) -> None:
    rows = [kernel(1_000, 1_200, 5, kind=GRAPH, graph=4), kernel(1_000, 1_100, 5, process=2, device=1)]
    calls = [call(950, 990, 5), call(950, 990, 5, process=2)]
    timeline = Timeline(
        meta=example().meta,
        operations=frame_of(OPERATION_COLUMNS, rows),
        calls=frame_of(CALL_COLUMNS, calls),
    )
    content = written(tmp_path / "t", timeline)
    assert {name: len(slices) for name, slices in tracks(content).items()} == {
        "process 1, GPU 0 / idle causes": 2,
        "process 1, GPU 0 / stream 7": 1,
        "process 1, host / thread 10": 1,
        "process 2, GPU 1 / stream 7": 1,
        "process 2, host / thread 10": 1,
    }
    assert sorted(e["id"] for e in content["traceEvents"] if e["ph"] == "f") == [1, 2]


@pytest.mark.parametrize("window", [WINDOW, (0, 0)])
def test_an_empty_timeline_is_valid_json(tmp_path: Path, window: tuple[int, int]) -> None:
    content = written(tmp_path / "t", Timeline(meta=example().meta), frame(IDLE_COLUMNS), window=window)
    assert content["traceEvents"] == []


@given(st.lists(st.integers(0, 2**47), max_size=20))
def test_readers_that_round_and_readers_that_cut_off_get_every_nanosecond(times: list[int]) -> None:
    found = microseconds(np.array(times, dtype=np.int64))
    assert [int(time * 1000) for time in found] == times
    assert [round(time * 1000) for time in found] == times


def test_many_events_are_one_valid_list(tmp_path: Path) -> None:
    rows = [kernel(start, start + 1, start) for start in range(1_000, 6_000)]
    timeline = Timeline(meta=example().meta, operations=frame_of(OPERATION_COLUMNS, rows))
    found = tracks(written(tmp_path / "t", timeline, frame(IDLE_COLUMNS)))
    assert [borders(event)[0] for event in found["process 1, GPU 0 / stream 7"]] == list(range(100, 5_100))


def test_the_requests_are_the_window_unless_told_otherwise(tmp_path: Path) -> None:
    write_perfetto(example(), PIECES, tmp_path / "t", window=None)
    assert (tmp_path / "t").read_text() == GOLDEN.read_text()
