"""The evidence as the gates read it: the pilot log's records, sorted by shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from cudagraph_gate.model import Diagnosis, Fingerprint, Measured, ProfileTimes
from cudagraph_gate.records import (
    RUNG_PHASES,
    AttackStarted,
    Block,
    Comparison,
    Cost,
    DrillRun,
    Finding,
    MemoryPoint,
    Method,
    NodeSet,
    NormalPathProbe,
    PathName,
    Phase,
    PhaseStarted,
    Proof,
    Record,
    RungEnded,
    ScenarioEnded,
    ScenarioStarted,
    ShapeEnded,
    TrialStarted,
    WorkerEnd,
    scenario_stage,
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
    """What the newest trial of one shape recorded, in the order of the log.

    What one of the later rungs recorded with its target is such a trial too.
    """

    shape: str
    records: tuple[Record, ...] = ()
    method: Method = "capture"

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
    """By the graph path that is judged: the captured one, or the workload's own."""
    explicit: Mapping[str, ShapeTrial]
    """The graphs that ``build_explicit`` made, which were tried beside the captured ones."""
    rungs: Mapping[Phase, ShapeTrial]
    """What the workers of the later rungs, and of memory over time, recorded in the target's own trial."""
    ended: tuple[RungEnded, ...]
    """How the rungs were judged while the trial ran."""
    traffic: bool
    """Whether any trial has a request mix: a newer one that leaves it out does not answer for it."""
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
    """Sort the log by shape. A shape counts with the newest trial that set out to try it, and with no older.

    The target is the profiled shape, else the first that was tried. What the later rungs recorded counts
    for the shape, the graph path and the trial that they were tried with.
    """
    log = _Log()
    for record in evidence.records:
        log.take(record)
    shapes = {key[0]: trial for key, trial in log.trials().items() if key[1] != "explicit"}
    starts = [record for record in evidence.records if isinstance(record, TrialStarted)]
    name = evidence.profile.shape if evidence.profile else next(iter(shapes), None)
    target = None if name is None else shapes.get(name, ShapeTrial(name))
    return TrialView(
        declared=tuple(dict.fromkeys(shape for start in starts for shape in start.shapes)),
        noticed=tuple(dict.fromkeys(note for start in starts for note in start.noticed)),
        shapes=shapes,
        explicit={key[0]: trial for key, trial in log.trials().items() if key[1] == "explicit"},
        rungs={} if target is None else log.rungs((target.shape, target.method)),
        ended=tuple(log.ended),
        traffic=any(start.traffic for start in starts),
        ends=tuple(log.loose),
        target=target,
    )


def _of_scenario(record: Record) -> bool:
    if isinstance(record, WorkerEnd):
        return record.stage.startswith(scenario_stage(""))
    return isinstance(record, AttackStarted | ScenarioStarted | Proof | ScenarioEnded | DrillRun)


_Key = tuple[str, Method]


class _Log:
    """Sorts the records of a log as they come: by shape and method, or by rung."""

    def __init__(self) -> None:
        self.loose: list[WorkerEnd] = []
        self.ended: list[RungEnded] = []
        self._by_shape: dict[_Key, list[Record]] = {}
        self._by_rung: dict[tuple[Phase, _Key], tuple[int, list[Record]]] = {}
        """With the number of the trial."""
        self._trial_of: dict[_Key, int] = {}
        self._trial = 0
        self._current: list[Record] | None = None
        """Where the records of the worker that is at work belong."""
        self._in_rung = False

    def take(self, record: Record) -> None:
        """Put one record in its place."""
        if isinstance(record, TrialStarted):
            self._begin(record)
        elif isinstance(record, RungEnded):
            self.ended.append(record)
        elif _of_scenario(record):
            return  # gates.scenarios reads them
        elif isinstance(record, WorkerEnd):
            if self._current is None:
                self.loose.append(record)
            else:
                self._current.append(record)
            # The next worker's end, if it logs nothing else, is not this one's.
            self._current, self._in_rung = None, False
        else:
            self._of_worker(record)

    def _begin(self, started: TrialStarted) -> None:
        """A new trial: the last worker of an older one may never have been seen to end."""
        self._trial, self._current, self._in_rung = self._trial + 1, None, False
        self.loose, self.ended = [], []
        for key in self._by_shape:
            if key[0] in started.shapes:
                # Emptied rather than dropped: the order says which shape was tried first.
                self._by_shape[key] = []

    def _of_worker(self, record: Any) -> None:
        if isinstance(record, PhaseStarted) and record.phase in RUNG_PHASES:
            self._current, self._in_rung = [], True
            self._by_rung[record.phase, (record.shape, record.method)] = (self._trial, self._current)
        elif not self._in_rung:
            self._current = self._records_of(record)
        if self._current is not None:
            self._current.append(record)

    def _records_of(self, record: Any) -> list[Record] | None:
        """Where a record of a shape's own trial belongs; None for one that only a rung makes."""
        if not hasattr(record, "method"):
            return None
        key: _Key = (record.shape, record.method)
        if self._trial_of.get(key) != self._trial:
            self._trial_of[key], self._by_shape[key] = self._trial, []
            if key[1] != "explicit":  # a shape is judged by its newest trial, whatever made the graph
                other: Method = "own" if key[1] == "capture" else "capture"
                self._by_shape.pop((key[0], other), None)
        return self._by_shape[key]

    def trials(self) -> dict[_Key, ShapeTrial]:
        """Each shape's newest trial."""
        return {key: ShapeTrial(key[0], tuple(own), key[1]) for key, own in self._by_shape.items() if own}

    def rungs(self, key: _Key) -> dict[Phase, ShapeTrial]:
        """The later rungs that were tried with a shape's graph in the trial that the shape counts with."""
        return {
            phase: ShapeTrial(key[0], tuple(own), key[1])
            for (phase, tried), (trial, own) in self._by_rung.items()
            if tried == key and trial == self._trial_of.get(key)
        }
