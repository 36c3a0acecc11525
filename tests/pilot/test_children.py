"""Child processes record themselves, whatever way they end, or are named as not recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from cudagraph_gate.pilot.child_recording import REFUSED, STARTED, TIMELINE
from cudagraph_gate.pilot.children import FORKED, GRACE_S, HOOK_FOLDER, Children, merged
from cudagraph_gate.timeline.table import (
    CALL_COLUMNS,
    FAMILIES,
    OPERATION_COLUMNS,
    Timeline,
    TimelineMeta,
    frame_of,
    save,
)

TESTS = Path(__file__).resolve().parents[1]


def timeline(
    process: int, *starts: int, name: str = "scale", dropped: int = 0, problem: str = ""
) -> Timeline:
    meta = TimelineMeta(
        source="test", level="full", dropped_records=dropped, problems=(problem,) if problem else ()
    )
    rows = [
        {
            "kind": "kernel",
            "name": name,
            "start_ns": start,
            "end_ns": start + 5,
            "process": process,
            "correlation": 1,
        }
        for start in starts
    ]
    calls = [{"name": "cuLaunchKernel", "start_ns": start, "process": process} for start in starts]
    return Timeline(
        meta=meta, operations=frame_of(OPERATION_COLUMNS, rows), calls=frame_of(CALL_COLUMNS, calls)
    )


# --- merging ----------------------------------------------------------------------------------------


def test_timelines_of_several_processes_become_one_in_time_order() -> None:
    found = merged(timeline(1, 10, 30), [timeline(2, 20, name="add"), timeline(3)])
    operations = found.operations
    assert list(zip(operations["start_ns"], operations["process"], operations["name"].astype(str))) == [  # noqa: B905
        (10, 1, "scale"),
        (20, 2, "add"),
        (30, 1, "scale"),
    ]
    for family, columns in FAMILIES.items():
        assert dict(getattr(found, family).dtypes.astype(str)) == dict(columns)


def test_what_the_processes_lost_adds_up() -> None:
    own, other = timeline(1, 10, dropped=2, problem="a"), timeline(2, 20, dropped=3, problem="b")
    meta = merged(own, [other, replace(other, meta=other.meta)]).meta
    assert (meta.dropped_records, meta.problems) == (8, ("a", "b"))


def test_without_children_nothing_changes() -> None:
    own = timeline(1, 10)
    assert merged(own, []) is own


# --- naming -----------------------------------------------------------------------------------------


def children(folder: Path | None, **programs: int) -> Children:
    made = Children(folder)
    made.programs = Counter(programs)
    return made


def test_children_that_nobody_records_are_named() -> None:
    _, problems = children(None, python3=2).timelines()
    assert problems == ["2 child processes (python3) were not recorded: --trace-children records Python ones"]


def test_a_script_without_children_has_no_problem() -> None:
    assert children(None).timelines() == ([], [])


def test_with_recording_only_other_programs_and_forks_are_named(tmp_path: Path) -> None:
    save(timeline(8, 10), tmp_path / f"8{TIMELINE}")
    found, problems = children(tmp_path, **{"python3.12": 3, "nvcc": 1, FORKED: 2}).timelines()
    assert [part.operations["process"].tolist() for part in found] == [[8]]
    assert problems == [
        "1 child process (nvcc) was not recorded",
        "2 child processes were forked and not recorded: CUDA can't be used in a fork",
    ]


def test_children_that_left_no_recording_are_counted_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / f"8{STARTED}").touch()
    (tmp_path / f"9{REFUSED}").write_text("no driver")
    (tmp_path / f"10{REFUSED}").write_text("no driver")
    (tmp_path / f"11{TIMELINE}").write_bytes(b"cut off")
    found, problems = children(tmp_path).timelines()
    assert found == []
    assert problems[0].startswith("the recording of a child process can't be read")
    assert problems[1:] == [
        "1 child process ended without leaving a recording: killed, or crashed",
        "2 child processes can't be recorded: no driver",
    ]


# --- recording itself -------------------------------------------------------------------------------


def child(folder: Path, code: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join((str(TESTS.parent), str(TESTS)))
    runner = str(TESTS / "pilot" / "child_runner.py")
    return subprocess.Popen(
        [sys.executable, runner, str(folder), code], env=os.environ | {"PYTHONPATH": path}
    )


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("os._exit(4)", 4),
        ("raise ValueError('meant to be')", 1),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(20)", 128 + signal.SIGTERM),
    ],
)
def test_a_child_leaves_its_timeline_however_it_ends(tmp_path: Path, code: str, status: int) -> None:
    process = child(tmp_path, code)
    assert process.wait(60) == status
    (found,), problems = children(tmp_path).timelines()
    assert problems == []
    assert found.operations["name"].astype(str).tolist() == ["scale"]
    assert found.operations["process"].tolist() == [process.pid]


def test_what_a_child_forks_leaves_nothing(tmp_path: Path) -> None:
    process = child(tmp_path, "child = os.fork()\nif child == 0: os._exit(0)\nos.wait()")
    assert process.wait(60) == 0
    assert [path.name for path in tmp_path.iterdir()] == [f"{process.pid}{TIMELINE}"]


def test_a_killed_child_is_counted_and_ending_does_not_wait_for_it(tmp_path: Path) -> None:
    process = child(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    process.wait(60)
    watch = children(tmp_path)
    began = time.monotonic()
    watch.end()
    assert time.monotonic() - began < GRACE_S / 2
    assert watch.timelines()[1] == ["1 child process ended without leaving a recording: killed, or crashed"]


def test_children_that_still_run_are_told_to_end(tmp_path: Path) -> None:
    process = child(tmp_path, "open(sys.argv[1] + '/ready', 'w').close(); time.sleep(60)")
    while not (tmp_path / "ready").exists():
        assert process.poll() is None
    children(tmp_path).end()
    found, problems = children(tmp_path).timelines()
    assert (len(found), problems) == (1, [])
    assert process.wait(20) == 128 + signal.SIGTERM


def test_another_process_with_a_dead_childs_number_is_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    (tmp_path / f"{stranger.pid}{STARTED}").write_text("1")
    children(tmp_path).end()
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


# --- the hook ---------------------------------------------------------------------------------------


def hooked(folder: Path, code: str, *, before: str = "") -> subprocess.CompletedProcess[str]:
    """A Python process that is started as a recorded script would start it."""
    variables = {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(HOOK_FOLDER), before))),
        "CGATE_CHILDREN_FOLDER": str(folder),
        "CGATE_CHILDREN_ROOT": str(TESTS.parent),
        "CUDA_VISIBLE_DEVICES": "",
    }
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | variables, capture_output=True, text=True, timeout=60
    )


def test_a_child_without_cuda_pays_for_nothing(tmp_path: Path) -> None:
    done = hooked(
        tmp_path, "import json, sys; print(sorted(set(sys.modules) & {'numpy', 'pandas', 'cudagraph_gate'}))"
    )
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("[]\n", "", [])


def test_a_child_that_imports_a_cuda_library_records_or_says_why_not(tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("")
    folder = tmp_path / "children"
    folder.mkdir()
    done = hooked(folder, "import cupy; print('went on')", before=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "went on\n")
    (left,) = folder.iterdir()
    assert left.suffix in (REFUSED, TIMELINE)


def test_the_sitecustomize_that_the_hook_hides_is_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('own start-up')\n")
    done = hooked(tmp_path, "print('script')", before=str(tmp_path))
    assert (done.stdout, done.stderr) == ("own start-up\nscript\n", "")
