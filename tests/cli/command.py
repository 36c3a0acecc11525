"""The command as a user starts it: a process of its own, in a folder of its own, without a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

WORKLOAD = """\
import numpy as np
from cudagraph_gate.device import Kernel, LaunchShape, current_device

SHAPES = {"b1": 64, "b8": 128}

def _halve(shape, x, n):
    x[:n] = x[:n] / 2

HALVE = Kernel(name="halve", source="", reference=_halve, cost_ns=2_000)

def build(shape):
    device = current_device()
    work = device.empty((shape,), np.float32)
    def step(x):
        device.copy(work, x)
        for _ in range(3):
            device.launch(HALVE, LaunchShape((1, 1, 1), (64, 1, 1)), (work, np.int32(shape)))
        return work
    return step

def inputs(shape, seed):
    return (current_device().array(np.full(shape, seed, np.float32)),)
"""
"""Passes every gate that is tried, in a rehearsal."""
LONG_KERNELS = ("cost_ns=2_000", "cost_ns=20_000_000")
"""A change of it after which a trial is over sooner: fewer requests fill a timed block, and its graph gains
nothing, so that the ladder ends at its first rung."""
MODULE = (sys.executable, "-m", "cudagraph_gate")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The last line on standard error."""
        return self.err.strip().splitlines()[-1] if self.err.strip() else ""


def without_gpu(**variables: str) -> dict[str, str]:
    """This process's environment with every GPU hidden and a terminal of 80 columns."""
    plain = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TERM")}
    return plain | {"CUDA_VISIBLE_DEVICES": "", "COLUMNS": "80", "PYTHONUTF8": "1"} | variables


def unattacked(arguments: tuple[str, ...]) -> list[str]:
    """The arguments with the hard scenarios left out of a trial, unless they say themselves which are run."""
    tries = arguments[:1] in (("run",), ("pilot",)) and "--help" not in arguments
    chosen = {"--scenarios", "--skip", "--quick"} & set(arguments)
    return [*arguments, "--skip=all"] if tries and not chosen else [*arguments]


def cgate(
    folder: Path, *arguments: str, env: dict[str, str] | None = None, entry: tuple[str, ...] = MODULE
) -> Ended:
    """Run the command in ``folder``."""
    done = subprocess.run(
        [*entry, *unattacked(arguments)],
        cwd=folder,
        env=env or without_gpu(),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=120,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def write(folder: Path, old: str = "", new: str = "", *, name: str = "model.py", more: str = "") -> Path:
    """The workload with one text replaced and ``more`` behind it."""
    assert old in WORKLOAD
    path = folder / name
    path.write_text(WORKLOAD.replace(old, new) if old else WORKLOAD)
    path.write_text(path.read_text() + more)
    return path


def runs(folder: Path) -> list[Path]:
    """The run folders, the newest last."""
    return sorted((folder / ".cgate" / "runs").glob("*"))


def installed() -> str | None:
    """The ``cgate`` script of this Python, if it is installed."""
    return shutil.which("cgate", path=str(Path(sys.executable).parent))


@dataclass(frozen=True)
class Recorded:
    """A folder with a workload and one finished run of it."""

    folder: Path
    ended: Ended
    """How the command ended that made it."""

    @property
    def run(self) -> Path:
        """The run folder."""
        return runs(self.folder)[0]
