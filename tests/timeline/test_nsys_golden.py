"""Public exports with the counts and times that their table gives."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.errors import EvidenceError
from cudagraph_gate.model import Cause, Diagnosis, NotMeasured
from cudagraph_gate.timeline.nsys import read_nsys
from cudagraph_gate.timeline.table import GRAPH, KERNEL, MEMCPY, MEMSET, Timeline

GRAPHED: Final = "nsight-2025.5.2.sqlite"
TWO_GPUS: Final = "h100_2gpu_1s.sqlite"
SYNTHETIC: Final = "healthy_1pct.sqlite"
COMPILING: Final = "report2_2024.6.2_h200.sqlite"
SYNC_BOUND: Final = "perlmutter-cloverleaf-cuda.sqlite"


def kinds(timeline: Timeline) -> tuple[int, ...]:
    found = timeline.operations["kind"].value_counts()
    return tuple(int(found.get(kind, 0)) for kind in (KERNEL, MEMCPY, MEMSET, GRAPH))


def calls_of(timeline: Timeline, *names: str) -> int:
    return int(timeline.calls["name"].isin(names).sum())


def diagnosed(timeline: Timeline) -> Diagnosis:
    return diagnose(timeline, NotMeasured(reason="a file"))


@pytest.mark.parametrize(
    ("file", "version", "operations", "calls", "streams"),
    [
        (GRAPHED, "2025.5.2.266", (3, 1, 0, 2), 33, 1),
        (TWO_GPUS, "2026.2.1.210", (3442, 904, 22, 0), 5796, 2),
        (SYNTHETIC, "2026.1.1.204", (400, 0, 0, 0), 400, 1),
        (COMPILING, "2024.6.2.25", (19, 1, 1, 0), 968, 1),
        (SYNC_BOUND, "2024.5.1.113", (1312, 279, 0, 0), 3048, 1),
    ],
)
def test_everything_in_the_file_is_read(
    traces: Path, file: str, version: str, operations: tuple[int, ...], calls: int, streams: int
) -> None:
    timeline = read_nsys(traces / file)
    assert timeline.meta.source == f"Nsight Systems {version}"
    assert (kinds(timeline), len(timeline.calls)) == (operations, calls)
    assert len(timeline.operations[["process", "stream"]].drop_duplicates()) == streams


@pytest.mark.parametrize(
    ("file", "busy_and_span"),
    [
        (GRAPHED, [(7_808, 186_815)]),
        (TWO_GPUS, [(962_890_247, 969_447_605), (962_810_705, 969_258_578)]),
        (SYNTHETIC, [(400_000_000, 403_990_000)]),
        (COMPILING, [(393_116, 503_631_197)]),
        (SYNC_BOUND, [(303_795_463, 342_407_810)]),
    ],
)
def test_busy_time_and_span_of_each_device(
    traces: Path, file: str, busy_and_span: list[tuple[int, int]]
) -> None:
    timeline = read_nsys(traces / file)
    spans = timeline.operations.groupby(["process", "device"]).agg({"start_ns": "min", "end_ns": "max"})
    found = [device.busy_ns for device in diagnosed(timeline).devices]
    assert list(zip(found, spans["end_ns"] - spans["start_ns"], strict=True)) == busy_and_span


def test_graph_launches_as_a_whole_are_measured_with_a_word_on_their_gaps(traces: Path) -> None:
    timeline = read_nsys(traces / GRAPHED)
    diagnosis = diagnosed(timeline)
    assert calls_of(timeline, "cudaLaunchKernel") == 4
    assert calls_of(timeline, "cudaGraphLaunch") == diagnosis.launches.graph_launches == 2
    assert timeline.calls.loc[timeline.calls["blocking"], "name"].tolist() == ["cudaStreamSynchronize"] * 2
    assert diagnosis.devices[0].idle_ns == 186_815 - 7_808
    assert any("--cuda-graph-trace=node" in problem for problem in diagnosis.problems)


def test_processes_with_the_same_correlations_stay_apart(traces: Path) -> None:
    timeline = read_nsys(traces / TWO_GPUS)
    assert sorted(timeline.calls["process"].unique()) == sorted(timeline.operations["process"].unique())
    calls = set(timeline.calls[["process", "correlation"]].itertuples(index=False, name=None))
    kernels = timeline.operations[timeline.operations["kind"] == KERNEL]
    launched = [
        pair in calls for pair in kernels[["process", "correlation"]].itertuples(index=False, name=None)
    ]
    assert (
        launched.count(False) == 1810
    )  # 1799 by correlation alone: eleven would take the other process's call
    assert len(timeline.ranges) == 16_782
    assert set(timeline.ranges["domain"]) == {"NVTX"}
    waits = timeline.calls[timeline.calls["name"] == "cudaStreamWaitEvent"]
    assert (len(waits), int((waits["event"] > 0).sum()), int(waits["blocking"].sum())) == (236, 236, 0)
    assert timeline.calls.loc[timeline.calls["blocking"], "name"].tolist() == ["cudaStreamSynchronize"] * 8


@pytest.mark.parametrize(
    ("file", "unfinished"), [(GRAPHED, 0), (TWO_GPUS, 1714), (SYNTHETIC, 0), (COMPILING, 0), (SYNC_BOUND, 0)]
)
def test_no_launch_of_these_files_was_lost(traces: Path, file: str, unfinished: int) -> None:
    # GRAPHED has a captured launch; TWO_GPUS is cut off while two processes have 857 launches queued each.
    meta = read_nsys(traces / file).meta
    assert meta.dropped_records == 0
    said = [problem for problem in meta.problems if "launches had not run" in problem]
    assert said == ([f"{unfinished} launches had not run when the recording ended"] if unfinished else [])


def test_one_percent_idle_of_a_made_file(traces: Path) -> None:
    device = diagnosed(read_nsys(traces / SYNTHETIC)).devices[0]
    assert device.idle_ns == 399 * 10_000
    assert sum(device.causes.values()) == 3_990_000


def test_mixed_runtime_and_driver_launches(traces: Path) -> None:
    timeline = read_nsys(traces / COMPILING)
    assert calls_of(timeline, "cudaLaunchKernel") == 17
    assert calls_of(timeline, "cuLaunchKernel", "cuLaunchKernelEx") == 2
    assert len(timeline.ranges) == 652


def test_code_that_waits_after_every_kernel(traces: Path) -> None:
    timeline = read_nsys(traces / SYNC_BOUND)
    assert calls_of(timeline, "cudaDeviceSynchronize") == 1312
    blocking = timeline.calls[timeline.calls["blocking"]]
    assert blocking["name"].value_counts().to_dict()["cudaDeviceSynchronize"] == 1312
    assert diagnosed(timeline).devices[0].causes[Cause.SYNC] > 0
    assert len(timeline.cpu_times) == 1071
    assert set(timeline.cpu_times["thread"]) == set(timeline.calls["thread"])


def test_private_text_of_real_files_is_not_read(traces: Path) -> None:
    timeline = read_nsys(traces / SYNC_BOUND)
    shown = repr(timeline.meta) + "".join(
        frame.to_csv() for frame in (timeline.calls, timeline.ranges, timeline.overheads)
    )
    assert not [word for word in ("jhdavis", "quadd_session", "/global/", "umd.edu") if word in shown]


def test_another_sqlite_file_is_refused_by_what_it_holds(traces: Path) -> None:
    with pytest.raises(EvidenceError, match="not an export of Nsight Systems: the SQLite file holds test"):
        read_nsys(traces / "not_nsys_test.sqlite")
