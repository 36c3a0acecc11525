"""Exports that are damaged, cut off, empty or of another kind."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.errors import EvidenceError, ExitCode
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.timeline.nsys import read_nsys
from cudagraph_gate.timeline.nsys_pages import INTERIOR
from tests.timeline.nsys_files import KERNEL, RUNTIME, Export

PAGE: Final = 512
KERNELS: Final = 300


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """300 launches: of kernel n from 100 n to 100 n + 50."""
    made = Export(tmp_path_factory.mktemp("report") / "report.sqlite", page_size=PAGE)
    made.range(1, 2, "first")
    for number in range(KERNELS):
        made.call("cudaLaunchKernel", 100 * number - 20, 100 * number - 10, number + 1)
        made.kernel(100 * number, 100 * number + 50, number + 1)
    return made.done().read_bytes()


@pytest.fixture
def report(tmp_path: Path, undamaged: bytes) -> Path:
    path = tmp_path / "report.sqlite"
    path.write_bytes(undamaged)
    return path


def root_of(path: Path, table: str) -> int:
    db = sqlite3.connect(path)
    (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    db.close()
    return int(root)


def leaf_of(path: Path, table: str) -> int:
    """A leaf page from the middle of a table."""
    content, page = path.read_bytes(), root_of(path, table)
    while content[(page - 1) * PAGE] == INTERIOR:
        inner = content[(page - 1) * PAGE :][:PAGE]
        pointer = 12 + int.from_bytes(inner[3:5], "big") // 2 * 2
        cell = int.from_bytes(inner[pointer : pointer + 2], "big")
        page = int.from_bytes(inner[cell : cell + 4], "big")
    return page


def overwrite(path: Path, page: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(content)


def why_not_measurable(path: Path) -> str:
    idle = diagnose(read_nsys(path), NotMeasured(reason="a file")).devices[0].idle_ns
    return idle.reason if isinstance(idle, NotMeasured) else ""


def test_an_undamaged_report_has_no_problem(report: Path) -> None:
    timeline = read_nsys(report)
    assert (len(timeline.operations), len(timeline.calls)) == (KERNELS, KERNELS)
    assert (timeline.meta.problems, timeline.meta.dropped_records) == ((), 0)
    assert why_not_measurable(report) == ""


@pytest.mark.parametrize("table", [KERNEL, RUNTIME])
@pytest.mark.parametrize("content", [bytes(PAGE), b"\xff" * PAGE], ids=["zeros", "ones"])
def test_a_lost_page_is_said_and_idle_is_not_measurable(report: Path, table: str, content: bytes) -> None:
    overwrite(report, leaf_of(report, table), content)
    timeline = read_nsys(report)
    frame = timeline.operations if table == KERNEL else timeline.calls
    assert KERNELS - 20 < len(frame) < KERNELS
    assert timeline.meta.dropped_records > 0
    assert any(f"table {table} is damaged" in problem for problem in timeline.meta.problems)
    assert "records" in why_not_measurable(report)


def test_a_lost_page_of_ranges_leaves_idle_measurable(tmp_path: Path) -> None:
    made = Export(tmp_path / "report.sqlite", page_size=PAGE).kernel(1, 5).kernel(8, 9)
    for number in range(200):
        made.range(number, number + 1, f"step {number}")
    path = made.done()
    overwrite(path, leaf_of(path, "NVTX_EVENTS"), bytes(PAGE))
    timeline = read_nsys(path)
    names = {int(name.split()[1]): start for name, start in timeline.ranges[["name", "start_ns"]].values}
    assert names
    assert all(number == start for number, start in names.items())
    assert timeline.meta.dropped_records == 0
    assert any("NVTX_EVENTS is damaged" in problem for problem in timeline.meta.problems)


@pytest.mark.parametrize("share", [0.5, 0.75, 0.9])
def test_a_cut_off_report_is_read_as_far_as_it_goes(report: Path, share: float) -> None:
    content = report.read_bytes()
    report.write_bytes(content[: int(len(content) * share)])
    timeline = read_nsys(report)
    assert 0 < len(timeline.operations) < KERNELS
    assert timeline.operations["start_ns"].isin(range(0, 100 * KERNELS, 100)).all()
    assert timeline.meta.dropped_records > 0
    assert any("cut off" in problem for problem in timeline.meta.problems)


def test_every_length_of_a_cut_off_report_is_read_or_refused(report: Path) -> None:
    content = report.read_bytes()
    for length in range(16, len(content), 3001):
        report.write_bytes(content[:length])
        try:
            timeline = read_nsys(report)
        except EvidenceError:
            continue
        assert timeline.meta.problems


def test_a_report_of_which_only_the_first_page_is_left_is_refused(report: Path) -> None:
    report.write_bytes(report.read_bytes()[:PAGE])
    with pytest.raises(EvidenceError) as raised:
        read_nsys(report)
    assert raised.value.exit_code == ExitCode.EVIDENCE
    assert "\n" not in str(raised.value)


@settings(deadline=None, max_examples=60)
@given(at=st.floats(0, 1), content=st.binary(min_size=1, max_size=60))
def test_any_damage_is_read_around_or_refused(undamaged: bytes, at: float, content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.sqlite"
        path.write_bytes(undamaged)
        with path.open("r+b") as file:
            file.seek(100 + int(at * (len(undamaged) - 200)))
            file.write(content)
        with suppress(EvidenceError):
            assert len(read_nsys(path).operations) <= KERNELS


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"{}", "not a SQLite file"),
        (b"SQLite format 3\x00" + b"\xff" * 2000, "damaged"),
    ],
)
def test_files_that_are_no_database_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.sqlite").write_bytes(content)
    with pytest.raises(EvidenceError, match=said):
        read_nsys(tmp_path / "x.sqlite")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="No such file"):
        read_nsys(tmp_path / "none.sqlite")


def test_a_report_without_cuda_tells_how_to_record_it(tmp_path: Path) -> None:
    made = Export(tmp_path / "x.sqlite").execute("CREATE TABLE OSRT_API (start INTEGER, end INTEGER)")
    with pytest.raises(EvidenceError, match=r"no CUDA activity.*--trace=cuda"):
        read_nsys(made.done())


def test_a_report_with_empty_tables_is_refused(tmp_path: Path) -> None:
    made = Export(tmp_path / "x.sqlite").execute(f"CREATE TABLE {KERNEL} (start INTEGER, end INTEGER)")
    with pytest.raises(EvidenceError, match=r"nothing can be read from the report \(its tables are empty"):
        read_nsys(made.done())


def test_what_another_program_has_not_merged_yet_is_pointed_out(report: Path) -> None:
    report.with_name("report.sqlite-wal").write_bytes(b"waiting")
    assert "not merged" in read_nsys(report).meta.problems[0]
