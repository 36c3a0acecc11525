"""Kineto files as timelines: what each row becomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from kineto_files import PROCESS, call, event, kernel, on_gpu, pair, read, starts, text_of, write

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.timeline.kineto import read_kineto

EPOCH_US = 1701242000982290


def first(frame: pd.DataFrame, *columns: str) -> tuple[Any, ...]:
    return tuple(frame.iloc[0][name] for name in columns)


# --- operations -------------------------------------------------------------------------------------
def test_a_kernel_keeps_all_that_the_file_says(tmp_path: Path) -> None:
    args = {"graph id": 4, "graph node id": 9, "grid": [1, 2, 3], "block": [32, 4, 1], "queued": 0}
    rows = read(
        tmp_path, [kernel(10.5, 2.25, 5, "add", **args), call(9, 1, 5)], baseTimeNanoseconds=0
    ).operations
    assert first(rows, "kind", "name", "start_ns", "end_ns") == ("kernel", "add", 10_500, 12_750)
    assert first(rows, "device", "context", "stream", "process") == (0, 1, 7, PROCESS)
    assert first(rows, "correlation", "graph", "node", "queued_ns", "submitted_ns") == (5, 4, 9, 0, 0)
    assert first(rows, "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z") == (1, 2, 3, 32, 4, 1)


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "HtoD"),
        ("Memcpy DtoH (Device -> Pinned)", "DtoH"),
        ("Memcpy PtoP (Device -> Device)", "PtoP"),
        ("CopyDeviceToHost", "DtoH"),
        ("Memcpy of some kind", "copy"),
    ],
)
def test_a_copy_is_named_by_its_direction(tmp_path: Path, name: str, direction: str) -> None:
    rows = read(tmp_path, [on_gpu("gpu_memcpy", name, 1, 2, 3, bytes=4096)]).operations
    assert first(rows, "kind", "name", "bytes") == ("memcpy", direction, 4096)


def test_a_memset_has_its_bytes(tmp_path: Path) -> None:
    rows = read(tmp_path, [on_gpu("gpu_memset", "Memset (Device)", 1, 2, 3, bytes=16)]).operations
    assert first(rows, "kind", "name", "bytes") == ("memset", "memset", 16)


def test_operations_come_in_order_of_start(tmp_path: Path) -> None:
    events = [kernel(30, 1), on_gpu("gpu_memset", "Memset (Device)", 20, 1, 0), kernel(10, 1)]
    rows = read(tmp_path, events).operations
    assert list(rows["start_ns"]) == [10_000, 20_000, 30_000]
    assert list(rows["kind"]) == ["kernel", "memset", "kernel"]


def test_a_row_without_arguments_is_placed_by_its_row_in_the_picture(tmp_path: Path) -> None:
    rows = read(tmp_path, [event("kernel", "k", 1, 2, pid=3, tid="stream 22")]).operations
    assert first(rows, "device", "stream", "process", "correlation") == (3, 22, 0, 0)


def test_old_category_names_are_read(tmp_path: Path) -> None:
    events = [
        call(1, 1, 5, cat="Runtime", tid="24572"),
        on_gpu("Kernel", "k", 3, 1, 5),
        on_gpu("Memcpy", "Memcpy HtoD (Pageable -> Device)", 5, 1, 6),
        on_gpu("Memset", "Memset (Device)", 7, 1, 7),
        event("Operator", "aten::add", 0, 3),
    ]
    timeline = read(tmp_path, events)
    assert list(timeline.operations["kind"]) == ["kernel", "memcpy", "memset"]
    assert first(timeline.calls, "name", "thread") == ("cudaLaunchKernel", 24572)
    assert first(timeline.ranges, "name", "domain") == ("aten::add", "cpu_op")


# --- times ------------------------------------------------------------------------------------------
def test_whole_microseconds_since_the_epoch_are_exact(tmp_path: Path) -> None:
    timeline = read(tmp_path, [kernel(EPOCH_US, 7)])
    assert first(timeline.operations, "start_ns", "end_ns") == (EPOCH_US * 1000, EPOCH_US * 1000 + 7000)
    assert timeline.meta.resolution_ns == 1000


def test_fractions_of_a_microsecond_are_exact_and_count_from_the_base(tmp_path: Path) -> None:
    base = 1_790_857_026_000_000_000
    timeline = read(tmp_path, [kernel(5_239_270_295_644.393, 2.561)], baseTimeNanoseconds=base)
    start = base + 5_239_270_295_644_393
    assert first(timeline.operations, "start_ns", "end_ns") == (start, start + 2561)
    assert timeline.meta.resolution_ns == 1


def test_fractions_on_the_epoch_resolve_a_quarter_of_a_microsecond(tmp_path: Path) -> None:
    timeline = read(tmp_path, [kernel(1_712_195_495_505_582.75, 4.928)])
    assert first(timeline.operations, "start_ns", "end_ns") == (
        1_712_195_495_505_582_750,
        1_712_195_495_505_587_678,
    )
    assert timeline.meta.resolution_ns == 250


def test_a_base_may_stand_before_the_events(tmp_path: Path) -> None:
    content = b'{"baseTimeNanoseconds": 5000, "traceEvents": [' + json.dumps(kernel(1, 1)).encode() + b"]}"
    assert starts(read_kineto(write(tmp_path, content))) == [6000]


def test_a_base_out_of_range_is_left_out_and_said(tmp_path: Path) -> None:
    timeline = read(tmp_path, [kernel(1, 1)], baseTimeNanoseconds=9_223_372_036_854_775_000)
    assert starts(timeline) == [1000]
    assert timeline.meta.problems == ("the time that the file counts from is out of range and left out",)


# --- forms of files ---------------------------------------------------------------------------------
@pytest.mark.parametrize("zipped", [False, True])
def test_gzip_is_known_by_content_not_by_name(tmp_path: Path, zipped: bool) -> None:
    path = write(tmp_path, text_of(pair(1, 5)), "trace.txt", zipped=zipped)
    assert starts(read_kineto(path)) == [6000]


def test_an_array_of_events_is_a_trace(tmp_path: Path) -> None:
    assert starts(read_kineto(write(tmp_path, json.dumps(pair(1, 5)).encode()))) == [6000]


def test_the_key_of_the_events_counts_at_the_top_only(tmp_path: Path) -> None:
    timeline = read(tmp_path, pair(1, 5), metadata={"traceEvents": [kernel(90, 1)]}, note='"traceEvents": [')
    assert starts(timeline) == [6000]


def test_braces_and_quotes_in_names_end_no_event(tmp_path: Path) -> None:
    names = ['a},\n{"b', "}]}", '"traceEvents": [', "λ \\ }, {"]
    events = [kernel(10 * place, 1, name=name) for place, name in enumerate(names)]
    timeline = read(tmp_path, events, later=[{}, {}])
    assert list(timeline.operations["name"]) == names
    assert timeline.meta.problems == ()


def test_objects_in_arguments_end_no_event(tmp_path: Path) -> None:
    nested = [{"a": 1}, {"ph": "X", "cat": "kernel", "ts": 1, "dur": 1}]
    timeline = read(tmp_path, [kernel(10, 1, 1, inputs=nested), kernel(20, 1, 2, inputs=nested)])
    assert starts(timeline) == [10_000, 20_000]
    assert timeline.meta.problems == ()


def test_a_file_of_many_blocks_loses_nothing(tmp_path: Path) -> None:
    count = 60_000
    path = write(tmp_path, text_of([kernel(place, 1, place) for place in range(count)]))
    assert path.stat().st_size > 10 << 20
    assert starts(read_kineto(path)) == [1000 * place for place in range(count)]


# --- calls ------------------------------------------------------------------------------------------
def test_a_call_has_thread_process_and_correlation(tmp_path: Path) -> None:
    timeline = read(tmp_path, [call(1, 2, 5, tid=321), kernel(9, 1, 5)])
    columns = ("name", "start_ns", "end_ns", "process", "thread", "correlation", "blocking", "status", "site")
    assert first(timeline.calls, *columns) == ("cudaLaunchKernel", 1000, 3000, PROCESS, 321, 5, False, 0, "")
    assert timeline.meta.level == "full"


def test_the_drivers_launches_are_calls(tmp_path: Path) -> None:
    events = [call(1, 2, 5, "cuLaunchKernelEx", "cuda_driver"), kernel(9, 1, 5)]
    assert diagnose(read(tmp_path, events), NotMeasured(reason="a file")).launches.submissions == 1


def test_one_graph_launch_owns_all_its_kernels(tmp_path: Path) -> None:
    events = [call(1, 2, 5, "cudaGraphLaunch"), *(kernel(ts, 1, 5) for ts in (10, 12, 14)), *pair(20, 6)]
    timeline = read(tmp_path, events)
    assert list(timeline.operations["graph"]) == [1, 1, 1, 0]
    launches = diagnose(timeline, NotMeasured(reason="a file")).launches
    assert (launches.submissions, launches.graph_launches) == (2, 1)


def test_graph_id_0_is_no_graph(tmp_path: Path) -> None:
    events = [call(1, 2, 5), kernel(9, 1, 5, **{"graph id": 0, "graph node id": 0})]
    assert first(read(tmp_path, events).operations, "graph", "node") == (0, 0)


def test_hip_names_are_read_like_cudas(tmp_path: Path) -> None:
    names = ("hipGraphLaunch", "hipMemcpyWithStream", "hipDeviceSynchronize", "hipModuleLaunchKernel")
    events = [call(10 * place, 2, place + 1, name) for place, name in enumerate(names)]
    timeline = read(tmp_path, [*events, kernel(5, 1, 1), kernel(35, 1, 4)])
    assert list(timeline.calls["blocking"]) == [False, True, True, False]
    assert list(timeline.operations["graph"]) == [1, 0]
    assert timeline.meta.problems == ()


def test_a_stream_wait_names_its_stream_and_event_and_so_does_the_record(tmp_path: Path) -> None:
    wait = {"wait_on_stream": 20, "wait_on_cuda_event_id": 3, "wait_on_cuda_event_record_corr_id": 8}
    events = [
        call(1, 1, 8, "cudaEventRecord"),
        call(3, 1, 9, "cudaStreamWaitEvent"),
        on_gpu("cuda_sync", "Stream Wait Event", 4, 1, 9, **wait),
        call(6, 1, 10, "cudaDeviceSynchronize"),
        on_gpu("cuda_sync", "Context Sync", 6, 1, 10, stream=2**32 - 1),
    ]
    calls = read(tmp_path, events).calls
    assert list(zip(calls["stream"], calls["event"], strict=True)) == [(20, 3), (7, 3), (0, 0)]


def test_a_blocking_call_is_placed_at_the_innermost_function(tmp_path: Path) -> None:
    events = [
        event("python_function", "/home/someone/secret/train.py(7): main", 0, 100),
        event("python_function", "torch/cuda/__init__.py(975): synchronize", 10, 20),
        event("python_function", "<built-in function _cuda_synchronize>", 11, 15),
        call(12, 3, 1, "cudaDeviceSynchronize"),
        call(50, 3, 2, "cudaDeviceSynchronize"),
        call(60, 3, 3),
    ]
    sites = list(read(tmp_path, events).calls["site"])
    assert sites == ["__init__.py:975 synchronize", "train.py:7 main", ""]


def test_a_blocking_call_is_placed_at_its_operator_where_no_function_is_known(tmp_path: Path) -> None:
    events = [
        event("cpu_op", "aten::item", 0, 10),
        event("cpu_op", "aten::_local_scalar_dense", 1, 8),
        event("cpu_op", "elsewhere", 0, 90, tid=5),
        call(2, 3, 1, "cudaStreamSynchronize"),
    ]
    assert list(read(tmp_path, events).calls["site"]) == ["aten::_local_scalar_dense"]


# --- processes --------------------------------------------------------------------------------------
def test_operations_of_several_host_processes_are_joined_by_correlation(tmp_path: Path) -> None:
    events = [call(1, 1, 5), call(2, 1, 6, pid=200), kernel(5, 1, 5), kernel(7, 1, 6)]
    assert list(read(tmp_path, events).operations["process"]) == [PROCESS, 200]


def test_a_correlation_of_two_processes_joins_nothing(tmp_path: Path) -> None:
    events = [call(1, 1, 5), call(2, 1, 5, pid=200), call(3, 1, 6), kernel(5, 1, 5), kernel(7, 1, 6)]
    timeline = read(tmp_path, events)
    assert list(timeline.operations["correlation"]) == [0, 6]
    assert "1 operations carry a correlation that several processes used" in " ".join(timeline.meta.problems)


# --- ranges and overheads ---------------------------------------------------------------------------
def test_annotations_and_operators_are_ranges(tmp_path: Path) -> None:
    events = [
        event("user_annotation", "ProfilerStep#3", 0, 50, tid=8),
        event("cpu_op", "aten::mm", 1, 2),
        event("python_function", "x.py(1): f", 1, 2),
        event("gpu_user_annotation", "ProfilerStep#3", 5, 2),
    ]
    ranges = read(tmp_path, events).ranges
    assert list(ranges["name"]) == ["ProfilerStep#3", "aten::mm"]
    assert list(ranges["domain"]) == ["annotation", "cpu_op"]
    assert first(ranges, "start_ns", "end_ns", "process", "thread", "end_thread") == (
        0,
        50_000,
        PROCESS,
        8,
        8,
    )


def test_what_the_program_has_without_a_recorder_is_no_overhead(tmp_path: Path) -> None:
    kinds = ("Lazy Function Loading", "Command Buffer Full", "Runtime Triggered Module Loading")
    rows = [event("overhead", kind, 2, 4, pid=-1, tid=0) for kind in (*kinds, "Activity Buffer Request")]
    assert list(read(tmp_path, [*pair(1, 5), *rows]).overheads["name"]) == ["Activity Buffer Request"]


def test_overheads_belong_to_the_recording_process(tmp_path: Path) -> None:
    rows = read(tmp_path, [*pair(1, 5), event("overhead", "Buffer Flush", 2, 4, pid=-1, tid=0)]).overheads
    assert first(rows, "name", "start_ns", "end_ns", "process") == ("Buffer Flush", 2000, 6000, PROCESS)


def test_nothing_of_who_recorded_it_enters(tmp_path: Path) -> None:
    secret = {"host_name": "box", "username": "alice", "traceName": "/home/alice/t.json", "cmd": "run --key"}
    events = [*pair(1, 5), {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "alice"}}]
    timeline = read(tmp_path, events, **secret)
    frames = (timeline.operations, timeline.calls, timeline.ranges, timeline.overheads)
    everything = " ".join([str(timeline.meta), *(frame.to_csv() for frame in frames)])
    assert not [word for word in ("box", "alice", "home", "--key") if word in everything]


# --- what can't be judged ---------------------------------------------------------------------------
def test_a_file_without_gpu_rows_claims_no_idle(tmp_path: Path) -> None:
    timeline = read(tmp_path, [event("cpu_op", "aten::add", 0, 3)])
    assert timeline.meta.level == "light"
    assert "no GPU operation and no CUDA or HIP call, only 1 operators" in timeline.meta.problems[0]
    assert diagnose(timeline, NotMeasured(reason="a file")).devices == ()


def test_calls_without_any_operation_are_said(tmp_path: Path) -> None:
    assert "no GPU operation beside 1 CUDA or HIP calls" in read(tmp_path, [call(1, 1, 5)]).meta.problems[0]


def test_another_accelerator_is_named(tmp_path: Path) -> None:
    problems = read(tmp_path, [event("mtia_runtime", "run", 0, 3)]).meta.problems
    assert problems == ("no CUDA or HIP operation: the events are of another accelerator (mtia_runtime)",)


def test_captured_launches_are_no_lost_records(tmp_path: Path) -> None:
    events = [
        *pair(1, 1),
        call(20, 1, 2, "cudaStreamBeginCapture"),
        call(22, 1, 3),
        call(24, 1, 4),
        call(26, 1, 5, "cudaStreamEndCapture"),
        *pair(30, 6),
    ]
    timeline = read(tmp_path, events)
    assert timeline.meta.dropped_records == 0
    assert timeline.meta.problems[0].startswith("2 of 4 launch calls were captured into a graph")


def test_a_capture_that_began_before_the_recording_counts(tmp_path: Path) -> None:
    events = [call(1, 1, 2), call(3, 1, 3, "cudaStreamEndCapture"), *pair(5, 4)]
    assert read(tmp_path, events).meta.dropped_records == 0


def test_idle_is_not_measurable_where_launched_work_is_missing(tmp_path: Path) -> None:
    timeline = read(tmp_path, [*pair(1, 1), call(20, 1, 2), *pair(30, 3)])
    assert timeline.meta.problems == ("1 of 3 launch calls have no operation in the file",)
    assert timeline.meta.dropped_records == 1
    (device,) = diagnose(timeline, NotMeasured(reason="a file")).devices
    assert isinstance(device.idle_ns, NotMeasured)


def test_launches_that_the_recording_did_not_live_to_see_are_no_loss(tmp_path: Path) -> None:
    timeline = read(tmp_path, [*pair(1, 1), *pair(30, 3), call(32, 1, 4), call(90, 1, 5)])
    (problem,) = timeline.meta.problems
    assert problem.startswith("2 launches had not run when the recording ended")
    assert timeline.meta.dropped_records == 0


def test_a_later_graph_launch_that_ran_tells_a_loss_from_an_unfinished_launch(tmp_path: Path) -> None:
    graph = [call(40, 1, 5, "cudaGraphLaunch"), kernel(45, 3, 5)]
    assert read(tmp_path, [*pair(1, 1), call(20, 1, 2), *graph]).meta.dropped_records == 1


def test_a_capture_on_another_thread_hides_no_lost_kernels(tmp_path: Path) -> None:
    capture = [call(10, 1, 7, "cudaStreamBeginCapture", tid=99)]
    events = [*pair(1, 1), *capture, call(20, 1, 2), *pair(30, 3)]
    assert read(tmp_path, events).meta.dropped_records == 1
    ended = call(40, 1, 8, "cudaStreamEndCapture", tid=99)
    assert read(tmp_path, [*events, ended]).meta.dropped_records == 1


def both_processes(missing: int = 0) -> list[dict[str, Any]]:
    """Two processes with the same correlations, on one device each; the last ``missing`` kernels are lost."""
    kernels = [kernel(20 * each + 8, 4, each, device=device) for each in range(1, 5) for device in (0, 1)]
    launches = [call(20 * each, 5, each, pid=pid) for each in range(1, 5) for pid in (100, 200)]
    return launches + kernels[missing:]


def test_correlations_of_two_processes_lose_nothing(tmp_path: Path) -> None:
    meta = read(tmp_path, both_processes()).meta
    assert meta.dropped_records == 0
    assert meta.problems == (
        "8 operations carry a correlation that several processes used: their call is not known",
    )


def test_what_is_missing_among_shared_correlations_is_counted(tmp_path: Path) -> None:
    assert read(tmp_path, both_processes(missing=1)).meta.dropped_records == 1


def test_processes_without_a_common_correlation_share_none(tmp_path: Path) -> None:
    events = [call(1, 2, 1), kernel(5, 1, 1), call(2, 2, 2, pid=200), kernel(7, 1, 2)]
    meta = read(tmp_path, events).meta
    assert (meta.dropped_records, meta.problems) == (0, ())
