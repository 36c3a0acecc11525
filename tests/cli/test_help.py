"""Help is there, is quick, and needs no GPU library."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import cgate, without_gpu

from cudagraph_gate import __version__

COMMANDS = ("doctor", "profile", "pilot", "verdict", "report", "run")
HEAVY = ("numpy", "pandas", "pyarrow", "msgspec", "cuda", "cupti", "torch", "nvtx", "pynvml")
ENOUGH_S = 1.0
"""Well above what it takes (0.2 s): this catches a heavy import on a slow machine, not a bad day."""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(tmp_path: Path, command: str):
    ended = cgate(tmp_path, command, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert f": cgate {command}" in ended.out


def test_the_help_names_every_command_and_exit_code(tmp_path: Path):
    ended = cgate(tmp_path, "--help")
    assert ended.code == 0
    assert all(f"│ {command} " in ended.out for command in COMMANDS)
    codes = ("0 GO", "10 NO-GO", "11 CONDITIONAL", "12 INCONCLUSIVE", "2 usage", "130 interrupted", "1 a bug")
    assert all(code in " ".join(ended.out.split()) for code in codes)


def test_square_brackets_in_help_are_no_markup(tmp_path: Path):
    assert "as in [tool.cgate]" in " ".join(cgate(tmp_path, "verdict", "--help").out.split())


def test_help_imports_nothing_heavy(tmp_path: Path):
    command = [sys.executable, "-X", "importtime", "-m", "cudagraph_gate", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=without_gpu(), capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "typer" in imported
    assert imported.isdisjoint(HEAVY)


def test_help_is_quick(tmp_path: Path, record_property):
    times = []
    for _ in range(5):
        start = time.perf_counter()
        cgate(tmp_path, "--help")
        times.append(time.perf_counter() - start)
    median_s = statistics.median(times)
    record_property("median_s", round(median_s, 3))
    sys.stdout.write(f"cgate --help: {median_s:.3f} s, median of {len(times)}\n")
    assert median_s < ENOUGH_S


def test_the_version_is_that_of_the_package(tmp_path: Path):
    assert cgate(tmp_path, "--version").out == f"cgate {__version__}\n"
