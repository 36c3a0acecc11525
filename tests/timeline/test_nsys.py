"""What the tables of an export mean."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cudagraph_gate.timeline.nsys import read_nsys
from cudagraph_gate.timeline.table import GRAPH, KERNEL, MEMCPY, MEMSET, Timeline
from tests.timeline import nsys_files as tables
from tests.timeline.nsys_files import MACHINE, SCHEMAS, Export, global_tid


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "report.sqlite")


def rows(timeline: Timeline, family: str, *columns: str) -> list[tuple[Any, ...]]:
    return list(getattr(timeline, family)[list(columns)].itertuples(index=False, name=None))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_gives_operations_and_calls(tmp_path: Path, schema: str) -> None:
    made = Export(tmp_path / "report.sqlite", schema)
    made.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2025.5.2.266")
    made.call("cudaLaunchKernel_v7000", 10, 20, 5).kernel(30, 90, 5, name="gemm<float>")
    made.operation(tables.MEMCPY, 100, 110, 6, bytes=4096, copyKind=1)
    timeline = read_nsys(made.done())
    assert rows(
        timeline, "operations", "kind", "name", "start_ns", "end_ns", "device", "stream", "bytes"
    ) == [
        (KERNEL, "gemm<float>", 30, 90, 0, 7, 0),
        (MEMCPY, "HtoD", 100, 110, 0, 7, 4096),
    ]
    assert rows(timeline, "calls", "name", "start_ns", "end_ns", "process", "thread", "correlation") == [
        ("cudaLaunchKernel", 10, 20, 100, 101, 5)
    ]
    assert timeline.operations["process"].tolist() == [100, 100]
    assert (timeline.meta.source, timeline.meta.level) == ("Nsight Systems 2025.5.2.266", "full")
    assert (timeline.meta.resolution_ns, timeline.meta.problems) == (1, ())


def test_operations_come_in_order_of_start_with_their_shapes(export: Export) -> None:
    export.kernel(50, 60, 2, gridX=1 << 20, gridY=3, blockX=256, blockZ=4, deviceId=1, contextId=2)
    export.kernel(10, 20, 1).operation(tables.MEMSET, 30, 40, 3, bytes=64, value=0)
    timeline = read_nsys(export.done())
    assert rows(timeline, "operations", "kind", "start_ns", "bytes") == [
        (KERNEL, 10, 0),
        (MEMSET, 30, 64),
        (KERNEL, 50, 0),
    ]
    shape = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "device", "context")
    assert rows(timeline, "operations", *shape)[2] == (1 << 20, 3, 1, 256, 1, 4, 1, 2)


@pytest.mark.parametrize(
    ("kind", "name"), [(2, "DtoH"), (8, "DtoD"), (10, "PtoP"), (11, "HtoD"), (99, "copy kind 99")]
)
def test_copies_are_named_by_direction(export: Export, kind: int, name: str) -> None:
    timeline = read_nsys(export.operation(tables.MEMCPY, 1, 2, copyKind=kind).done())
    assert rows(timeline, "operations", "name") == [(name,)]


def test_the_short_name_stands_in_for_a_missing_full_one(export: Export) -> None:
    timeline = read_nsys(export.kernel(1, 2, name="gemm", demangledName=None).done())
    assert rows(timeline, "operations", "name") == [("short gemm",)]


def test_names_without_a_string_are_counted(export: Export) -> None:
    export.kernel(1, 2, 1, demangledName=998).call("cudaLaunchKernel", 0, 1, 1, nameId=999)
    timeline = read_nsys(export.done())
    assert rows(timeline, "operations", "name") == [("(no name)",)]
    assert rows(timeline, "calls", "name") == [("(no name)",)]
    assert timeline.meta.problems == ("2 names are missing in the file",)


def test_processes_and_threads_are_told_apart(export: Export) -> None:
    for process in (100, 4_194_303):
        export.kernel(10, 20, 1, globalPid=global_tid(process, 0))
        export.call("cudaLaunchKernel", 1, 2, 1, globalTid=global_tid(process, process - 1))
    timeline = read_nsys(export.done())
    assert timeline.operations["process"].tolist() == [100, 4_194_303]
    assert rows(timeline, "calls", "process", "thread") == [(100, 99), (4_194_303, 4_194_302)]


def test_equal_processes_of_several_machines_stay_apart(export: Export) -> None:
    other = 2 << 48
    for machine in (0, other):
        export.call("cudaLaunchKernel", 1 + machine // other, 5, 1, globalTid=global_tid() + machine)
        export.kernel(10, 20, 1, globalPid=global_tid(thread=0) + machine)
        export.range(1, 2, "step", globalTid=global_tid() + machine)
    export.kernel(30, 40, 2, globalPid=global_tid(200, 0) + other)
    timeline = read_nsys(export.done())
    first = 1 << 24
    assert timeline.operations["process"].tolist() == [100, first, 200]
    assert rows(timeline, "calls", "process", "thread") == [(100, 101), (first, 101)]
    assert timeline.ranges["process"].tolist() == [100, first]
    assert timeline.meta.problems == (
        "the report covers 2 machines: 1 processes have an id that another machine's process has too, and "
        f"are numbered from {first} on",
    )


def test_different_processes_of_several_machines_keep_their_ids(export: Export) -> None:
    export.kernel(10, 20, 1).kernel(30, 40, 1, globalPid=global_tid(200, 0) - MACHINE - (1 << 63))
    timeline = read_nsys(export.done())
    assert timeline.operations["process"].tolist() == [100, 200]
    assert timeline.meta.problems == ("the report covers 2 machines",)


def test_rows_without_a_process_belong_to_the_only_one(export: Export) -> None:
    export.kernel(10, 20, globalPid=None).call("cudaLaunchKernel", 1, 2).range(1, 2, "step", globalTid=None)
    timeline = read_nsys(export.done())
    assert timeline.operations["process"].tolist() == timeline.ranges["process"].tolist() == [100]
    assert timeline.meta.problems == ()


def test_a_table_without_processes_belongs_to_the_only_one(export: Export) -> None:
    export.without(tables.KERNEL, "globalPid").kernel(10, 20).call("cudaLaunchKernel", 1, 2)
    assert read_nsys(export.done()).operations["process"].tolist() == [100]


def test_with_several_processes_a_table_without_them_matches_none(export: Export) -> None:
    export.without(tables.KERNEL, "globalPid").kernel(10, 20)
    export.call("cudaLaunchKernel", 1, 2).call("cudaMalloc", 1, 2, globalTid=global_tid(200, 201))
    timeline = read_nsys(export.done())
    assert timeline.operations["process"].tolist() == [0]
    assert timeline.meta.problems == (
        "some rows don't name their process, and there are several",
        "1 operations lack what tells their launch call",
    )


@pytest.mark.parametrize(
    ("name", "shown", "blocking"),
    [
        ("cudaMalloc_v3020", "cudaMalloc", False),
        ("cudaDeviceSynchronize_v3020", "cudaDeviceSynchronize", True),
        ("cudaMemcpy_v3020", "cudaMemcpy", True),
        ("cudaMemcpyAsync_v3020", "cudaMemcpyAsync", False),
        ("cudaGraphLaunch_v10000", "cudaGraphLaunch", False),
        ("cuGetProcAddress_v2", "cuGetProcAddress_v2", False),
        ("cuLaunchKernel", "cuLaunchKernel", False),
    ],
)
def test_calls_are_named_as_in_the_api(export: Export, name: str, shown: str, blocking: bool) -> None:
    timeline = read_nsys(export.call(name, 1, 2, returnValue=3).done())
    assert rows(timeline, "calls", "name", "blocking", "status") == [(shown, blocking, 3)]


def test_a_driver_table_of_its_own_is_read_too(export: Export) -> None:
    export.call("cudaLaunchKernel_v7000", 1, 9, 1)
    export.add(
        tables.DRIVER,
        start=2,
        end=8,
        correlationId=1,
        nameId=export.string("cuLaunchKernel"),
        globalTid=global_tid(),
    )
    assert rows(read_nsys(export.done()), "calls", "name") == [("cudaLaunchKernel",), ("cuLaunchKernel",)]


def test_a_synchronisation_marks_the_call_that_waited(export: Export) -> None:
    export.call("cudaFree_v3020", 1, 9, 4).call("cudaMalloc_v3020", 10, 11, 5)
    export.operation(tables.SYNC, 2, 8, 4, syncType=4, eventId=2**32 - 1)
    calls = read_nsys(export.done()).calls
    assert calls[["name", "blocking", "stream", "event"]].values.tolist() == [
        ["cudaFree", True, 7, 0],
        ["cudaMalloc", False, 0, 0],
    ]


@pytest.mark.parametrize("sync_type", [1, 2, 3])
def test_a_stream_that_waits_for_an_event_blocks_no_thread(export: Export, sync_type: int) -> None:
    export.call("cudaEventRecord_v3020", 1, 2, 3).call("cudaStreamWaitEvent_v3020", 3, 4, 4)
    export.add(
        tables.CUDA_EVENT, timestamp=0, correlationId=3, globalPid=global_tid(), streamId=7, eventId=55
    )
    export.operation(tables.SYNC, 3, 4, 4, syncType=sync_type, streamId=9, eventId=55)
    assert rows(read_nsys(export.done()), "calls", "name", "blocking", "stream", "event") == [
        ("cudaEventRecord", False, 7, 55),
        ("cudaStreamWaitEvent", False, 9, 55),
    ]


def test_synchronisations_join_within_their_process_only(export: Export) -> None:
    export.kernel(1, 2).call("cudaFree_v3020", 1, 9, 4)
    export.operation(tables.SYNC, 2, 8, 4, globalPid=global_tid(200, 0), eventId=2**32 - 1)
    timeline = read_nsys(export.done())
    assert timeline.calls["blocking"].tolist() == [False]
    assert timeline.meta.problems == ("1 synchronisations belong to no recorded API call and are left out",)


def test_sites_name_the_innermost_frame_of_the_program(export: Export) -> None:
    frames = [
        ("0x7f72", "/usr/lib64/libcuda.so.525.105", 1),
        ("__cudart516", "/home/someone/app", None),
        ("cudaDeviceSynchronize", "/home/someone/app", None),
        ("solver::step(int)", "/home/someone/app", None),
        ("main", "/home/someone/app", None),
    ]
    for depth, (symbol, module, unresolved) in reversed(list(enumerate(frames))):
        named = {"symbol": export.string(symbol), "module": export.string(module)}
        export.add("CUDA_CALLCHAINS", id=3, unresolved=unresolved, stackDepth=depth, **named)
    export.call("cudaDeviceSynchronize_v3020", 1, 9, 4, callchainId=3).call("cudaMalloc_v3020", 10, 11, 5)
    export.call("cudaFree_v3020", 12, 13, 6, callchainId=77)
    assert rows(read_nsys(export.done()), "calls", "site") == [("solver::step(int)",), ("",), ("",)]


def test_nodes_know_their_graph(export: Export) -> None:
    export.kernel(1, 2, 5, graphNodeId=(7 << 32) + 1, graphId=70).kernel(2, 3, 5, graphNodeId=(8 << 32) + 1)
    export.operation(tables.MEMCPY, 3, 4, 5, graphNodeId=(7 << 32) + 2, copyKind=8)
    export.kernel(4, 5, 5, graphNodeId=12).kernel(5, 6, 6)
    assert rows(read_nsys(export.done()), "operations", "graph", "node") == [
        (70, (7 << 32) + 1),
        (8, (8 << 32) + 1),
        (70, (7 << 32) + 2),
        (1, 12),
        (0, 0),
    ]


def test_a_whole_graph_is_one_operation_and_its_gaps_are_said_to_be_unseen(export: Export) -> None:
    export.call("cudaGraphLaunch_v10000", 1, 2, 5)
    export.operation(tables.GRAPH_TRACE, 10, 90, 5, graphId=3, graphExecId=4)
    timeline = read_nsys(export.done())
    assert rows(timeline, "operations", "kind", "name", "start_ns", "end_ns", "correlation", "graph") == [
        (GRAPH, GRAPH, 10, 90, 5, 3)
    ]
    assert len(timeline.meta.problems) == 1
    assert "--cuda-graph-trace=node" in timeline.meta.problems[0]


def test_a_graph_with_recorded_nodes_counts_once(export: Export) -> None:
    export.operation(tables.GRAPH_TRACE, 10, 90, 5, graphId=3).kernel(10, 40, 5, graphNodeId=(3 << 32) + 1)
    export.operation(tables.GRAPH_TRACE, 10, 90, 5, graphId=3, globalPid=global_tid(200, 0))
    timeline = read_nsys(export.done())
    assert rows(timeline, "operations", "kind", "process") == [(KERNEL, 100), (GRAPH, 200)]


def test_rows_that_are_there_twice_count_once(export: Export) -> None:
    export.kernel(10, 20, 1).kernel(10, 20, 1).kernel(10, 20, 2, streamId=8)
    export.call("cudaLaunchKernel", 1, 2, 1).call("cudaLaunchKernel", 1, 2, 1)
    timeline = read_nsys(export.done())
    assert (len(timeline.operations), len(timeline.calls)) == (2, 1)
    assert timeline.meta.problems == (
        "1 operations are in the file twice and count once",
        "1 API calls are in the file twice and count once",
    )


@pytest.mark.parametrize(("start", "end"), [(None, 20), (10, None), (20, 10), (0, 0)])
def test_rows_without_sensible_times_are_left_out_and_counted(
    export: Export, start: int | None, end: int | None
) -> None:
    export.kernel(5, 6, 1).kernel(start, end, 2)
    export.call("cudaLaunchKernel", -3, -1, 1).call("cudaLaunchKernel", start, end, 2)
    timeline = read_nsys(export.done())
    assert rows(timeline, "operations", "start_ns", "end_ns") == [(5, 6)]
    assert rows(timeline, "calls", "start_ns", "end_ns") == [(-3, -1)]
    assert timeline.meta.problems == (
        f"1 rows of {tables.KERNEL} have no complete device timestamps and are left out",
        "1 API calls have no complete times and are left out",
    )


def test_devices_that_are_not_told_apart_are_pointed_out(export: Export) -> None:
    export.without(tables.KERNEL, "deviceId").kernel(1, 2)
    assert read_nsys(export.done()).meta.problems == (
        f"table {tables.KERNEL} has no column deviceId: its devices are not told apart",
    )


def test_a_table_without_times_is_left_out(export: Export) -> None:
    export.without(tables.MEMSET, "end").operation(tables.MEMSET, 1, 2).kernel(1, 2)
    timeline = read_nsys(export.done())
    assert len(timeline.operations) == 1
    assert timeline.meta.problems == (f"table {tables.MEMSET} has no column end: it is left out",)


def test_a_file_without_calls_is_a_light_recording(export: Export) -> None:
    assert read_nsys(export.kernel(1, 2).done()).meta.level == "light"


def test_columns_that_hold_text_are_read_by_sqlite(export: Export) -> None:
    export.kernel(1, 2, 1, streamId="seven").kernel(3, 4, 2)
    assert rows(read_nsys(export.done()), "operations", "start_ns", "stream") == [(1, 0), (3, 7)]


def test_any_file_name_can_be_opened(tmp_path: Path) -> None:
    path = Export(tmp_path / "50% of a?b #1.sqlite").kernel(1, 2).done()
    assert len(read_nsys(path).operations) == 1


def test_reading_writes_nothing_and_needs_no_lock(export: Export) -> None:
    path = export.kernel(1, 2).done()
    holder = sqlite3.connect(path)
    holder.execute("BEGIN EXCLUSIVE")
    path.parent.chmod(0o500)
    try:
        before = (path.read_bytes(), sorted(path.parent.iterdir()))
        assert len(read_nsys(path).operations) == 1
        assert (path.read_bytes(), sorted(path.parent.iterdir())) == before
    finally:
        path.parent.chmod(0o700)
        holder.close()


def test_what_the_recorder_lost_makes_idle_not_measurable(export: Export) -> None:
    export.kernel(1, 2)
    for text in ("Dropped 17 CUDA events", "CUPTI buffers were lost", "Dropped 4 NVTX events"):
        export.add("DIAGNOSTIC_EVENT", text=text)
    meta = read_nsys(export.done()).meta
    assert meta.dropped_records == 18
    assert meta.problems == ("Nsight Systems says that it lost CUDA records",)


def test_a_general_warning_is_a_problem_but_no_loss(export: Export) -> None:
    export.kernel(1, 2).add("DIAGNOSTIC_EVENT", text="Not all CUDA events might have been collected.")
    meta = read_nsys(export.done()).meta
    assert (meta.dropped_records, len(meta.problems)) == (0, 1)


def test_what_is_private_stays_in_the_file(export: Export) -> None:
    secret = "hunter2"
    export.kernel(1, 2).call("cudaLaunchKernel", 0, 1)
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value=f"2025 /home/{secret}")
    export.add("META_DATA_EXPORT", name="EXPORT_USER", value=secret)
    export.add("META_DATA_CAPTURE", name="COMMAND_LINE", value=secret)
    export.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value=secret)
    export.add("PROCESSES", globalPid=global_tid(), pid=100, name=secret)
    export.add("DIAGNOSTIC_EVENT", text=f"Dropped CUDA events of /home/{secret}/app")
    timeline = read_nsys(export.done())
    assert timeline.meta.source == "Nsight Systems"
    shown = [repr(timeline.meta), *(frame.to_csv() for frame in (timeline.operations, timeline.calls))]
    assert secret not in "".join(shown)
