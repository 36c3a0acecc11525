"""CUPTI records as timeline frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import pytest
from cupti_records import PROCESS, decoded, record

from cudagraph_gate.timeline.cupti_kinds import PROGRAM_OVERHEADS
from cudagraph_gate.timeline.table import CALL_COLUMNS, OPERATION_COLUMNS, OVERHEAD_COLUMNS, RANGE_COLUMNS

DRIVER, RUNTIME = 4, 5
LAUNCH, SYNCHRONIZE, COPY_ASYNC, WAIT_EVENT, RECORD_EVENT, LAUNCH_AGAIN = 1, 2, 3, 4, 5, 6
CUDA_LAUNCH, CUDA_COPY, CUDA_COPY_BATCH = 1, 2, 3
INSTANT, START, END = 1, 2, 4
EVENT_WAITED, STREAM_WAITS, STREAM_WAITED, CONTEXT_WAITED = 1, 2, 3, 4


def kernel(start: int, end: int, **more: int) -> bytes:
    return record(10, **{"start": start, "end": end, "name": 100} | more)


def call(kind: int, number: int, start: int, end: int, correlation: int, **more: int) -> bytes:
    stamps = {"start": start, "end": end, "correlation_id": correlation}
    return record(kind, cbid=number, **stamps, **more)


def waited(how: int, correlation: int, start: int = 0, end: int = 0) -> bytes:
    return record(38, type=how, start=start, end=end, correlation_id=correlation)


def mark(flag: int, number: int, time: int, thread: int = 5, **texts: int) -> bytes:
    made = {"flags_": flag, "id": number, "timestamp": time, "process_id": PROCESS, "thread_id": thread}
    return record(12, **made, **texts)


def rows(frame: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return list(frame[list(columns)].itertuples(index=False, name=None))


# --- operations -------------------------------------------------------------------------------------


def test_a_kernels_columns_come_from_its_record() -> None:
    raw = kernel(
        2**60 + 1, 2**60 + 5, name=200, device_id=1, context_id=2, stream_id=13, correlation_id=9,
        queued=2**60 - 7, submitted=2**60 - 3, grid_x=4, grid_y=3, grid_z=2, block_x=64, block_y=8, block_z=1,
    )  # fmt: skip
    assert decoded([raw]).operations.to_dict("records") == [
        {
            "kind": "kernel", "name": "add", "start_ns": 2**60 + 1, "end_ns": 2**60 + 5, "device": 1,
            "context": 2, "stream": 13, "process": PROCESS, "correlation": 9, "queued_ns": 2**60 - 7,
            "submitted_ns": 2**60 - 3, "graph": 0, "node": 0, "bytes": 0, "grid_x": 4, "grid_y": 3,
            "grid_z": 2, "block_x": 64, "block_y": 8, "block_z": 1,
        }
    ]  # fmt: skip


def test_kernels_of_a_graph_have_no_queue_stamps() -> None:
    stale = kernel(10, 20, graph_id=7, graph_node_id=2**40, queued=3, submitted=4)
    (found,) = rows(decoded([stale]).operations, "graph", "node", "queued_ns", "submitted_ns")
    assert found == (7, 2**40, 0, 0)


def test_a_queued_stamp_without_a_submitted_one_is_no_stamp() -> None:
    (found,) = rows(decoded([kernel(10, 20, queued=3)]).operations, "queued_ns", "submitted_ns")
    assert found == (0, 0)


@pytest.mark.parametrize(
    ("code", "name"), [(1, "HtoD"), (2, "DtoH"), (8, "DtoD"), (9, "HtoH"), (10, "PtoP"), (99, "copy kind 99")]
)
def test_copies_are_named_by_direction(code: int, name: str) -> None:
    raw = record(1, copy_kind=code, start=10, end=20, bytes=2**33, graph_id=3, graph_node_id=4, stream_id=7)
    found = decoded([raw]).operations
    assert rows(found, "kind", "name", "bytes", "graph", "node", "stream", "queued_ns") == [
        ("memcpy", name, 2**33, 3, 4, 7, 0)
    ]


def test_memsets_have_their_size() -> None:
    raw = record(2, start=10, end=20, bytes=256, correlation_id=6)
    found = decoded([raw]).operations
    assert rows(found, "kind", "name", "bytes", "correlation") == [("memset", "memset", 256, 6)]


def test_operations_of_all_kinds_are_in_order_of_their_start() -> None:
    copy = record(1, copy_kind=1, start=20, end=25)
    found = decoded([kernel(30, 40), copy, record(2, start=10, end=12), kernel(10, 11)]).operations
    assert rows(found, "start_ns", "name") == [(10, "scale"), (10, "memset"), (20, "HtoD"), (30, "scale")]


def test_operations_without_complete_stamps_are_left_out_and_counted() -> None:
    found = decoded([kernel(0, 0), kernel(10, 20), kernel(30, 0), record(1, copy_kind=1, start=0, end=9)])
    assert rows(found.operations, "start_ns") == [(10,)]
    assert found.problems == ["3 operations have no complete device timestamps and are left out"]


def test_an_operation_of_no_duration_is_kept() -> None:
    found = decoded([kernel(10, 10)])
    assert (len(found.operations), found.problems) == (1, [])


# --- calls ------------------------------------------------------------------------------------------


def test_calls_have_the_names_of_their_api() -> None:
    found = decoded(
        [
            call(DRIVER, LAUNCH, 10, 20, 1, process_id=8, thread_id=2**31, return_value=700),
            call(RUNTIME, CUDA_LAUNCH, 30, 40, 2, process_id=8, thread_id=5),
        ]
    ).calls
    assert rows(found, *CALL_COLUMNS) == [
        ("cuLaunchKernel", 10, 20, 8, 2**31, 1, False, 700, "", 0, 0),
        ("cudaLaunchKernel", 30, 40, 8, 5, 2, False, 0, "", 0, 0),
    ]


@pytest.mark.parametrize("start", [10, 12])
def test_of_a_runtime_call_and_the_driver_call_under_it_the_outer_one_is_kept(start: int) -> None:
    inner = call(DRIVER, LAUNCH, start, 18, 1)
    found = decoded([inner, call(RUNTIME, CUDA_LAUNCH, 10, 20, 1), call(DRIVER, LAUNCH, 30, 40, 2)]).calls
    assert rows(found, "name", "correlation") == [("cudaLaunchKernel", 1), ("cuLaunchKernel", 2)]


@pytest.mark.parametrize(
    ("kind", "number", "blocking"),
    [
        (DRIVER, SYNCHRONIZE, True),
        (RUNTIME, CUDA_COPY, True),
        (DRIVER, COPY_ASYNC, False),
        (RUNTIME, CUDA_COPY_BATCH, False),
        (DRIVER, WAIT_EVENT, False),
        (DRIVER, LAUNCH, False),
    ],
)
def test_calls_that_wait_for_the_device_are_blocking(kind: int, number: int, blocking: bool) -> None:
    assert decoded([call(kind, number, 10, 20, 1)]).calls["blocking"].tolist() == [blocking]


@pytest.mark.parametrize(
    ("how", "blocking"),
    [(EVENT_WAITED, True), (STREAM_WAITED, True), (CONTEXT_WAITED, True), (STREAM_WAITS, False)],
)
def test_a_synchronisation_record_makes_its_call_blocking(how: int, blocking: bool) -> None:
    found = decoded([call(DRIVER, COPY_ASYNC, 10, 20, 1), waited(how, 1, 12, 19)]).calls
    assert rows(found, "name", "start_ns", "end_ns", "blocking") == [("cuMemcpyHtoDAsync", 10, 20, blocking)]


def test_synchronisation_without_a_call_becomes_one() -> None:
    raw = [waited(STREAM_WAITED, 2, 30, 45), waited(STREAM_WAITS, 3, 50, 51), waited(CONTEXT_WAITED, 1, 5, 9)]
    found = decoded(raw).calls
    assert rows(found, "name", "start_ns", "end_ns", "process", "thread", "correlation", "blocking") == [
        ("cuCtxSynchronize", 5, 9, PROCESS, 0, 1, True),
        ("cuStreamSynchronize", 30, 45, PROCESS, 0, 2, True),
    ]


def test_calls_and_lone_synchronisation_are_in_time_order() -> None:
    raw = [call(DRIVER, LAUNCH, 40, 41, 2), waited(EVENT_WAITED, 9, 20, 30), call(DRIVER, LAUNCH, 10, 11, 1)]
    assert rows(decoded(raw).calls, "start_ns", "name") == [
        (10, "cuLaunchKernel"),
        (20, "cuEventSynchronize"),
        (40, "cuLaunchKernel"),
    ]


# --- ranges -----------------------------------------------------------------------------------------


def test_the_two_marks_of_a_range_are_paired_by_its_number() -> None:
    found = decoded(
        [
            mark(START, 1, 10, name=300, domain=400),
            mark(START, 2, 20, name=500),
            mark(END, 1, 30, domain=400),  # overlaps: push and pop are not the only ranges
            mark(END, 2, 40),
        ]
    )
    assert rows(found.ranges, "name", "domain", "start_ns", "end_ns") == [
        ("request", "cgate", 10, 30),
        ("loading", "", 20, 40),
    ]
    assert found.problems == []


def test_a_range_may_end_on_another_thread() -> None:
    found = decoded([mark(START, 1, 10, thread=5, name=300), mark(END, 1, 30, thread=6)]).ranges
    assert rows(found, "process", "thread", "end_thread") == [(PROCESS, 5, 6)]


def test_points_in_time_are_no_ranges() -> None:
    found = decoded([mark(INSTANT, 1, 10, name=300)])
    assert (len(found.ranges), found.problems) == (0, [])


def test_open_ranges_are_left_out_and_counted() -> None:
    found = decoded(
        [mark(START, 1, 10, name=300), mark(START, 2, 20, name=500), mark(END, 2, 30), mark(END, 3, 40)]
    )
    assert rows(found.ranges, "name") == [("loading",)]
    assert found.problems == ["1 ranges were open when the recording ended"]


# --- overheads --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (1 << 16, "buffer flush"),
        (7 << 16, "activity buffer request"),
        (77, "overhead 77"),
    ],
)
def test_overheads_are_named(code: int, name: str) -> None:
    found = decoded([record(17, overhead_kind=code, start=10, end=2**60)]).overheads
    assert rows(found, *OVERHEAD_COLUMNS) == [(name, 10, 2**60, PROCESS)]


@pytest.mark.parametrize("code", PROGRAM_OVERHEADS)
def test_what_the_program_has_without_a_recorder_is_no_overhead(code: int) -> None:
    assert decoded([record(17, overhead_kind=code, start=10, end=20)]).overheads.empty


# --- all of it --------------------------------------------------------------------------------------


def test_an_empty_recording_has_empty_frames_of_the_right_types() -> None:
    found = decoded([])
    expected: Mapping[str, Mapping[str, str]] = {
        "operations": OPERATION_COLUMNS,
        "calls": CALL_COLUMNS,
        "ranges": RANGE_COLUMNS,
        "overheads": OVERHEAD_COLUMNS,
    }
    for family, columns in expected.items():
        frame: pd.DataFrame = getattr(found, family)
        assert (len(frame), dict(frame.dtypes.astype(str))) == (0, dict(columns))
    assert found.problems == []


def test_every_frame_has_the_tables_columns_and_types() -> None:
    found = decoded(
        [
            kernel(10, 20),
            call(DRIVER, LAUNCH, 10, 20, 1),
            waited(STREAM_WAITED, 9, 1, 2),
            mark(START, 1, 10, name=300, domain=400),
            mark(END, 1, 20),
            record(17, overhead_kind=1 << 16, start=1, end=2),
        ]
    )
    assert dict(found.operations.dtypes.astype(str)) == dict(OPERATION_COLUMNS)
    assert dict(found.calls.dtypes.astype(str)) == dict(CALL_COLUMNS)
    assert dict(found.ranges.dtypes.astype(str)) == dict(RANGE_COLUMNS)
    assert dict(found.overheads.dtypes.astype(str)) == dict(OVERHEAD_COLUMNS)


# --- what calls are about ---------------------------------------------------------------------------


def test_event_records_and_stream_waits_name_their_stream_and_event() -> None:
    none = 2**32 - 1
    found = decoded(
        [
            call(DRIVER, RECORD_EVENT, 10, 11, 1),
            record(36, correlation_id=1, stream_id=13, event_id=4),
            call(DRIVER, WAIT_EVENT, 20, 21, 2),
            record(38, type=STREAM_WAITS, correlation_id=2, stream_id=14, cuda_event_id=4),
            call(DRIVER, SYNCHRONIZE, 30, 31, 3),
            record(38, type=STREAM_WAITED, correlation_id=3, stream_id=14, cuda_event_id=none),
            call(DRIVER, LAUNCH, 40, 41, 4),
            record(36, correlation_id=99, stream_id=15, event_id=5),  # of a call that was not recorded
        ]
    ).calls
    assert rows(found, "name", "stream", "event", "blocking") == [
        ("cuEventRecord", 13, 4, False),
        ("cuStreamWaitEvent", 14, 4, False),
        ("cuStreamSynchronize", 14, 0, True),
        ("cuLaunchKernel", 0, 0, False),
    ]


def test_synchronisation_without_a_call_says_what_it_waited_for() -> None:
    alone = record(
        38, type=EVENT_WAITED, start=1, end=2, correlation_id=9, stream_id=2**32 - 1, cuda_event_id=6
    )
    assert rows(decoded([alone]).calls, "stream", "event") == [(0, 6)]


def test_calls_have_their_sites() -> None:
    raw = [call(DRIVER, SYNCHRONIZE, 10 * n, 10 * n + 5, n) for n in (1, 2, 3)]
    found = decoded(raw, sites={1: "a.py:3 main", 3: "b.py:9 load", 8: "gone.py:1 f"}).calls
    assert rows(found, "correlation", "site") == [(1, "a.py:3 main"), (2, ""), (3, "b.py:9 load")]


def test_functions_of_both_domains_with_one_name_are_one_category() -> None:
    found = decoded([call(DRIVER, LAUNCH, 10, 20, 1), call(DRIVER, LAUNCH_AGAIN, 30, 40, 2)]).calls
    assert list(found["name"].cat.categories) == ["cuLaunchKernel"]
