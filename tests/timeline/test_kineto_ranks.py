"""A folder with one Kineto file a rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from kineto_files import PROCESS, call, event, kernel, pair, text_of, write

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.errors import EvidenceError, ExitCode
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.timeline.kineto import read_ranks


def test_the_files_become_one_timeline_in_order_of_start(tmp_path: Path) -> None:
    write(tmp_path, text_of(pair(100, 1)), "rank0.json")
    write(
        tmp_path,
        text_of([call(1, 200, 1, pid=200), kernel(50, 3, 1, device=1)]),
        "rank1.json.gz",
        zipped=True,
    )
    timeline = read_ranks(tmp_path)
    assert list(timeline.operations["process"]) == [200, PROCESS]
    assert list(timeline.operations["device"]) == [1, 0]
    assert list(timeline.calls["start_ns"]) == [1000, 100_000]
    assert timeline.meta.source == "torch.profiler (Kineto JSON), 2 files"
    assert timeline.meta.problems == ()


def test_processes_of_equal_number_are_told_apart(tmp_path: Path) -> None:
    for place in range(3):
        write(
            tmp_path,
            text_of([*pair(10 * place, 1), event("cpu_op", f"op{place}", 10 * place, 9)]),
            f"{place}.json",
        )
    timeline = read_ranks(tmp_path)
    for rows in (timeline.operations, timeline.calls, timeline.ranges):
        assert list(rows["process"]) == [PROCESS, PROCESS + 1, PROCESS + 2]
    diagnosis = diagnose(timeline, NotMeasured(reason="a file"))
    assert [device.operations for device in diagnosis.devices] == [1, 1, 1]
    assert diagnosis.launches.submissions == 3


def test_problems_name_their_file(tmp_path: Path) -> None:
    write(tmp_path, text_of(pair(1, 1)), "good.json")
    write(tmp_path, text_of([*pair(1, 1), kernel(-1, 1)]), "odd.json")
    write(tmp_path, b"{}", "other.json")
    assert read_ranks(tmp_path).meta.problems == (
        "odd.json: 1 kernels have no valid start time",
        "other.json: not read: no torch.profiler trace: no array traceEvents in it",
    )


def test_files_of_other_moments_are_named(tmp_path: Path) -> None:
    write(tmp_path, text_of(pair(1, 1)), "a.json")
    write(tmp_path, text_of(pair(10_000_000, 1)), "b.json")
    (problem,) = read_ranks(tmp_path).meta.problems
    assert problem == "b.json: shares no moment with the first file: another clock or another recording"


def test_lost_records_and_the_coarsest_clock_count_for_all(tmp_path: Path) -> None:
    write(tmp_path, text_of([call(1.5, 2, 1), kernel(4.25, 1, 1)]), "a.json")
    write(tmp_path, text_of([*pair(1, 1), kernel(-1, 1)]), "b.json")
    meta = read_ranks(tmp_path).meta
    assert (meta.resolution_ns, meta.dropped_records, meta.level) == (1000, 1, "full")


def test_a_folder_without_a_readable_trace_is_refused(tmp_path: Path) -> None:
    write(tmp_path, b"{}", "other.json")
    with pytest.raises(EvidenceError, match=r"other\.json: not read") as caught:
        read_ranks(tmp_path)
    assert caught.value.exit_code == ExitCode.EVIDENCE


def test_an_empty_folder_and_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=r"no \.json or \.json\.gz file"):
        read_ranks(tmp_path)
    with pytest.raises(EvidenceError, match="not a folder"):
        read_ranks(write(tmp_path, text_of(pair(1, 1))))
