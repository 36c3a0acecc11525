"""Memory over time: one activity repeated many times, memory read in between.

Replays of one graph; capture, instantiate, replay and destroy; captures whose step raises at its end.
What the readings mean is judged later, from the log alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from msgspec import structs

from cudagraph_gate.graphs import GraphedStep
from cudagraph_gate.model import Measured, NotMeasured, Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.afterwards import Afterwards
from cudagraph_gate.pilot.between import Between
from cudagraph_gate.pilot.blame import blame
from cudagraph_gate.pilot.findings import failures_found
from cudagraph_gate.pilot.fresh_inputs import FreshInputs
from cudagraph_gate.pilot.graph_path import GraphPath
from cudagraph_gate.pilot.jobs import RungJob
from cudagraph_gate.pilot.memory import MemoryReading, settled_memory
from cudagraph_gate.pilot.own_path import PATH_MAKERS, PathMaker
from cudagraph_gate.pilot.session import Inputs, Loaded, Session, opened
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import Finding, MemorySeries, Method, NormalPathProbe, Phase

Activity = Literal["replays", "cycles", "aborted"]


@dataclass(frozen=True)
class Plan:
    """How often memory is read, and how much lies in between."""

    points: int
    """Readings after the first one, at even distances: the second half decides and needs its half of them."""
    most_points: int
    """It goes on for so long while memory moves in the second half: a leak shows more of its steps then, and
    a pool comes to rest."""
    most_per_point: int
    point_s: float
    """Repetitions between two readings: as many as take so long, but no more than ``most_per_point``."""
    limit_s: float
    """Wall time after which no further repetition begins."""


REPLAYS: Final = Plan(points=10, most_points=30, most_per_point=200, point_s=0.5, limit_s=20.0)
"""2 000 replays: 4 KiB each are then four of the 2 MiB blocks that allocators take."""
CYCLES: Final = Plan(points=16, most_points=48, most_per_point=1, point_s=1.0, limit_s=20.0)
"""Read after each: what a capture leaves behind is much more than what a replay does."""
_WORDS: Final = {
    "replays": "replays",
    "cycles": "captures and destructions",
    "aborted": "aborted captures",
}
NEW_ADDRESSES: Final = 40
"""Between two readings: what a path keeps for each of them then stands out, and thousands take no time."""
CALIBRATION: Final = 3
"""Repetitions before the first reading, which say how many fit between two."""


def soak(
    loaded: Loaded,
    log: TrialLog,
    job: RungJob,
    make_path: PathMaker | None = None,
    *,
    replays: Plan = REPLAYS,
    cycles: Plan = CYCLES,
) -> None:
    """Repeat each activity and log its memory as a series; failures become findings.

    A graph path that is not captured from the step, such as the workload's own, is only replayed: when it
    makes graphs is its own affair. ``make_path`` takes the place of the usual one. Raises WorkloadError where
    the workload itself fails.
    """
    log.begin(Phase.MEMORY)
    soaking = _Soaking(loaded, log, job.seed, replays, cycles)
    with failures_found(log, loaded.workload.folder, lambda error, _log, _folder: soaking.blamed(error)):
        usual = make_path or PATH_MAKERS.get(job.method)
        if usual is None:
            soaking.find(Reason.NOT_TRIED, f"a graph by {job.method} is not replayed for long")
            return
        soaking.run(usual, job.method)


class _AbortError(RuntimeError):
    """Raised by us inside a capture."""


class _Soaking:
    """One shape's way through the activities."""

    def __init__(self, loaded: Loaded, log: TrialLog, seed: int, replays: Plan, cycles: Plan) -> None:
        self._loaded = loaded
        self._log = log
        self._seed = seed
        self._replays = replays
        self._cycles = cycles
        self._capturing = False

    def run(self, make_path: PathMaker, method: Method) -> None:
        """Replays; of a captured graph also cycles and aborted captures."""
        session = opened(self._loaded, self._log.shape, self._seed)
        input_sets = session.input_sets(self._seed)
        input_sets = session.baked(input_sets, input_sets[0])
        expected = correctness.expect(session, input_sets)
        self._replay(session, expected, input_sets, make_path)
        if method == "capture":
            if session.workload.between is not None:  # what it has changed since is no fault of the captures
                expected = correctness.expect(session, input_sets)
            self._capturing = True
            self._series(session, "cycles", lambda _index: _cycle(session, input_sets[0]), self._cycles)
            aborted = self._series(
                session, "aborted", lambda _index: _abort(session, input_sets[0]), self._cycles
            )
            self._probe(session, expected, aborted)
        session.teardown()

    # --- activities -------------------------------------------------------------------------------
    def _replay(
        self,
        session: Session,
        expected: correctness.Expectation,
        input_sets: Sequence[Inputs],
        make_path: PathMaker,
    ) -> None:
        made_at = correctness.addresses(session)
        self._capturing = True
        path = make_path(session, input_sets[0])
        self._capturing = False
        graph = path if isinstance(path, GraphedStep) else None
        afterwards = Afterwards(
            session,
            path.replay,
            expected,
            self._log,
            made_at=made_at,
            static=() if graph is None else correctness.device_arrays(session, graph.outputs),
            constants=() if graph is None else graph.constants,
        )
        kind = _OwnReplays if self._log.method == "own" else _Replays
        replays = kind(session, path, input_sets, afterwards)
        replays.calibrate(self._replays)
        self._series(session, "replays", replays.one, self._replays, replays.per_point)
        replays.free()
        afterwards.look()
        path.invalidate()

    def _series(
        self,
        session: Session,
        activity: Activity,
        act: Callable[[int], None],
        plan: Plan,
        per_point: int = 1,
    ) -> int:
        """Repeat ``act`` and log the readings, those before a failure too; returns how often it was done.

        ``per_point`` are the repetitions between two readings.
        """
        counts, readings = [0], [settled_memory(session)]
        end = time.monotonic() + plan.limit_s
        try:
            while len(counts) <= plan.points or (len(counts) <= plan.most_points and _moves(readings)):
                if time.monotonic() > end:
                    break
                counts.append(_repeat(act, counts[-1], per_point, end))
                readings.append(settled_memory(session))
                self._log.announce(f"memory over {counts[-1]} {_WORDS[activity]}")
        finally:
            self._log.append(self._record(activity, counts[: len(readings)], readings))
        return counts[-1]

    def _record(
        self, activity: Activity, counts: Sequence[int], readings: Sequence[MemoryReading]
    ) -> MemorySeries:
        return MemorySeries(
            shape=self._log.shape,
            method=self._log.method,
            activity=activity,
            counts=tuple(counts),
            device_used_bytes=tuple(reading.device_used_bytes for reading in readings),
            allocator_bytes=_all_or_none([reading.allocator_bytes for reading in readings]),
            host_rss_bytes=_all_or_none([reading.host_rss_bytes for reading in readings]),
        )

    # --- the normal path after aborted captures ------------------------------------------------------
    def _probe(self, session: Session, expected: correctness.Expectation, count: int) -> None:
        """Is the normal path still right? A broken one is a finding."""
        after = f"after {count} captures that were aborted, the normal path"
        try:
            again = correctness.normal_again(session, expected)
        except Exception as error:  # noqa: BLE001  (a broken normal path is what is asked for)
            finding = self.blamed(error)
            code = Reason.CAPTURE_ILLEGAL if finding.code is Reason.WORKLOAD else finding.code
            message = f"{after} fails: {finding.message}"
            self._log.append(structs.replace(finding, code=code, message=message))
            self._probed(intact=False, detail=finding.message)
            return
        if not again.equal:
            self.find(Reason.WRONG_OUTPUT, f"{after} differs from before: {again.detail}")
        self._probed(intact=again.equal, detail=again.detail)

    def _probed(self, *, intact: bool, detail: str) -> None:
        log = self._log
        log.append(NormalPathProbe(shape=log.shape, method=log.method, intact=intact, detail=detail))

    # --- findings ---------------------------------------------------------------------------------
    def find(self, code: Reason, message: str) -> None:
        """Log a finding of ours."""
        log = self._log
        log.append(Finding(shape=log.shape, method=log.method, phase=log.phase, code=code, message=message))

    def blamed(self, error: Exception | SystemExit) -> Finding:
        """The finding for what was raised; while something captures, that is to blame unless it is known."""
        phase = Phase.CAPTURE if self._capturing else Phase.MEMORY
        finding = blame(error, self._log.shape, phase, self._loaded.workload.folder)
        return structs.replace(finding, method=self._log.method, phase=self._log.phase)


