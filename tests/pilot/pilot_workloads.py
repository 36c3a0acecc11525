"""Small workloads for the simulated device, and their trials: in this process, or in real worker processes.

``BASE`` is a workload that passes; what a test appends replaces its functions.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path

from cudagraph_gate import pipeline
from cudagraph_gate.errors import CgateError
from cudagraph_gate.evidence import Run, create_run
from cudagraph_gate.gates.trial_view import ShapeTrial, view_trial
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.jobs import TrialJob
from cudagraph_gate.pilot.ladder import try_shape
from cudagraph_gate.records import Comparison, Phase, RungEnded

KERNEL_NS, LONG_KERNEL_NS = "2_000)", "20_000_000)"
"""Times of a kernel in a workload's text: launch-bound, and so long that a graph gains nothing."""
BASE = """\
import ctypes, os, signal, sys, threading, time
import numpy as np
from cudagraph_gate.device import Kernel, LaunchShape, current_device
from cudagraph_gate.device.simulated import Fault

N = 64
LAUNCH = LaunchShape((1, 1, 1), (N, 1, 1))
device = current_device()

def _add(shape, x, y, n):
    x[:n] += y

def _bump(shape, x, y, n):
    x[:n] += y

ADD = Kernel("add", "", _add, 2_000)
BUMP = Kernel("bump", "", _bump, 2_000)

def add(x, y, stream=None, kernel=ADD):
    device.launch(kernel, LAUNCH, (x, y if hasattr(y, "pointer") else np.float32(y), np.int32(N)), stream)

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

OF_ITS_OWN = """
def build(shape):
    work = array()

    def step(x):
        device.copy(work, x)
        for k in range(4):
            add(work, k)
        return work

    return step
"""
"""Each build has a buffer of its own, so that several may run at once."""

KILLABLE = (
    OF_ITS_OWN
    + """
SHAPES = {"default": 1}
TRAFFIC = {"default": 1.0}

def request(step, shape, seed):
    return step(*inputs(shape, seed)).to_host()

def _kill(event, args):
    # At the first write to the log after the phase's own line: in the middle of the phase, every time.
    if event == "open" and str(args[0]).endswith("pilot.jsonl") and not busy:
        busy.append(True)
        text = open(args[0]).read() if os.path.exists(args[0]) else ""
        busy.clear()
        last = text.rstrip().rpartition("\\n")[2]
        ends = tuple(f'"phase":"{phase}"}}' for phase in os.environ["KILL_PHASE"].split())
        if last.endswith(ends) and '"phase_started"' in last:
            os.kill(os.getpid(), signal.SIGKILL)

busy = []
if "KILL_PHASE" in os.environ:
    sys.addaudithook(_kill)
if "KILL_BEFORE" in os.environ:
    sys.addaudithook(
        lambda event, args: event == "os.rename"
        and str(args[1]).endswith(os.environ["KILL_BEFORE"])
        and os.kill(os.getpid(), signal.SIGKILL)
    )
"""
)
"""The same with a request mix and whole requests; it kills itself when it is told to: in a phase, or before a
file is in place."""


def write_workload(folder: Path, text: str = "", name: str = "model.py") -> Path:
    """A workload file: the base, and what the test replaces in it."""
    path = folder / name
    path.write_text(BASE + textwrap.dedent(text))
    return path


def line_of(path: Path, code: str) -> int:
    """Number of the only line that contains ``code``."""
    (number,) = (n for n, line in enumerate(path.read_text().splitlines(), start=1) if code in line)
    return number


def options(
    folder: Path,
    *,
    shapes: str | None = None,
    limit_s: float = 60.0,
    rungs: int = 2,
    scenarios: tuple[str, ...] = (),
) -> pipeline.Options:
    """Simulated device, evidence beside the workload. Two rungs need one worker, more need more.

    So does each hard scenario.
    """
    return pipeline.Options(
        device="simulated",
        shapes=shapes,
        limit_s=limit_s,
        rungs=rungs,
        scenarios=scenarios,
        root=folder / "runs",
    )


@dataclass(frozen=True)
class Tried:
    """A finished trial: its evidence, and what the pipeline raised."""

    path: Path
    run: Run
    error: CgateError | None
    shapes: dict[str, ShapeTrial]

    @property
    def rungs(self) -> list[RungEnded]:
        """How far the ladder held."""
        return [record for record in self.run.records() if isinstance(record, RungEnded)]

    @property
    def shape(self) -> ShapeTrial:
        """The only shape."""
        (only,) = self.shapes.values()
        return only

    def compared(self, subject: str) -> tuple[Comparison, ...]:
        """Comparisons of one subject."""
        return tuple(found for found in self.shape.comparisons if found.subject == subject)

    def place(self, code: str) -> str:
        """``file:line`` of the only line that contains ``code``."""
        return f"{self.path.name}:{line_of(self.path, code)}"


def try_workload(
    folder: Path, text: str = "", *, shapes: str | None = None, limit_s: float = 60.0, rungs: int = 2
) -> Tried:
    """Run the trial of a workload in worker processes."""
    path = write_workload(folder, text)
    chosen = options(folder, shapes=shapes, limit_s=limit_s, rungs=rungs)
    run = create_run(str(path), "module", "simulated", root=chosen.root)
    error = None
    try:
        pipeline.pilot(run, chosen)
    except CgateError as failure:
        error = failure
    shown = view_trial(pipeline.collect_evidence(run)).shapes
    return Tried(path, run, error, dict(shown))


class Silent:
    """Nobody listens."""

    def progress(self, text: str, phase: str = "", done: int = 0, total: int = 0) -> None:
        """Not shown."""

    def answer(self, **values: object) -> None:
        """Not kept."""


def try_here(folder: Path, text: str = "") -> Tried:
    """Run the trial of a workload's first shape in this process: the same log but for the worker's end and
    the rungs, in a fraction of the time. Kernels are long, so that a timed block has its fewest requests.
    """
    path = write_workload(folder, text)
    path.write_text(path.read_text().replace(KERNEL_NS, LONG_KERNEL_NS))
    run = create_run(str(path), "module", "simulated", root=folder / "runs")
    job = TrialJob(folder=str(run.folder), workload=str(path), device="simulated", shapes=None, shape=None)
    error = None
    try:
        try_shape(job, Silent())
    except CgateError as failure:
        error = failure
    shown = view_trial(pipeline.collect_evidence(run)).shapes
    return Tried(path, run, error, dict(shown))


def found(tried: Tried) -> list[tuple[Phase, Reason]]:
    """Phase and reason of each finding that speaks against the graph."""
    return [(finding.phase, finding.code) for finding in tried.shape.findings if finding.blocks]


def noted(tried: Tried) -> list[tuple[Phase, Reason]]:
    """The same of those that are only worth knowing."""
    return [(finding.phase, finding.code) for finding in tried.shape.findings if not finding.blocks]


def unequal(tried: Tried, subject: str) -> list[int]:
    """Requests in which a subject differs."""
    return [found.request for found in tried.compared(subject) if not found.equal]
