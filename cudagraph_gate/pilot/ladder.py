"""The trial of one shape: rung 1 of the ladder, one instance with fresh inputs on one stream.

Phases in order, each logged before it begins; the first failure becomes a finding and ends the trial.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from cudagraph_gate.errors import CgateError, DeviceError, NoDeviceError, UsageError, WorkloadError
from cudagraph_gate.evidence import Run
from cudagraph_gate.graphs import GraphedStep, contents
from cudagraph_gate.model import Counts, NotMeasured, Reason
from cudagraph_gate.pilot import correctness, measure
from cudagraph_gate.pilot.blame import blame
from cudagraph_gate.pilot.comparing import compare_repeats, compare_values, uninformative
from cudagraph_gate.pilot.jobs import TrialJob
from cudagraph_gate.pilot.recording import write_fingerprint
from cudagraph_gate.pilot.session import Inputs, Loaded, Session, build, load
from cudagraph_gate.pilot.trial_log import AnswerSink, TrialLog
from cudagraph_gate.records import (
    Comparison,
    Finding,
    NodeSet,
    NormalPathProbe,
    PathName,
    Phase,
    ShapeEnded,
    TrialStarted,
)
from cudagraph_gate.timeline.recorder import open_recorder
from cudagraph_gate.timeline.table import KERNEL, MEMCPY, MEMSET
from cudagraph_gate.workload import flatten, unused_parts

WARM_UP_REQUESTS: Final = 10
"""Lazy loading, autotuning and workspaces settle within a few calls."""
STEADY_REPLAYS: Final = 20


def try_shape(job: TrialJob, report: AnswerSink) -> None:
    """Try one shape and log what happens. Raises WorkloadError where the workload itself fails."""
    run = Run(Path(job.folder))
    report.progress("loading the workload")
    loaded = load(job.workload, job.device, job.shapes)
    name = job.shape or next(iter(loaded.shapes))
    if job.shape is None:
        _refuse_other_values(run, loaded)
        run.append(_started(loaded, job))
        report.answer(shapes=list(loaded.shapes))
    Trial(loaded, run, TrialLog(run, name, report), job.seed).run()


def _refuse_other_values(run: Run, loaded: Loaded) -> None:
    """Evidence names a shape by its name alone: in one run a name must not mean two shapes."""
    known: dict[str, str] = {}
    for record in run.records():
        if isinstance(record, TrialStarted):
            known |= record.shape_values
    profile = run.profile()
    if profile is not None:
        known[profile.shape] = profile.shape_value
    for name, shape in loaded.shapes.items():
        if known.get(name, repr(shape)) != repr(shape):
            raise UsageError(
                f"shape {name} is {known[name]} in run {run.name}, not {shape!r}",
                hint="give the new shape another name, or start a new run with cgate run",
            )


def _started(loaded: Loaded, job: TrialJob) -> TrialStarted:
    return TrialStarted(
        workload=job.workload,
        shapes=tuple(loaded.shapes),
        shape_values={name: repr(shape) for name, shape in loaded.shapes.items()},
        simulated=loaded.device.simulated,
        device=loaded.device.name,
        seed=job.seed,
        noticed=unused_parts(loaded.workload),
    )


class Trial:
    """One shape's way through the phases."""

    def __init__(self, loaded: Loaded, run: Run, log: TrialLog, seed: int) -> None:
        self._loaded = loaded
        self._run = run
        self._log = log
        self._seed = seed
        self._addresses: dict[str, int] = {}
        """Where each state array lay when the step was captured."""

    def run(self) -> None:
        """Run all phases; whatever fails becomes a finding."""
        completed = False
        try:
            session, first = self._build()
            session = self._cold_request(session, first)
            completed = self._try_graph(session, session.input_sets(self._seed))
            session.teardown()
        except WorkloadError as error:
            self._log.append(self._finding_of_workload(error))
            raise
        except (Exception, SystemExit) as error:
            finding = self._blame(error)
            self._log.append(finding)
            if not (finding.where or isinstance(error, DeviceError | RuntimeError | MemoryError)):
                raise  # nobody's but ours
        finally:
            self._log.append(ShapeEnded(shape=self._log.shape, completed=completed))

    # --- before the graph -------------------------------------------------------------------------
    def _build(self) -> tuple[Session, Inputs]:
        log, device = self._log, self._loaded.device
        log.begin(Phase.BUILD)
        start = device.clock_ns()
        session, first = build(self._loaded, log.shape, self._seed)
        device.synchronize()
        log.cost(device.clock_ns() - start)
        return session, first

    def _cold_request(self, session: Session, first: Inputs) -> Session:
        outputs = self._log.measured(session, Phase.COLD_REQUEST, lambda: session.call(first))
        session = session.with_outputs(first, outputs)
        if self._run.fingerprint() is None:  # no profile stage was here before
            write_fingerprint(self._run, session, first, tuple(self._loaded.shapes))
        return session

    def _try_graph(self, session: Session, input_sets: list[Inputs]) -> bool:
        updatable, log = session.updatable(), self._log
        graphed = GraphedStep(session.adapter, session.step, input_sets[0], updatable=updatable)
        log.measured(session, Phase.WARM_UP, lambda: graphed.warm_up(WARM_UP_REQUESTS))
        log.begin(Phase.EXPECTED)
        if left_out := session.uncompared_state():
            self._find_large_state(left_out)
        usable = [_baked(updatable, input_sets[0], values) for values in input_sets]
        expected = correctness.expect(session, usable)
        for comparison in compare_repeats(log.shape, expected.normal, expected.repeated):
            log.append(comparison)
        log.memory(session)
        if not self._capture(session, graphed, expected):
            return False
        self._make_ready(session, graphed)
        right = self._follow(session, graphed, expected)
        if right:
            self._time(session, graphed, usable)
        log.measured(session, Phase.DESTROY, graphed.invalidate)
        self._kernels(session, usable[0])  # also of a wrong graph: kernels that it lacks say why
        return right

    # --- the graph --------------------------------------------------------------------------------
    def _capture(self, session: Session, graphed: GraphedStep, expected: correctness.Expectation) -> bool:
        log = self._log
        self._addresses = correctness.addresses(session)
        try:
            captured = log.measured(session, Phase.CAPTURE, graphed.capture)
        except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever the step raises is the finding)
            log.append(self._blame(error))
            log.append(self._probe_normal_path(session, expected))
            return False
        held = contents(captured.graph)
        self._nodes = NodeSet(
            shape=log.shape,
            nodes=held.nodes,
            kinds=held.kinds,
            kernels=held.kernels,
            normal_kernels=NotMeasured(
                reason="the trial ended before the normal path's kernels were recorded"
            ),
        )
        log.append(self._nodes)
        return True

    def _probe_normal_path(self, session: Session, expected: correctness.Expectation) -> NormalPathProbe:
        """Is the normal path still right in the process in which the capture failed?"""
        try:
            again = self._normal_again(session, expected)
        except Exception as error:  # noqa: BLE001  (a broken normal path is what is asked for)
            return NormalPathProbe(
                shape=self._log.shape, intact=False, detail=str(self._blame(error).message)
            )
        return NormalPathProbe(shape=self._log.shape, intact=again.equal, detail=again.detail)

    def _make_ready(self, session: Session, graphed: GraphedStep) -> None:
        log, device = self._log, session.device
        log.measured(session, Phase.INSTANTIATE, graphed.instantiate)
        log.measured(session, Phase.UPLOAD, graphed.upload)
        log.measured(session, Phase.FIRST_REPLAY, graphed.launch)
        log.begin(Phase.STEADY_REPLAY)
        times = []
        for _ in range(STEADY_REPLAYS):
            start = device.clock_ns()
            graphed.launch()
            session.adapter.synchronize()
            times.append(device.clock_ns() - start)
        log.cost(round(statistics.median(times)))
        log.memory(session)
        result = log.measured(session, Phase.UPDATE, graphed.update)
        if not result.ok:
            raise DeviceError(result.result, "cuGraphExecUpdate", detail="an update that changes nothing")

    def _follow(self, session: Session, graphed: GraphedStep, expected: correctness.Expectation) -> bool:
        """The trajectory by the graph, then the normal path again; False if something differs."""
        log, adapter = self._log, session.adapter
        log.begin(Phase.TRAJECTORY)
        static = [leaf for _name, leaf in flatten(graphed.outputs) if adapter.is_device_array(leaf)]
        moved: dict[str, int] = {}

        def disturb(request: int) -> None:
            for name, address in correctness.addresses(session).items():
                if self._addresses.get(name, address) != address:
                    moved.setdefault(name, request)
            correctness.poison(session, static, expected.start.changing, graphed.constants)
            correctness.churn(session, [*session.state().values(), *static, *expected.start.requests[0]])

        actual = correctness.follow(session, graphed.replay, expected.start, before_each=disturb)
        same = True
        for comparison in correctness.compare_paths(session, expected, actual):
            log.append(comparison)
            same &= comparison.equal
        if moved:
            self._find_moved(moved)
        if expected.lost_inputs:
            self._find_lost_inputs(expected.lost_inputs)
        varying = any(size for size in map(adapter.nbytes, graphed.variables))
        if why := uninformative(expected.normal, inputs_vary=varying):
            self._find_sameness(why)
        frozen = correctness.frozen(session, graphed.replay, expected, actual) if same else ""
        if frozen:
            self._find_frozen(frozen)
        log.begin(Phase.NORMAL_AGAIN)
        again = self._normal_again(session, expected)
        log.append(again)
        return same and again.equal and not (frozen or moved or expected.lost_inputs)

    def _normal_again(self, session: Session, expected: correctness.Expectation) -> Comparison:
        first = replace(expected.start, requests=expected.start.requests[:1])
        once = correctness.follow(session, session.call, first)
        want, got = expected.normal.moments[0].values(), once.moments[0].values()
        return compare_values(self._log.shape, 0, "normal_again", want, got, expected.tolerances)

    # --- measuring --------------------------------------------------------------------------------
    def _time(self, session: Session, graphed: GraphedStep, input_sets: list[Inputs]) -> None:
        log, synchronize = self._log, session.adapter.synchronize
        log.begin(Phase.TIMING)

        def graph(inputs: Inputs) -> None:
            graphed.replay(inputs)
            synchronize()

        def copy_in(inputs: Inputs) -> None:
            graphed.copy_in(inputs)
            synchronize()

        requests: dict[PathName, measure.Request] = {
            "normal": measure.normal_request(session),
            "graph": graph,
            "copy_in": copy_in,
        }
        for block in measure.blocks(session, requests, input_sets, self._seed):
            log.append(block)
            if block.order % len(measure.PATHS) == 0:
                log.announce(f"timing, block {block.order} of {measure.BLOCKS_PER_PATH * len(measure.PATHS)}")
        log.memory(session)

    def _kernels(self, session: Session, inputs: Inputs) -> None:
        """One request of the normal path under the recorder: last, since a recorder stays in the process."""
        self._log.begin(Phase.KERNELS)
        try:
            recorder = open_recorder(session.device, "light")
            recorder.start()
            session.call(inputs)
            session.device.synchronize()
            operations = recorder.stop().operations
        except NoDeviceError as error:
            unknown = NotMeasured(reason=str(error))
            self._log.append(structs.replace(self._nodes, normal_kernels=unknown, normal_copies=unknown))
            return
        kinds = operations["kind"].astype(str)
        kernels = _counted(operations[kinds == KERNEL]["name"].astype(str))
        copies = _counted(kinds[kinds.isin([MEMCPY, MEMSET])])
        self._log.append(structs.replace(self._nodes, normal_kernels=kernels, normal_copies=copies))

    # --- failures ---------------------------------------------------------------------------------
    def _blame(self, error: Exception | SystemExit) -> Finding:
        return blame(error, self._log.shape, self._log.phase, self._loaded.workload.folder)

    def _find(self, code: Reason, message: str, advice: str, *, blocks: bool = True) -> None:
        """Log a finding of the current phase."""
        self._log.append(
            Finding(
                shape=self._log.shape,
                phase=self._log.phase,
                code=code,
                message=message,
                advice=advice,
                blocks=blocks,
            )
        )

    def _find_large_state(self, names: tuple[str, ...]) -> None:
        self._find(
            Reason.UNMEASURABLE,
            f"{len(names)} arrays of state, {names[0]} first, are too large to be compared unasked",
            "name what requests change in state(), which is always compared",
            blocks=False,
        )

    def _find_moved(self, moved: dict[str, int]) -> None:
        name, request = next(iter(moved.items()))
        others = f" and {len(moved) - 1} more" if len(moved) > 1 else ""
        self._find(
            Reason.UNSTABLE_ADDRESS,
            f"state {name}{others} lay elsewhere before request {request} than when it was captured: "
            "the graph still uses the old memory",
            "change state in place (copy_ into it), or capture again after every such change",
        )

    def _find_lost_inputs(self, names: tuple[str, ...]) -> None:
        self._find(
            Reason.STATE_MUTATION,
            f"the step changes input {', '.join(names)} in place without returning it: "
            "a replay changes its own copy, and the caller's array stays as it was",
            "return it, or let the step keep it and name it in state()",
        )

    def _find_sameness(self, why: str) -> None:
        self._find(
            Reason.UNMEASURABLE,
            f"agreeing outputs show nothing: {why}",
            "let inputs(shape, seed) depend on its seed, and return what the step computes from them",
        )

    def _find_frozen(self, name: str) -> None:
        self._find(
            Reason.FROZEN_HOST_STATE,
            f"from the same state and inputs {name} differs at each call of the normal path, "
            "and never between replays",
            "keep what changes from call to call (counters, schedules, seeds) in device memory",
        )

    def _finding_of_workload(self, error: CgateError) -> Finding:
        return Finding(
            shape=self._log.shape,
            phase=self._log.phase,
            code=Reason.WORKLOAD,
            message=error.what,
            where=error.where or "",
            advice=error.hint or "",
        )


def _counted(names: Any) -> Counts:
    return Counts(by_name={str(name): int(count) for name, count in names.value_counts().items()})


def _baked(updatable: tuple[bool, ...], first: Inputs, values: Inputs) -> Inputs:
    """A request's inputs where those that may not change keep the values of the first request."""
    return tuple(
        value if moves else kept for moves, kept, value in zip(updatable, first, values, strict=True)
    )