class _Replays:
    """Requests of a graph path, one after the other, with ``between`` after them."""

    def __init__(
        self, session: Session, path: GraphPath, input_sets: Sequence[Inputs], afterwards: Afterwards
    ) -> None:
        self._session = session
        self._path = path
        self._input_sets = input_sets
        self._between = Between(session)
        self._afterwards = afterwards
        self._replays_s = 0.0
        self.per_point = 1

    def calibrate(self, plan: Plan) -> None:
        """Say how many fit between two readings, from a few that come before the first one."""
        self.per_point = _per_point(self._replay, plan)
        self._between.call()
        self._afterwards.look()  # what comparing takes of a pool is in the first reading

    def one(self, index: int) -> None:
        """One request, synchronised."""
        start = time.perf_counter()
        self._replay(index)
        self._replays_s += time.perf_counter() - start
        # No more than half of the time: what is read is what replays leave behind, after as many as planned.
        if self._between.spent_s <= self._replays_s:
            self._between.call()
            self._afterwards.look_if_due()

    def free(self) -> None:
        """Give back what was held for them."""

    def inputs(self, index: int) -> Inputs:
        """What the request gets."""
        return self._input_sets[index % len(self._input_sets)]

    def _replay(self, index: int) -> None:
        self._path.replay(self.inputs(index))
        self._session.adapter.synchronize()


