"""A small workload opened in this process, for tests of what the trial does with a session.

``BASE`` works on a buffer of its own, which it returns; the text of a test replaces its functions.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cudagraph_gate.device import DeviceChoice
from cudagraph_gate.evidence import Run, create_run
from cudagraph_gate.pilot.session import Inputs, Session, build, load
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import Method

R = TypeVar("R")
SEED = 1
ROOT = Path(__file__).parents[2]
BASE = """\
import gc, sys
import numpy as np
from cudagraph_gate.device import Kernel, LaunchShape, current_device
from cudagraph_gate.device.simulated import Fault

N = 64
LAUNCH = LaunchShape((1, 1, 1), (N, 1, 1))
device = current_device()

def _add(shape, x, y):
    x[:] += y

ADD = Kernel("add", "", _add, 2_000)

def add(x, y):
    device.launch(ADD, LAUNCH, (x, y if hasattr(y, "pointer") else np.float32(y)))

def array(value=0.0, n=N):
    return device.array(np.full(n, value, np.float32))

def build(shape):
    global work
    work = array()
    return step

def step(x):
    device.copy(work, x)
    for k in range(4):
        add(work, k)
    return work

def inputs(shape, seed):
    return (device.array(np.random.default_rng(seed).random(N, dtype=np.float32)),)

"""
FRESH = """
        def step(x):
            out = device.empty((N,), np.float32)
            device.copy(out, x)
            add(out, 1)
            return out
        """
"""A step whose outputs are new arrays, as those of most frameworks are; it can't be captured."""


class Silent:
    """Nobody listens."""

    def progress(self, text: str, phase: str = "", done: int = 0, total: int = 0) -> None:
        """Not shown."""


@dataclass(frozen=True)
class Opened:
    """A session that has served its first request, and a log to write to."""

    path: Path
    session: Session
    first: Inputs
    run: Run
    log: TrialLog

    def of(self, kind: type[R]) -> list[R]:
        """Records of one kind in the log."""
        return [record for record in self.run.records() if isinstance(record, kind)]

    def place(self, code: str) -> str:
        """``file:line`` of the only line that contains ``code``."""
        lines = self.path.read_text().splitlines()
        (number,) = (number for number, line in enumerate(lines, start=1) if code in line)
        return f"{self.path.name}:{number}"


def opened(folder: Path, text: str = "", *, method: Method = "capture") -> Opened:
    """The base with what ``text`` replaces in it, on a simulated device of its own."""
    path = folder / "model.py"
    path.write_text(BASE + textwrap.dedent(text))
    return opened_file(path, folder, "simulated", method=method)


def opened_sample(name: str, folder: Path, device: DeviceChoice, *, method: Method = "capture") -> Opened:
    """A sample workload's first shape."""
    return opened_file(ROOT / "sample_workloads" / f"{name}.py", folder, device, method=method)


def opened_file(path: Path, folder: Path, device: DeviceChoice, *, method: Method = "capture") -> Opened:
    """A workload's first shape."""
    loaded = load(str(path), device, None)
    (shape,) = loaded.shapes
    session, first = build(loaded, shape, SEED)
    session = session.with_outputs(first, session.call(first))
    run = create_run(str(path), "module", device, root=folder / "runs")
    return Opened(path, session, first, run, TrialLog(run, shape, Silent(), method))
