"""A folder with one Kineto file a rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from kineto_files import PROCESS, call, event, kernel, pair, text_of, write

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.errors import EvidenceError, ExitCode
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.timeline.kineto_ranks import read_ranks


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
            text_of([*pair(10 * place, 1), event("cpu_op", f"op{place}", 10 * place, 10)]),
            f"{place}.json",
        )
    timeline = read_ranks(tmp_path)
    for rows in (timeline.operations, timeline.calls, timeline.ranges):
        assert list(rows["process"]) == [PROCESS, PROCESS + 1, PROCESS + 2]
    diagnosis = diagnose(timeline, NotMeasured(reason="a file"))
    assert [device.operations for device in diagnosis.devices] == [1, 1, 1]
    assert diagnosis.launches.submissions == 3


def test_problems_number_their_file_and_tell_no_name(tmp_path: Path) -> None:
    write(tmp_path, text_of(pair(1, 1)), "alice-laptop_1.pt.trace.json")
    write(tmp_path, text_of([*pair(1, 1), kernel(-1, 1)]), "bob-laptop_2.pt.trace.json")
    write(tmp_path, b"{}", "carol-laptop_3.pt.trace.json")
    assert read_ranks(tmp_path).meta.problems == (
        "file 2 of 3: 1 kernels have no valid start time",
        "file 3 of 3: not read: no torch.profiler trace: no array traceEvents in it",
    )


def refusal(folder: Path) -> str:
    with pytest.raises(EvidenceError) as caught:
        read_ranks(folder)
    assert caught.value.exit_code == ExitCode.EVIDENCE
    return str(caught.value).removeprefix(f"{folder}: ")


def test_files_of_other_moments_are_refused(tmp_path: Path) -> None:
    for name, ts in {"a": 1, "b": 10_000_000, "c": 3}.items():
        write(tmp_path, text_of(pair(ts, 1)), f"{name}.json")
    assert refusal(tmp_path) == (
        "file 2 of 3 shares no moment with the others: recorded at other times or by other clocks: "
        "read them one by one"
    )


def test_two_groups_of_files_are_refused(tmp_path: Path) -> None:
    for place, ts in enumerate((1, 2, 3, 1000, 1001)):
        write(tmp_path, text_of(pair(ts, 1)), f"{place}.json")
    assert refusal(tmp_path).startswith("files 4, 5 of 5 share no moment with the others")


def test_many_files_apart_are_counted(tmp_path: Path) -> None:
    for place in range(10):
        write(tmp_path, text_of(pair(100 * place, 1)), f"{place}.json")
    assert refusal(tmp_path).startswith("9 of 10 files share no moment with the others")


def test_files_that_overlap_by_way_of_others_stay(tmp_path: Path) -> None:
    for place in range(3):
        write(tmp_path, text_of(pair(7 * place, 1)), f"{place}.json")
    assert len(read_ranks(tmp_path).operations) == 3


def test_a_file_and_its_compressed_twin_are_read_once(tmp_path: Path) -> None:
    for zipped in (False, True):
        write(tmp_path, text_of(pair(1, 1)), "a.json.gz" if zipped else "a.json", zipped=zipped)
    write(tmp_path, text_of(pair(2, 1)), "b.json.gz", zipped=True)
    timeline = read_ranks(tmp_path)
    assert len(timeline.operations) == 2
    assert timeline.meta.problems == ("file 1 of 2 is there plain and compressed: one of them is read",)


def test_traces_of_other_kinds_are_said_not_to_be_read(tmp_path: Path) -> None:
    write(tmp_path, text_of(pair(1, 1)))
    for name in ("alice.sqlite", "bob.SQLITE", "carol.nsys-rep", "notes.txt"):
        write(tmp_path, b"", name)
    assert read_ranks(tmp_path).meta.problems == (
        "2 .sqlite files beside the JSON files not read",
        "1 .nsys-rep file beside the JSON files not read",
    )


def test_lost_records_and_the_coarsest_clock_count_for_all(tmp_path: Path) -> None:
    write(tmp_path, text_of([call(1.5, 2, 1), kernel(4.25, 1, 1)]), "a.json")
    write(tmp_path, text_of([*pair(1, 1), kernel(-1, 1)]), "b.json")
    meta = read_ranks(tmp_path).meta
    assert (meta.resolution_ns, meta.dropped_records, meta.level) == (1000, 1, "full")


def test_a_folder_without_a_readable_trace_is_refused(tmp_path: Path) -> None:
    write(tmp_path, b"{}", "other.json")
    with pytest.raises(EvidenceError, match="file 1 of 1: not read") as caught:
        read_ranks(tmp_path)
    assert caught.value.exit_code == ExitCode.EVIDENCE


def test_an_empty_folder_and_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=r"no \.json or \.json\.gz file"):
        read_ranks(tmp_path)
    with pytest.raises(EvidenceError, match="not a folder"):
        read_ranks(write(tmp_path, text_of(pair(1, 1))))