class _OwnReplays(_Replays):
    """The same by a path of the workload's own, each request with its inputs elsewhere.

    Every other request gets a copy that is dropped after it: a path that keeps it grows. The others go
    through copies that all lie at different addresses: a path that makes something for each address grows
    too. These are made before the first reading and held beyond the last, so that every reading holds the
    same bytes of ours.
    """

    def __init__(
        self, session: Session, path: GraphPath, input_sets: Sequence[Inputs], afterwards: Afterwards
    ) -> None:
        super().__init__(session, path, input_sets, afterwards)
        self._fresh = FreshInputs(session, input_sets)
        self._held: list[Inputs] = []
        self._most = 1

    def calibrate(self, plan: Plan) -> None:
        """Then make the copies that are held."""
        super().calibrate(plan)
        self._most = plan.most_points * self.per_point
        self._held = self._fresh.take(min(self._most, plan.most_points * NEW_ADDRESSES))

    def free(self) -> None:
        """Free the copies."""
        self._held.clear()
        self._fresh.free()

    def inputs(self, index: int) -> Inputs:
        """A new copy, or one of those that are held, which come up evenly over all repetitions."""
        if index % 2 or not self._held:
            return self._fresh.copy()
        return self._held[index * len(self._held) // self._most % len(self._held)]


def _cycle(session: Session, inputs: Inputs) -> None:
    """A graph's whole life, the step being warm already."""
    graphed = GraphedStep(session.adapter, session.step, inputs, updatable=session.updatable())
    graphed.warm_up(0)
    graphed.capture()
    graphed.instantiate()
    graphed.upload()
    graphed.replay(inputs)
    session.adapter.synchronize()
    graphed.invalidate()


def _abort(session: Session, inputs: Inputs) -> None:
    """A capture that fails when all of the step was captured."""

    def failing(*given: Any) -> None:
        session.step(*given)
        raise _AbortError

    graphed = GraphedStep(session.adapter, failing, inputs)
    graphed.warm_up(0)
    with suppress(_AbortError):
        graphed.capture()


def _per_point(act: Callable[[int], None], plan: Plan) -> int:
    """How many repetitions fit between two readings; those that are timed come before the first one."""
    if plan.most_per_point == 1:
        return 1
    start = time.perf_counter()
    for index in range(CALIBRATION):
        act(index)
    each_s = (time.perf_counter() - start) / CALIBRATION
    return max(1, min(plan.most_per_point, int(plan.point_s / max(each_s, 1e-9))))


def _repeat(act: Callable[[int], None], done: int, times: int, end: float) -> int:
    """Do it so often, or until the time is over; returns how often it was done in all."""
    for index in range(done, done + times):
        act(index)
        if time.monotonic() > end:
            return index + 1
    return done + times


def _moves(readings: Sequence[MemoryReading]) -> bool:
    """Whether device memory still moved in the second half."""
    half = readings[len(readings) // 2 :]
    return len({(reading.device_used_bytes, reading.allocator_bytes) for reading in half}) > 1


def _all_or_none(values: Sequence[Measured]) -> tuple[int, ...] | NotMeasured:
    """All of them, or the first reason why one is missing."""
    absent = next((value for value in values if isinstance(value, NotMeasured)), None)
    return absent or tuple(value for value in values if isinstance(value, int))
