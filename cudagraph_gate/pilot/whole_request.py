"""Whole business requests: the workload's ``request`` around the step, from end to end, by both paths.

A graph only touches the step. What is around it (parsing, a look-up, writing the answer) stays as it is, so a
gain of the step may be no gain of the request. The results of both paths are compared first: ``request`` may
keep an output that the next replay overwrites, or pass inputs that the graph was not made for.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cudagraph_gate.errors import CgateError, WorkloadError
from cudagraph_gate.graphs import GraphedStep
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.between import Between, Pause
from cudagraph_gate.pilot.comparing import (
    Moment,
    Trajectory,
    compare_repeats,
    compare_values,
    repeat_tolerances,
)
from cudagraph_gate.pilot.correctness import Start, follow
from cudagraph_gate.pilot.findings import blamed
from cudagraph_gate.pilot.graph_path import GraphPath
from cudagraph_gate.pilot.measure import (
    BLOCK_NS,
    BLOCK_REQUESTS,
    BLOCKS_PER_PATH,
    CALIBRATION,
    SIMULATED_WALL_NS,
    Half,
    Request,
    Sample,
    block_order,
    timed,
)
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import Finding, PathName, Phase, StepShare, WholeRequests
from cudagraph_gate.stats import MIN_BLOCKS
from cudagraph_gate.workload import user_error

SEEDS: Final = 8
"""Different requests that are served in turn, as many as the step's inputs are."""
COMPARED_REQUESTS: Final = 3
"""Of each path, one after the other: an output that is kept too long is overwritten by the second."""
SHARE_REQUESTS: Final = (3, 10)
"""Fewest and most requests that tell the share of the step."""
LONGEST_NS: Final = 30_000_000_000
"""Of all blocks together: requests of a second or more get shorter blocks, and then fewer."""
PATHS: Final[tuple[PathName, ...]] = ("normal", "graph")


def time_whole_requests(
    session: Session,
    path: GraphPath,
    start: Start,
    log: TrialLog,
    seed: int,
    *,
    exact: bool,
    overwrites: bool = False,
) -> None:
    """Compare the results of both paths from ``start``'s state, then time them; logs what it finds.

    ``exact`` says whether the step's outputs agree bit by bit: then other results are certainly wrong.
    ``overwrites``: whether the graph path overwrites outputs at a later request, which then is the reason.
    Nothing where the workload declares no ``request``. What the graph path raises, and another result, is a
    finding and ends this phase. Raises WorkloadError where ``request`` fails with the normal step.
    """
    if session.workload.request is None:
        return
    log.begin(Phase.WHOLE_REQUEST)
    whole = _Whole(session, path, log, seed, exact, overwrites)
    try:
        if whole.results_agree(start):
            log.append(whole.share())
            for block in whole.blocks():
                log.append(block)
    except CgateError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever it raises with the graph is a finding)
        log.append(blamed(error, log, session.workload.folder))


class ServedStep:
    """What ``request`` is given as its step: served by the normal step, or by a graph path; counts its calls.

    Inputs that a graph refuses are served by the normal step, as an application would.
    """

    def __init__(self, session: Session, path: GraphPath | None = None) -> None:
        self._step = session.step
        self._path = path
        self.calls = 0
        self.refused = 0
        self.refusal = ""

    def __call__(self, *inputs: Any) -> Any:
        """One call of the step, not synchronised."""
        self.calls += 1
        if self._path is None:
            return self._step(*inputs)
        if not isinstance(self._path, GraphedStep):
            return self._path.replay(inputs)
        try:
            self._path.copy_in(inputs)
        except (ValueError, TypeError) as error:  # nothing was launched on them
            self.refused += 1
            self.refusal = self.refusal or str(error)
            return self._step(*inputs)
        self._path.launch()
        return self._path.outputs


