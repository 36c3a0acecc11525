"""A small workload opened in this process, for tests of what the trial does with a session.

``BASE`` works on a buffer of its own, which it returns; the text of a test replaces its functions.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pilot_workloads

from cudagraph_gate.device import DeviceChoice
from cudagraph_gate.evidence import Run, create_run
from cudagraph_gate.pilot.session import Inputs, Session, build, load
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import Method

R = TypeVar("R")
SEED = 1
ROOT = Path(__file__).parents[2]
BASE = "import gc\n" + pilot_workloads.BASE
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
