"""Small workloads for rungs that are tried in this process, on the simulated device.

``CHAIN`` is launch-bound and works in place on its input, which it returns: each graph has one of its own.
What a test appends replaces its functions.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cudagraph_gate.device import DeviceChoice
from cudagraph_gate.evidence import Run, create_run
from cudagraph_gate.pilot.jobs import RungJob, RungKind
from cudagraph_gate.pilot.session import Loaded, load
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import Finding, Record

R = TypeVar("R")
ROOT = Path(__file__).parents[2]

CHAIN = """\
import threading
import numpy as np
from cudagraph_gate.device import Kernel, LaunchShape, current_device

N = 64
KERNELS = 12
LAUNCH = LaunchShape((1, 1, 1), (N, 1, 1))
device = current_device()

def _advance(shape, x, y):
    x[:] = x * np.float32(0.5) + y

ADVANCE = Kernel("advance", "", _advance, 1_000)
SLOW = Kernel("slow", "", _advance, 2_000_000)

def _count(shape, x):
    x[:] += 1

COUNT = Kernel("count", "", _count, 1_000)

def array(value=0.0):
    return device.array(np.full(N, value, np.float32))

def advance(x, y=1.0, kernel=ADVANCE):
    device.launch(kernel, LAUNCH, (x, y if hasattr(y, "pointer") else np.float32(y)))

def build(shape):
    return step

def step(x):
    for k in range(KERNELS):
        advance(x, k)
    return x

def inputs(shape, seed):
    values = np.random.default_rng(seed).random(N, dtype=np.float32)
    return (device.array(values * np.float32(1e6)),)

"""

OWN_BUFFER = """
def build(shape):
    work = array()

    def step(x):
        device.copy(work, x)
        for k in range(KERNELS):
            advance(work, k)
        return work

    return step
"""
"""Each build has its own output buffer: graphs of one build share it."""

MODULE_BUFFER = """
WORK = array()

def step(x):
    device.copy(WORK, x)
    for k in range(KERNELS):
        advance(WORK, k)
    return WORK
"""
"""One output buffer for all builds."""

COUNTER = """
TOTAL = array()

def step(x):
    device.launch(COUNT, LAUNCH, (TOTAL,))
    for k in range(KERNELS):
        advance(x, TOTAL)
    return x

def state():
    return {"total": TOTAL}
"""
"""Each request changes state that all builds share."""

DEVICE_BOUND = """
def step(x):
    advance(x, 1, SLOW)
    return x
"""


class Silent:
    """Nobody listens."""

    def progress(self, text: str, phase: str = "", done: int = 0, total: int = 0) -> None:
        """Not shown."""

    def answer(self, **values: Any) -> None:
        """Not kept."""


@dataclass(frozen=True)
class Rung:
    """A workload ready for one rung."""

    loaded: Loaded
    log: TrialLog
    job: RungJob
    run: Run

    def records(self) -> tuple[Record, ...]:
        """The log so far."""
        return self.run.records()

    def of(self, kind: type[R]) -> list[R]:
        """Records of one kind."""
        return [record for record in self.run.records() if isinstance(record, kind)]

    def finding(self) -> Finding:
        """The only finding."""
        (only,) = self.of(Finding)
        return only


def rung(folder: Path, kind: RungKind, text: str = "") -> Rung:
    """The chain with what ``text`` replaces in it, loaded on a simulated device of its own."""
    path = folder / "model.py"
    path.write_text(CHAIN + textwrap.dedent(text))
    return rung_of(path, folder, kind, "simulated")


def sample_rung(folder: Path, kind: RungKind, device: DeviceChoice) -> Rung:
    """The launch-bound sample workload, which runs on a GPU as well."""
    return rung_of(ROOT / "sample_workloads" / "launch_bound_chain.py", folder, kind, device)


def rung_of(path: Path, folder: Path, kind: RungKind, device: DeviceChoice) -> Rung:
    """A workload's first shape, loaded."""
    loaded = load(str(path), device, None)
    (shape,) = loaded.shapes
    run = create_run(str(path), "module", device, root=folder / "runs")
    job = RungJob(
        kind=kind,
        folder=str(run.folder),
        workload=str(path),
        device=device,
        shapes=None,
        shape=shape,
    )
    return Rung(loaded, TrialLog(run, shape, Silent()), job, run)