class TimedStep:
    """The normal step, its calls timed with the device synchronised before and after each."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.calls = 0
        self.spent_ns = 0

    def __call__(self, *inputs: Any) -> Any:
        """One call of the step."""
        clock, synchronize = self._session.device.clock_ns, self._session.adapter.synchronize
        synchronize()
        start = clock()
        outputs = self._session.step(*inputs)
        synchronize()
        self.spent_ns += clock() - start
        self.calls += 1
        return outputs


@dataclass
class _Whole:
    """The requests of one session by both paths."""

    session: Session
    path: GraphPath
    log: TrialLog
    seed: int
    exact: bool
    overwrites: bool
    steps: dict[PathName, ServedStep] = field(init=False)
    pause: Pause | None = field(init=False)

    def __post_init__(self) -> None:
        self.pause = Between(self.session).prepare()
        self.steps = {"normal": ServedStep(self.session), "graph": ServedStep(self.session, self.path)}

    @property
    def seeds(self) -> Sequence[Inputs]:
        """The seeds, each as the inputs of a timed request."""
        return [(self.seed + index,) for index in range(SEEDS)]

    def call(self, step: Callable[..., Any], seed: int) -> Any:
        """One whole request, not synchronised."""
        request = self.session.workload.request
        assert request is not None, "asked for only where the workload has it"
        return request(step, self.session.shape, seed)

    def request(self, step: Callable[..., Any]) -> Request:
        """A request by this step, synchronised at its end."""
        call, synchronize = self.call, self.session.adapter.synchronize

        def whole(inputs: Inputs) -> None:
            call(step, *inputs)
            synchronize()

        return whole

    @contextmanager
    def blaming_user(self, path: PathName = "normal") -> Iterator[None]:
        """With the normal step a failure is the workload's; one with the graph path passes."""
        try:
            yield
        except CgateError:
            raise
        except (Exception, SystemExit) as error:
            if path != "normal":
                raise
            what = f"request of shape {self.session.shape_name}"
            raise user_error(error, self.session.workload.folder, what) from error

    # --- results ----------------------------------------------------------------------------------
    def results_agree(self, start: Start) -> bool:
        """Whether both paths give the same results, as far as the normal path repeats its own."""
        with self.blaming_user():
            normal, again = (self._followed("normal", start) for _ in range(2))
        self._require_step()
        graph = self._followed("graph", start)
        if not any(moment.outputs for moment in normal.moments):
            self._note("request returned nothing: the results of both paths were not compared")
            return True
        loose = self._unrepeated(normal, again)
        if loose:
            self._note(
                f"not compared, as the normal path itself does not repeat it: {', '.join(sorted(loose))}"
            )
        return self._same(_without(normal, loose), _without(again, loose), _without(graph, loose))

    def _unrepeated(self, normal: Trajectory, again: Trajectory) -> frozenset[str]:
        """Names of results that stray on the normal path alone, such as times and random names.

        Arrays may stray by a little, which then is their tolerance; plain values may not.
        """
        names = frozenset(name for moment in normal.moments for name in moment.values())
        return frozenset(name for name in names if not self._repeats(normal, again, names - {name}))

    def _repeats(self, normal: Trajectory, again: Trajectory, others: frozenset[str]) -> bool:
        alone = _without(normal, others), _without(again, others)
        return all(found.equal for found in compare_repeats(self.session.shape_name, *alone))

    def _followed(self, path: PathName, start: Start) -> Trajectory:
        """The results of some requests, one after the other, from the same state."""
        seeds = itertools.count(self.seed)
        requests = replace(start, requests=[()] * COMPARED_REQUESTS)
        return follow(self.session, lambda _none: self.call(self.steps[path], next(seeds)), requests)

    def _require_step(self) -> None:
        if not self.steps["normal"].calls:
            raise WorkloadError(
                f"request of shape {self.session.shape_name} did not call the step that it was given",
                where=self.session.workload.where("request"),
                hint="call step(*inputs) in request(step, shape, seed)",
            )

    def _same(self, normal: Trajectory, again: Trajectory, graph: Trajectory) -> bool:
        tolerances = repeat_tolerances(normal, again)
        for request, (want, got) in enumerate(zip(normal.moments, graph.moments, strict=True)):
            wanted, given = want.values(), got.values()
            found = compare_values(self.session.shape_name, request, "outputs", wanted, given, tolerances)
            if not found.equal or wanted.keys() != given.keys():
                which = found.detail or ", ".join(sorted(wanted.keys() ^ given.keys()))
                self._find_other_result(request, which, exact=self.exact and not any(tolerances.values()))
                return False
        return True

    def _find_other_result(self, request: int, which: str, *, exact: bool) -> None:
        """Text or a choice may tip over where numbers are not exact: then it is undecided."""
        near = "" if exact else "; outputs do not agree bit by bit, so this may be their tolerance"
        self._note(
            f"with the graph path request {request} gives another {which} than with the normal step{near}",
            (Reason.LIFETIME if self.overwrites else Reason.WRONG_OUTPUT) if exact else Reason.UNMEASURABLE,
            "copy (clone) what request keeps of the step's outputs beyond its next call, and give the step "
            "the inputs that the graph was made for (UPDATABLE)",
            blocks=True,
        )

    def _note(
        self, message: str, code: Reason = Reason.UNMEASURABLE, advice: str = "", *, blocks: bool = False
    ) -> None:
        self.log.append(
            Finding(
                shape=self.log.shape,
                method=self.log.method,
                phase=Phase.WHOLE_REQUEST,
                code=code,
                message=message,
                where=self.session.workload.where("request"),
                advice=advice,
                blocks=blocks,
            )
        )

    # --- times ------------------------------------------------------------------------------------
    def share(self) -> StepShare:
        """How much of some requests the normal step takes."""
        step = TimedStep(self.session)
        fewest, most = SHARE_REQUESTS
        with self.blaming_user():
            sample = self._timed(step, fewest)
            if sum(sample.latencies_ns) < LONGEST_NS // most:
                step = TimedStep(self.session)  # the first ones were to warm up
                sample = self._timed(step, most)
        return StepShare(
            shape=self.log.shape,
            method=self.log.method,
            requests=len(sample.latencies_ns),
            request_ns=sum(sample.latencies_ns),
            step_ns=step.spent_ns,
            step_calls=step.calls,
        )

    def blocks(self) -> Iterator[WholeRequests]:
        """Randomised alternating blocks of both paths, as many as the step's; fewer of long requests."""
        counts = {path: self._count(path) for path in PATHS}
        began = time.perf_counter_ns()
        for order, (path, half) in enumerate(block_order(self.seed, PATHS)):
            over = time.perf_counter_ns() - began > LONGEST_NS
            if over and order >= len(PATHS) * MIN_BLOCKS and order % (2 * len(PATHS)) == 0:
                return  # after two rounds: halves are of equal size
            if order % len(PATHS) == 0:
                self.log.announce(f"whole requests, block {order} of {len(PATHS) * BLOCKS_PER_PATH}")
            gc.collect()
            with self.blaming_user(path):
                step = self.steps[path]
                self._timed(step, 1)
                step.calls = step.refused = 0
                sample = self._timed(step, counts[path])
            yield self._block(path, order, half, sample)

    def _timed(self, step: Callable[..., Any], count: int) -> Sample:
        """Some requests with this step, before each of them what the application does between two."""
        return timed(self.session.device, self.request(step), self.seeds, count, prepare=self.pause)

    def _count(self, path: PathName) -> int:
        with self.blaming_user(path):
            wall = time.perf_counter_ns()
            sample = self._timed(self.steps[path], CALIBRATION)
        wall_ns = (time.perf_counter_ns() - wall) // CALIBRATION
        median_ns = round(statistics.median(sample.latencies_ns))
        return requests_of_block(median_ns, wall_ns, simulated=self.session.device.simulated)

    def _block(self, path: PathName, order: int, half: Half, sample: Sample) -> WholeRequests:
        step = self.steps[path]
        return WholeRequests(
            shape=self.log.shape,
            method=self.log.method,
            path=path,
            order=order,
            half=half,
            latencies_ns=sample.latencies_ns,
            cpu_ns=sample.cpu_ns,
            process_cpu_ns=sample.process_cpu_ns,
            step_calls=step.calls,
            refused_calls=step.refused,
            refusal=step.refusal,
        )


def requests_of_block(median_ns: int, wall_ns: int, *, simulated: bool) -> int:
    """How many requests one block holds: as many as fill it, but no more than all blocks have time for.

    On the simulated device, whose requests take longer on the wall clock than on its own, that one counts.
    """
    each_ns = max(1, wall_ns if simulated else median_ns)
    filling = SIMULATED_WALL_NS // each_ns if simulated else BLOCK_NS // each_ns
    fewest, most = BLOCK_REQUESTS
    affordable = LONGEST_NS // (len(PATHS) * BLOCKS_PER_PATH * each_ns)
    return max(1, min(most, max(fewest, filling), affordable))


def _without(found: Trajectory, names: frozenset[str]) -> Trajectory:
    """The trajectory without some values; names are those of :meth:`Moment.values`."""

    def kept(moment: Moment) -> Moment:
        outputs = {name: leaf for name, leaf in moment.outputs.items() if f"output {name}" not in names}
        state = {name: leaf for name, leaf in moment.state.items() if f"state {name}" not in names}
        return replace(moment, outputs=outputs, state=state)

    return replace(found, moments=tuple(map(kept, found.moments)))
