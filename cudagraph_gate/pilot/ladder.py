"""The trial of one shape: rungs 1 and 2 of the ladder, one instance on one stream.

Phases in order, each logged before it begins; the first failure becomes a finding and ends the trial.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from msgspec import structs

from cudagraph_gate.evidence import Run
from cudagraph_gate.model import Counts, NotMeasured
from cudagraph_gate.pilot import correctness, measure
from cudagraph_gate.pilot.clocks import ClockLog
from cudagraph_gate.pilot.comparing import compare_repeats, uninformative
from cudagraph_gate.pilot.escaped import escaped_findings, record_capture
from cudagraph_gate.pilot.explaining import Case, drawn_by_chance, explain
from cudagraph_gate.pilot.findings import Findings, blamed, failures_found
from cudagraph_gate.pilot.freed_memory import freed_finding
from cudagraph_gate.pilot.frozen import frozen as frozen_value
from cudagraph_gate.pilot.garbage import freeze_imports
from cudagraph_gate.pilot.host_endpoints import churn_host, pageable_copies, pageable_finding
from cudagraph_gate.pilot.input_kinds import baked_finding, extreme_inputs, inputs_finding, kinds_of_inputs
from cudagraph_gate.pilot.jobs import TrialJob
from cudagraph_gate.pilot.kept_outputs import overwritten_by_graph, overwritten_finding
from cudagraph_gate.pilot.making import Making, afterwards_of, making_of, with_normal
from cudagraph_gate.pilot.memory import settled_memory
from cudagraph_gate.pilot.model_versions import other_version, version_changed
from cudagraph_gate.pilot.overlapping import overlap_finding
from cudagraph_gate.pilot.path_idle import record_paths
from cudagraph_gate.pilot.recording import write_fingerprint
from cudagraph_gate.pilot.refusals import refusals
from cudagraph_gate.pilot.session import Inputs, Loaded, Session, build, load
from cudagraph_gate.pilot.trial_log import AnswerSink, TrialLog
from cudagraph_gate.pilot.trial_start import (
    OURS,
    framework_modules,
    judged_method,
    refuse_other_values,
    started_trial,
    target_first,
)
from cudagraph_gate.pilot.whole_request import time_whole_requests
from cudagraph_gate.records import (
    Comparison,
    Finding,
    NormalPathProbe,
    Phase,
    ShapeEnded,
)
from cudagraph_gate.timeline.table import KERNEL, MEMCPY, MEMSET
from cudagraph_gate.workload import model_version


def try_shape(job: TrialJob, report: AnswerSink) -> None:
    """Try one shape and log what happens. Raises WorkloadError where the workload itself fails."""
    run = Run(Path(job.folder))
    report.progress("loading the workload")
    loaded = load(job.workload, job.device, job.shapes)
    report.answer(imports=[OURS, *framework_modules()])
    freeze_imports()
    names = target_first(run, loaded)
    name = job.shape or names[0]
    method = job.method or judged_method(loaded.workload)
    if job.shape is None:
        refuse_other_values(run, loaded)
        started = started_trial(loaded, job)
        run.append(started)
        report.answer(
            shapes=names,
            method=method,
            explicit=loaded.workload.build_explicit is not None and method == "capture",
            traffic=started.traffic,
        )
    Trial(loaded, run, TrialLog(run, name, report, method), job).run()


class Trial:
    """One shape's way through the phases."""

    def __init__(self, loaded: Loaded, run: Run, log: TrialLog, job: TrialJob) -> None:
        self._loaded = loaded
        self._run = run
        self._log = log
        self._job = job
        self._findings = Findings(log)
        self._addresses: dict[str, int] = {}
        """Where each state array lay when the graph was made."""
        self._version: str | None = None
        """What the workload's ``version()`` said before the graph was made."""
        self._exact = True
        """Whether the graph's outputs agree with the normal path's bit by bit."""
        self._overwrites = False
        """Whether the graph path overwrites outputs that the normal path leaves alone."""
        self._sets = 1
        """Different requests of the trajectory."""

    def run(self) -> None:
        """Run all phases; whatever fails becomes a finding."""
        log, completed = self._log, False
        try:
            with failures_found(log, self._loaded.workload.folder):
                session, first = self._build()
                session = self._cold_request(session, first)
                self._version = model_version(self._loaded.workload)
                if not self._other_version():
                    completed = self._try_graph(session, session.input_sets(self._job.seed))
                session.teardown()
        finally:
            log.append(ShapeEnded(shape=log.shape, method=log.method, completed=completed))

    # --- before the graph -------------------------------------------------------------------------
    def _build(self) -> tuple[Session, Inputs]:
        log, device = self._log, self._loaded.device
        log.begin(Phase.BUILD)
        start = device.clock_ns()
        session, first = build(self._loaded, log.shape, self._job.seed)
        device.synchronize()
        log.cost(device.clock_ns() - start)
        return session, first

    def _cold_request(self, session: Session, first: Inputs) -> Session:
        outputs = self._log.measured(session, Phase.COLD_REQUEST, lambda: session.call(first))
        session = session.with_outputs(first, outputs)
        if self._run.fingerprint() is None:  # no profile stage was here before
            write_fingerprint(self._run, session, first, tuple(self._loaded.shapes))
        return session

    def _other_version(self) -> bool:
        """Whether the run's evidence is of another model version, which then is a finding."""
        fingerprint = self._run.fingerprint()
        recorded = self._version if fingerprint is None else fingerprint.identity.get("model_version")
        if recorded is None or self._version is None or recorded == self._version:
            return False
        self._log.append(other_version(self._log, str(recorded), self._version))
        return True

    def _try_graph(self, session: Session, input_sets: list[Inputs]) -> bool:
        log = self._log
        making = making_of(session, log, log.method, input_sets[0])
        making.prepare()
        usable = session.baked(input_sets, input_sets[0])
        self._note_inputs(session, input_sets)
        self._sets = len(input_sets)
        extreme = session.baked(extreme_inputs(session, input_sets[0]).input_sets, input_sets[0])
        expected = self._expect(session, usable, extreme)
        if not self._make(session, making, expected):
            return False
        with session.device.watching_frees() as freed:
            making.make_ready()
            right = self._follow(session, making, expected) and self._time(session, making, usable, expected)
        freed += session.adapter.free_memory()
        if found := freed_finding(log.shape, getattr(making.path, "graph", None), freed, log.method):
            log.append(found)
            right = False
        if right:
            if log.method != "explicit":  # it is only shown beside the captured one
                time_whole_requests(
                    session,
                    making.path,
                    expected.start,
                    log,
                    self._job.seed,
                    exact=self._exact,
                    overwrites=self._overwrites,
                )
            if (version := model_version(session.workload)) != self._version:
                log.append(version_changed(log, str(self._version), str(version)))
            making.measure_updates()
        self._kernels(session, making, usable)  # also of a wrong graph: kernels that it lacks say why
        log.measured(session, Phase.DESTROY, making.path.invalidate)
        return right

    def _note_inputs(self, session: Session, input_sets: list[Inputs]) -> None:
        self._log.begin(Phase.EXPECTED)
        moving = [name for name, moves in zip(session.input_names, session.updatable(), strict=True) if moves]
        kinds = kinds_of_inputs(session, input_sets)
        for look in (inputs_finding, baked_finding):
            if found := look(self._log.shape, kinds, moving, self._log.method):
                self._log.append(found)

    def _expect(
        self, session: Session, usable: list[Inputs], extreme: list[Inputs]
    ) -> correctness.Expectation:
        log = self._log
        if left_out := session.uncompared_state():
            self._findings.large_state(left_out)
        expected = correctness.expect(session, usable, more=extreme)
        correctness.require_discerning_check(session, expected)
        for comparison in compare_repeats(log.shape, expected.normal, expected.repeated):
            self._append(comparison)
        log.memory(session)
        return expected

    # --- the graph --------------------------------------------------------------------------------
    def _make(self, session: Session, making: Making, expected: correctness.Expectation) -> bool:
        self._addresses = correctness.addresses(session)
        try:
            making.make()
        except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever the step raises is the finding)
            self._log.append(self._blame(error))
            self._log.append(self._probe_normal_path(session, expected))
            return False
        return True

    def _probe_normal_path(self, session: Session, expected: correctness.Expectation) -> NormalPathProbe:
        """Is the normal path still right in the process in which the capture failed?"""
        try:
            again = correctness.normal_again(session, expected)
            intact, detail = again.equal, again.detail
        except Exception as error:  # noqa: BLE001  (a broken normal path is what is asked for)
            intact, detail = False, str(self._blame(error).message)
        return NormalPathProbe(shape=self._log.shape, method=self._log.method, intact=intact, detail=detail)

    def _follow(self, session: Session, making: Making, expected: correctness.Expectation) -> bool:
        """The trajectory by the graph, then the normal path again; False if something differs."""
        log = self._log
        log.begin(Phase.TRAJECTORY)
        static = making.static_outputs()
        copies = pageable_copies(getattr(making.path, "graph", None))
        moved: dict[str, int] = {}

        def poison(_request: int) -> None:
            correctness.poison(session, static, expected.start.changing, making.constants())

        def disturb(request: int) -> None:
            poison(request)
            churn_host(copies)
            correctness.churn(session, [*session.state().values(), *static, *expected.start.requests[0]])

        def watch(request: int) -> None:
            for name, address in correctness.addresses(session).items():
                if self._addresses.get(name, address) != address:
                    moved.setdefault(name, request)
            disturb(request)

        actual = correctness.follow(session, making.path.replay, expected.start, before_each=watch)
        same = True
        for comparison in correctness.compare_paths(session, expected, actual):
            self._append(comparison)
            same &= comparison.equal
            self._exact &= comparison.exact
        frozen = frozen_value(session, making.path.replay, expected, actual) if same else ""
        if (found := pageable_finding(log.shape, copies, log.method)) is not None:
            log.append(found)
        if same:
            self._note_kept(session, making, expected)
            self._note_overlap(session, making, expected)
        odd = False
        if same and not frozen:
            for refusal in refusals(
                session, making.path.replay, expected, self._job.seed, self._sets, log.method
            ):
                log.append(refusal)
                odd = True
        if not same:
            case = Case(session, making.path, expected, actual, poison, disturb, moved=bool(moved))
            if (why := explain(case)) is not None:
                self._findings.explained(why)
        self._note(moved, expected, varying=_varying(session, expected))
        if frozen:
            self._findings.frozen(frozen, by_chance=drawn_by_chance(session, expected, frozen))
        log.begin(Phase.NORMAL_AGAIN)
        again = correctness.normal_again(session, expected)
        self._append(again)
        return same and again.equal and not (frozen or moved or odd or expected.lost_inputs)

    def _note_overlap(self, session: Session, making: Making, expected: correctness.Expectation) -> None:
        if session.workload.check is not None and not self._exact:
            return  # what differs and is accepted can't be told from a race
        overlap = overlap_finding(session, making.path.replay, expected, self._log.method)
        if overlap is not None:
            self._log.append(overlap)

    def _note_kept(self, session: Session, making: Making, expected: correctness.Expectation) -> None:
        kept = overwritten_by_graph(session, making.path.replay, expected, making.constants())
        if kept:
            self._overwrites = True
            self._log.append(overwritten_finding(self._log.shape, kept, self._log.method))

    def _note(self, moved: dict[str, int], expected: correctness.Expectation, *, varying: bool) -> None:
        """Findings of the trajectory."""
        if moved:
            self._findings.moved(moved)
        if expected.lost_inputs:
            self._findings.lost_inputs(expected.lost_inputs)
        if why := uninformative(expected.normal, inputs_vary=varying):
            self._findings.sameness(why)

    # --- measuring --------------------------------------------------------------------------------
    def _time(
        self,
        session: Session,
        making: Making,
        input_sets: list[Inputs],
        expected: correctness.Expectation,
    ) -> bool:
        """Time the paths; False where they no longer agree after more requests."""
        log = self._log
        log.begin(Phase.TIMING)
        afterwards = afterwards_of(session, log, making, expected, self._addresses)
        if not afterwards.walk():
            return False
        requests = making.requests()
        clocks = ClockLog(session.device, log)
        used = [settled_memory(session).device_used_bytes]
        total = measure.BLOCKS_PER_PATH * len(requests)
        for block in measure.blocks(
            session,
            requests,
            input_sets,
            self._job.seed,
            method=log.method,
            flush_l2=self._job.flush_l2,
            after_block=clocks.sample,
        ):
            log.append(block)
            if block.order == total // 2:
                used.append(settled_memory(session).device_used_bytes)
            if block.order % len(requests) == 0:
                log.announce(f"timing, block {block.order} of {total}")
        log.memory(session)
        if log.method == "own":
            used.append(settled_memory(session).device_used_bytes)
            self._findings.grown(used, total)
        return afterwards.look()

    def _kernels(self, session: Session, making: Making, input_sets: list[Inputs]) -> None:
        """Requests of both paths under the recorder: after all timing, since a recorder stays."""
        log = self._log
        log.begin(Phase.KERNELS)
        normal = record_paths(session, making.path, input_sets, log)
        if making.nodes is None:
            return
        if isinstance(normal, NotMeasured):
            log.append(with_normal(making.nodes, normal, normal))
            return
        kinds = normal["kind"].astype(str)
        kernels = _counted(normal[kinds == KERNEL]["name"].astype(str))
        copies = _counted(kinds[kinds.isin([MEMCPY, MEMSET])])
        log.append(with_normal(making.nodes, kernels, copies))
        missing = Counter(kernels.by_name) - Counter(making.nodes.kernels)
        if missing and log.method == "capture":
            self._find_escaped(session, input_sets[0], missing)

    def _find_escaped(self, session: Session, inputs: Inputs, missing: Counter[str]) -> None:
        """Kernels that the graph lacks because they ran while it was captured."""
        during = record_capture(session, inputs)
        if isinstance(during, NotMeasured):
            return
        for finding in escaped_findings(self._log.shape, during, missing, self._log.method):
            self._log.append(finding)

    # --- the log ----------------------------------------------------------------------------------
    def _append(self, comparison: Comparison) -> None:
        self._log.append(structs.replace(comparison, method=self._log.method))

    def _blame(self, error: Exception | SystemExit) -> Finding:
        return blamed(error, self._log, self._loaded.workload.folder)


def _varying(session: Session, expected: correctness.Expectation) -> bool:
    """Whether replays take new values for any input that has elements."""
    sizes = map(session.adapter.nbytes, expected.start.requests[0])
    return any(moves and size for moves, size in zip(session.updatable(), sizes, strict=True))


def _counted(names: Any) -> Counts:
    return Counts(by_name={str(name): int(count) for name, count in names.value_counts().items()})
