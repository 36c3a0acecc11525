"""The evidence as the gates read it: the pilot log's records, sorted by shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from cudagraph_gate.model import Diagnosis, Fingerprint, Measured, ProfileTimes
from cudagraph_gate.records import (
    Block,
    Comparison,
    Cost,
    Finding,
    MemoryPoint,
    NodeSet,
    NormalPathProbe,
    PathName,
    Phase,
    PhaseStarted,
    Record,
    ShapeEnded,
    TrialStarted,
    WorkerEnd,
)

R = TypeVar("R")
_ORDER: Final = {phase: position for position, phase in enumerate(Phase)}


@dataclass(frozen=True)
class Evidence:
    """All that a verdict rests on; None is an artefact that was never written."""

    workload: str
    run: str
    fingerprint: Fingerprint | None = None
    profile: ProfileTimes | None = None
    diagnosis: Diagnosis | None = None
    records: tuple[Record, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether any part of it comes from the simulated device."""
        artefacts = (self.fingerprint, self.diagnosis, *self.records)
        return any(getattr(artefact, "simulated", False) for artefact in artefacts)


@dataclass(frozen=True)
class ShapeTrial:
    """What the newest trial of one shape recorded, in the order of the log."""

    shape: str
    records: tuple[Record, ...] = ()

    @property
    def costs(self) -> dict[Phase, Measured]:
        """Host wall time by phase, in ns."""
        return {cost.phase: cost.elapsed for cost in self.of(Cost)}

    @property
    def memory(self) -> tuple[MemoryPoint, ...]:
        """Memory at the ends of phases."""
        return self.of(MemoryPoint)

    @property
    def nodes(self) -> NodeSet | None:
        """The captured graph's nodes."""
        return self._last(NodeSet)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Requests of the trajectory."""
        return self.of(Comparison)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What spoke against a graph."""
        return self.of(Finding)

    @property
    def probe(self) -> NormalPathProbe | None:
        """The normal path after a failed capture."""
        return self._last(NormalPathProbe)

    @property
    def completed(self) -> bool:
        """Whether all phases were run."""
        ended = self._last(ShapeEnded)
        return ended is not None and ended.completed

    @property
    def end(self) -> WorkerEnd | None:
        """How the worker ended that tried this shape, if it ended during or right after it."""
        return self._last(WorkerEnd)

    @property
    def last_phase(self) -> Phase | None:
        """The phase that was going on when the log ended."""
        started = self._last(PhaseStarted)
        return started.phase if started else None

    def reached(self, phase: Phase) -> bool:
        """Whether ``phase`` or a later one began."""
        return any(not before(started.phase, phase) for started in self.of(PhaseStarted))

    def blocks(self, path: PathName) -> tuple[Block, ...]:
        """Timed blocks of one path that hold at least one request."""
        return tuple(block for block in self.of(Block) if block.path == path and block.latencies_ns)

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """Records of one kind."""
        return tuple(record for record in self.records if isinstance(record, kind))

    def _last(self, kind: type[R]) -> R | None:
        found = self.of(kind)
        return found[-1] if found else None


@dataclass(frozen=True)
class TrialView:
    """The pilot log by shape."""

    declared: tuple[str, ...]
    """Shapes that any trial of this log set out to try."""
    noticed: tuple[str, ...]
    """Parts of the workload that play no part in the trial."""
    shapes: Mapping[str, ShapeTrial]
    ends: tuple[WorkerEnd, ...]
    """Worker ends that belong to no shape."""
    target: ShapeTrial | None
    """The shape that is judged; without records when it was not tried."""

    @property
    def name(self) -> str | None:
        """Name of the target shape, if there is one."""
        return self.target.shape if self.target else None

    @property
    def others(self) -> tuple[ShapeTrial, ...]:
        """Every other shape that was tried or was to be tried."""
        names = dict.fromkeys((*self.declared, *self.shapes))
        return tuple(self.shapes.get(name, ShapeTrial(name)) for name in names if name != self.name)


def before(phase: Phase, other: Phase) -> bool:
    """Whether ``phase`` comes before ``other`` in a trial."""
    return _ORDER[phase] < _ORDER[other]


def view_trial(evidence: Evidence) -> TrialView:
    """Sort the log by shape. A shape that was tried again counts with its newest trial alone.

    The target is the profiled shape, else the first that was tried.
    """
    shapes, ends = _grouped(evidence.records)
    starts = [record for record in evidence.records if isinstance(record, TrialStarted)]
    target = evidence.profile.shape if evidence.profile else next(iter(shapes), None)
    return TrialView(
        declared=tuple(dict.fromkeys(shape for start in starts for shape in start.shapes)),
        noticed=tuple(dict.fromkeys(note for start in starts for note in start.noticed)),
        shapes=shapes,
        ends=ends,
        target=None if target is None else shapes.get(target, ShapeTrial(target)),
    )


def _grouped(records: tuple[Record, ...]) -> tuple[dict[str, ShapeTrial], tuple[WorkerEnd, ...]]:
    by_shape: dict[str, list[Record]] = {}
    trial_of: dict[str, int] = {}
    loose: list[WorkerEnd] = []
    trial = 0
    current: str | None = None
    for record in records:
        if isinstance(record, TrialStarted):
            trial, current, loose = trial + 1, None, []
        elif isinstance(record, WorkerEnd):
            if current is None:
                loose.append(record)
            else:
                by_shape[current].append(record)
            current = None  # the next worker's end, if it logs nothing else, is not this shape's
        else:
            current = record.shape
            if trial_of.get(current) != trial:
                trial_of[current], by_shape[current] = trial, []
            by_shape[current].append(record)
    return {shape: ShapeTrial(shape, tuple(own)) for shape, own in by_shape.items()}, tuple(loose)
