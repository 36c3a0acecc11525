"""Whatever a user gives it, the command ends with one line and a code, never with a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import LONG_KERNELS, MODULE, Ended, Recorded, cgate, runs, without_gpu, write

ROOT = Path(__file__).resolve().parents[2]


def is_one_line(ended: Ended, code: int) -> bool:
    """Whether it complained in one line, with nothing before it but progress."""
    return (
        ended.code == code
        and ended.out == ""
        and "Traceback" not in ended.err
        and ended.complaint[:7] == "cgate: "
    )


FILES: dict[str, bytes] = {
    "binary.py": b"\x00\x01\xff\xfe",
    "latin.py": b"name = '\xe9'\n",
    "empty.py": b"",
    "blank.py": b"\n\n",
    "text.txt": b"no python",
    "deep.py": b"x = " + b"(" * 500 + b")" * 500,
}


@pytest.mark.parametrize("name", [*FILES, "folder.py", "none/model.py", "", "."])
def test_a_path_that_is_no_workload(tmp_path: Path, name: str):
    (tmp_path / "folder.py").mkdir()
    if name in FILES:
        (tmp_path / name).write_bytes(FILES[name])
    ended = cgate(tmp_path, "run", name)
    assert is_one_line(ended, 21), ended


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads and writes everything")
def test_an_unreadable_file_and_a_folder_that_can_not_be_written(tmp_path: Path):
    write(tmp_path).chmod(0)
    assert is_one_line(cgate(tmp_path, "run", "model.py"), 21)
    (tmp_path / "model.py").chmod(0o600)
    tmp_path.chmod(0o500)
    assert is_one_line(cgate(tmp_path, "run", "model.py"), 22)


@pytest.mark.parametrize("taken", [".cgate", ".cgate/runs"])
def test_no_place_for_a_run(tmp_path: Path, taken: str):
    write(tmp_path)
    (tmp_path / taken).parent.mkdir(exist_ok=True)
    (tmp_path / taken).touch()
    ended = cgate(tmp_path, "run", "model.py")
    assert is_one_line(ended, 22), ended
    assert "can't make a run folder" in ended.err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("import sys\nsys.exit(3)\n", "importing it called sys.exit(3)"),
        ("import os\nos._exit(0)\n", "exit code 0"),
        ("import os\nos._exit(7)\n", "exit code 7"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "SIGSEGV"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "SIGKILL"),
        ("import os, shutil\nshutil.rmtree(os.getcwd())\n", ""),
        ("def build(shape):\n    return build(shape)\n", "RecursionError"),
        ("def build(shape): raise ValueError('two\\nlines')\n", "two"),
    ],
)
def test_a_workload_that_breaks_its_process(tmp_path: Path, more: str, says: str):
    folder = tmp_path / "work"
    folder.mkdir()
    write(folder, more=more)
    ended = cgate(folder, "profile", "model.py")
    assert is_one_line(ended, ended.code), ended
    assert ended.code in (21, 22)
    assert says in ended.complaint


def test_a_workload_may_print_and_change_its_folder(tmp_path: Path):
    noise = "import os, sys\nprint('noise ' * 20_000)\nsys.stderr.write('more\\n')\nos.chdir('/')\n"
    write(tmp_path, more=noise)
    ended = cgate(tmp_path, "profile", "model.py", "--json")
    assert ended.code == 0
    assert ended.out.startswith("{")
    assert "noise" in ended.err
    assert len(runs(tmp_path)) == 1


def test_a_path_with_spaces_and_letters_of_any_language(tmp_path: Path):
    folder = tmp_path / "zwei wörter"
    folder.mkdir()
    write(folder, name="modèle 模型.py")
    for name in ("modèle 模型.py", str(folder / "modèle 模型.py")):
        ended = cgate(folder, "profile", name)
        assert ended.code == 0
        assert f"evidence: {runs(folder)[-1].relative_to(folder)}" == ended.complaint


# --- where the result goes ------------------------------------------------------------------------


def piped(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    script = f"set -o pipefail; {' '.join(MODULE)} {command}"
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=without_gpu(), capture_output=True, text=True
    )


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Standard error without the line that says which run is judged."""
    return [line for line in done.stderr.splitlines() if not line.startswith("judging ")]


@pytest.mark.parametrize(
    ("command", "code"), [("report | head -1", 0), ("report | true", 0), ("verdict --json | true", 12)]
)
def test_a_reader_that_leaves_early_changes_nothing(original: Recorded, command: str, code: int):
    done = piped(original.folder, command)
    assert (done.returncode, complaints(done)) == (code, [])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("command", ["report", "verdict --json"])
def test_a_full_disk_is_told_in_one_line(original: Recorded, command: str):
    done = piped(original.folder, f"{command} > /dev/full")
    says = "cgate: standard output: can't write the result (No space left on device)"
    assert (done.returncode, complaints(done)) == (2, [says])


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_change_nothing(tmp_path: Path, closed: str):
    write(tmp_path)
    assert piped(tmp_path, f"profile model.py {closed}").returncode == 0
    assert (runs(tmp_path)[0] / "diagnosis.json").exists()


@pytest.mark.parametrize("name", ["numpy.py", "cudagraph_gate.py", "json.py", "typer.py"])
def test_a_file_of_the_working_folder_is_not_taken_for_a_library(tmp_path: Path, name: str):
    (tmp_path / name).write_text("raise RuntimeError('not what was meant')\n")
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub", *LONG_KERNELS)
    entry = (
        sys.executable,
        "-P",
        "-c",
        f"import sys; sys.path.append({str(ROOT)!r}); from cudagraph_gate.cli import main; main()",
    )
    ended = cgate(tmp_path, "profile", "sub/model.py", entry=entry)
    assert ended.code == 0, ended.err


def test_what_was_recorded_before_the_workload_failed_is_named(tmp_path: Path):
    failing = """
import pathlib
_build = build

def build(shape):
    if list(pathlib.Path(".cgate/runs").glob("*/profile.json")):
        raise KeyError("weights")
    return _build(shape)
"""
    write(tmp_path, more=failing)
    ended = cgate(tmp_path, "run", "model.py", "--skip", "all", "--rungs", "1")
    assert ended.code == 21
    assert "recorded until then: .cgate/runs/" in ended.err
    assert "see: cgate report" in ended.err


def test_progress_that_nobody_takes_ends_nothing(tmp_path: Path):
    write(tmp_path)
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*MODULE, "run", "model.py", "--device", "simulated", "--skip", "all", "--rungs", "1", "--json"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=full,
        )
    assert ended.returncode == 12
    assert ended.stdout.startswith(b"{")
