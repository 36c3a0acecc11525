"""Ranges, recorder overhead and CPU time of an export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudagraph_gate.timeline.nsys import read_nsys
from cudagraph_gate.timeline.table import Timeline
from tests.timeline import nsys_files as tables
from tests.timeline.nsys_files import PROCESS, THREAD, Export, global_tid

MARK, START_END, DOMAIN = 34, 60, 75


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "report.sqlite")


def ranges(timeline: Timeline, *columns: str) -> list[tuple[Any, ...]]:
    return list(timeline.ranges[list(columns)].itertuples(index=False, name=None))


def test_ranges_have_their_text_or_the_string_they_name(export: Export) -> None:
    export.range(30, 40, textId=export.string("registered")).range(10, 20, "own")
    export.range(50, 60, textId=999)
    timeline = read_nsys(export.done())
    assert ranges(timeline, "name", "domain", "start_ns", "end_ns", "process", "thread") == [
        ("own", "NVTX", 10, 20, PROCESS, THREAD),
        ("registered", "NVTX", 30, 40, PROCESS, THREAD),
        ("(no name)", "NVTX", 50, 60, PROCESS, THREAD),
    ]


def test_ranges_may_end_on_another_thread(export: Export) -> None:
    export.range(1, 2, "a", eventType=START_END, endGlobalTid=global_tid(PROCESS, 150)).range(3, 4, "b")
    assert ranges(read_nsys(export.done()), "thread", "end_thread") == [(THREAD, 150), (THREAD, THREAD)]


def test_domains_are_named_by_process(export: Export) -> None:
    other = global_tid(200, 201)
    export.range(0, None, "cgate", eventType=DOMAIN, domainId=1)
    export.range(0, None, "NCCL", eventType=DOMAIN, domainId=1, globalTid=other)
    export.range(1, 2, "request", domainId=1).range(3, 4, "reduce", domainId=1, globalTid=other)
    export.range(5, 6, "step", domainId=9)
    timeline = read_nsys(export.done())
    assert ranges(timeline, "name", "domain") == [
        ("request", "cgate"),
        ("reduce", "NCCL"),
        ("step", "domain 9"),
    ]
    assert timeline.meta.problems[0] == "1 NVTX domains have no name in the file"
    assert timeline.requests()["start_ns"].tolist() == [1]


def test_marks_are_left_out_and_open_ranges_counted(export: Export) -> None:
    export.range(1, None, "mark", eventType=MARK).range(2, None, "open").range(5, 4, "back").range(
        6, 7, "good"
    )
    timeline = read_nsys(export.done())
    assert ranges(timeline, "name") == [("good",)]
    assert timeline.meta.problems[0] == "2 ranges have no complete times and are left out"


def test_old_rows_without_types_or_domains_are_ranges_of_the_default_domain(export: Export) -> None:
    export.without("NVTX_EVENTS", "eventType", "domainId", "textId", "endGlobalTid")
    export.range(1, 2, "step").range(3, None, "mark")
    assert ranges(read_nsys(export.done()), "name", "domain", "end_thread") == [("step", "NVTX", THREAD)]


def test_equal_ranges_are_all_kept(export: Export) -> None:
    assert len(read_nsys(export.range(1, 2, "a").range(1, 2, "a").done()).ranges) == 2


def test_long_texts_keep_their_rows(export: Export) -> None:
    for number in range(200):
        export.range(number * 10, number * 10 + 5, f"step {number} " + "x" * (number * 10))
    timeline = read_nsys(export.done())
    assert [(name.split()[1], start) for name, start in ranges(timeline, "name", "start_ns")] == [
        (str(number), number * 10) for number in range(200)
    ]


def test_a_file_of_ranges_alone_has_no_gpu_operation(export: Export) -> None:
    timeline = read_nsys(export.range(1, 2, "a").done())
    assert timeline.operations.empty
    assert "no GPU operation" in timeline.meta.problems[0]


def test_overhead_is_what_the_recorder_cost(export: Export) -> None:
    export.kernel(1, 2)
    for table, kind, name in (
        ("PROFILER_OVERHEAD", None, "CUDA profiling initialization"),
        ("PROFILER_OVERHEAD", 3, "CUPTI Buffer flush"),
        ("PROFILER_OVERHEAD", 7, "Lazy Function Loading"),
        (tables.CUPTI_OVERHEAD, 8, "Command Buffer Full"),
        (tables.CUPTI_OVERHEAD, 5, "CUPTI Resource Management"),
    ):
        export.add(
            table, start=10, end=20, globalTid=global_tid(), nameId=export.string(name), overheadType=kind
        )
    overheads = read_nsys(export.done()).overheads
    assert sorted(overheads["name"]) == [
        "CUDA profiling initialization",
        "CUPTI Buffer flush",
        "CUPTI Resource Management",
    ]
    assert overheads[["start_ns", "end_ns", "process"]].drop_duplicates().values.tolist() == [
        [10, 20, PROCESS]
    ]


def test_cpu_time_of_a_calling_thread_is_running_or_waiting(export: Export) -> None:
    export.call("cudaLaunchKernel", 1, 2)
    for start, scheduled in ((10, 1), (30, 0), (70, 1), (80, 1), (90, 0)):
        export.add("SCHED_EVENTS", start=start, cpu=0, isSchedIn=scheduled, globalTid=global_tid())
        export.add(
            "SCHED_EVENTS", start=start, cpu=1, isSchedIn=scheduled, globalTid=global_tid(PROCESS, 999)
        )
    times = read_nsys(export.done()).cpu_times
    assert times[["process", "thread", "start_ns", "end_ns", "on_cpu_ns"]].values.tolist() == [
        [PROCESS, THREAD, 10, 30, 20],
        [PROCESS, THREAD, 30, 70, 0],
        [PROCESS, THREAD, 80, 90, 10],
    ]


def test_operating_system_calls_are_no_cpu_time(export: Export) -> None:
    export.call("cudaLaunchKernel", 1, 2)
    export.execute("CREATE TABLE OSRT_API (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER)")
    export.execute(f"INSERT INTO OSRT_API VALUES (1, 100, {global_tid()}, 1)")
    timeline = read_nsys(export.done())
    assert timeline.cpu_times.empty
    assert timeline.ranges.empty
