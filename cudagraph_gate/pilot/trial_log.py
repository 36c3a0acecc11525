"""Writing the pilot log: what a phase costs and what it leaves in memory, as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from msgspec import structs

from cudagraph_gate.evidence import Run
from cudagraph_gate.model import Measured
from cudagraph_gate.pilot.memory import memory_point
from cudagraph_gate.pilot.session import Session
from cudagraph_gate.records import Cost, Method, Phase, PhaseStarted, Record

T = TypeVar("T")


class ProgressSink(Protocol):
    """Where phases are announced."""

    def progress(
        self, text: str, phase: str = "", done: int = 0, total: int = 0, *, limit_s: float | None = None
    ) -> None:
        """A phase begins; ``done`` of ``total`` steps are over.

        Without another message for ``limit_s`` it hangs; None: for as long as the parent always waits.
        """


class AnswerSink(ProgressSink, Protocol):
    """Where results are sent as well."""

    def answer(self, **values: Any) -> None:
        """Send results back."""


class TrialLog:
    """The log of one shape's trial."""

    def __init__(self, run: Run, shape: str, sink: ProgressSink, method: Method = "capture") -> None:
        self._run = run
        self._sink = sink
        self.shape = shape
        self.method: Method = method
        self.phase = Phase.BUILD

    def append(self, record: Record) -> None:
        """Write one record."""
        self._run.append(record)

    def muted(self) -> TrialLog:
        """One that announces the same, and writes nothing."""
        return _Muted(self._run, self.shape, self._sink, self.method)

    def begin(self, phase: Phase) -> None:
        """A phase begins: in the log first, so that a crash in it is seen there."""
        self.phase = phase
        self.append(PhaseStarted(shape=self.shape, method=self.method, phase=phase))
        self.announce(phase.value.replace("_", " "))

    def announce(self, text: str) -> None:
        """Say what is going on, without a line in the log."""
        phases = list(Phase)
        self._sink.progress(
            f"{self.shape}: {text}", self.phase, done=phases.index(self.phase), total=len(phases)
        )

    def announce_within(self, text: str, limit_s: float) -> None:
        """Say what is going on, and that it hangs if it takes longer than ``limit_s``."""
        self._sink.progress(f"{self.shape}: {text}", self.phase, limit_s=limit_s)

    def memory(self, session: Session) -> None:
        """Memory at the end of the current phase."""
        self.append(structs.replace(memory_point(session, self.phase), method=self.method))

    def cost(self, elapsed: Measured, *, stalled_ns: int = 0) -> None:
        """What the current phase cost, in ns."""
        cost = Cost(
            shape=self.shape, method=self.method, phase=self.phase, elapsed=elapsed, stalled_ns=stalled_ns
        )
        self.append(cost)

    def measured(self, session: Session, phase: Phase, work: Callable[[], T]) -> T:
        """Run a phase with the device idle before and after it; log its cost and the memory after it."""
        self.begin(phase)
        device = session.device
        device.synchronize()
        start = device.clock_ns()
        result = work()
        device.synchronize()
        self.cost(device.clock_ns() - start)
        self.memory(session)
        return result


class _Muted(TrialLog):
    def append(self, record: Record) -> None:
        """Nothing is written."""
