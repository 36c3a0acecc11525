"""The pilot stage: the ladder climbed as far as it holds, each step in a worker of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cudagraph_gate.errors import EvidenceError, NoDeviceError, UsageError
from cudagraph_gate.evidence import Run, create_run, newest_run, open_run
from cudagraph_gate.gates import Policy
from cudagraph_gate.gates.rungs import RUNGS, judge_rung, ladder, shapes_that_hold
from cudagraph_gate.model import GateStatus, Scenario
from cudagraph_gate.pilot.jobs import RungJob, RungKind, ScenarioJob, TrialJob
from cudagraph_gate.pilot.worker import WorkerResult
from cudagraph_gate.pilot.worker_process import Spares
from cudagraph_gate.pipeline.attack import AttackPlan, attack_plan, scenario_options, workers_of
from cudagraph_gate.pipeline.judging import collect_evidence, stale_fields
from cudagraph_gate.pipeline.options import LAST_RUNG, Options
from cudagraph_gate.pipeline.workers import absolute, discard_if_empty, raise_failure, require_module, work
from cudagraph_gate.records import AttackStarted, Method, scenario_stage

DEFAULT_POLICY: Final = Policy()
ATTACKED_RUNG: Final = 2
"""The rung that must hold before the hard scenarios are run: fresh inputs to one shape."""


def pilot(run: Run, options: Options, policy: Policy = DEFAULT_POLICY) -> None:
    """Climb the ladder as far as it holds, each step in a worker of its own, and log it in ``run``.

    A crash, a hang or a refused capture is evidence; WorkloadError is raised where the workload itself
    fails, after what else was to be tried, UsageError where another process adds to this run.
    """
    with run.exclusively():
        climb = _Climb(run, options, policy)
        climb.begin()
        with climb.spares:
            try:
                climb.up()
            finally:
                climb.write_end()
            climb.attack()
        climb.raise_failures()


class _Climb:
    """The rungs in their order: the evidence so far says whether the next one is tried."""

    def __init__(self, run: Run, options: Options, policy: Policy) -> None:
        self._run = run
        self._options = options
        self._policy = policy
        self._workload = Path(run.info().workload)
        self._results: list[WorkerResult] = []
        self._answer: dict[str, Any] = {}
        self.spares = Spares(())
        """For the workers after the first one."""

    def begin(self) -> None:
        """Try the first shape, which also tells what there is to try. Raises where nothing can be tried."""
        first = self._try(None)
        if isinstance(first.error, UsageError | NoDeviceError):
            discard_if_empty(self._run)
            raise first.error
        self._answer = first.answer
        self.spares = Spares(first.answer.get("imports", ()))

    def up(self) -> None:
        """The rungs, as far as they hold; an explicit graph beside the captured one in any case."""
        if self._answer.get("explicit"):
            self._try(self._shapes[0], "explicit")
        if not (self._shapes and self._goes_on_after(1) and self._goes_on_after(2)):
            return
        self._rung("memory", then=self._workers_to_come())  # nothing is imported beside what is timed
        for shape in self._shapes[1:]:
            self._try(shape, self._method)
        held = self._goes_on_after(3)
        for number, kind in self._instances_and_threads():
            if held:
                self._rung(kind)
                held = self._goes_on_after(number)
        # A rung that fails only binds the use of the graph; the mix is served one by one anyway.
        if self._answer.get("traffic") and self._options.rungs == LAST_RUNG and (held or self._is_bound()):
            self._rung("traffic")

    def attack(self) -> None:
        """The hard scenarios, where the first two rungs hold: what is refused anyway is not attacked."""
        if self._options.rungs < ATTACKED_RUNG or not self._shapes or not self._held(ATTACKED_RUNG):
            return
        plan = attack_plan(self._options)
        if not plan.chosen:
            return
        self._run.append(
            AttackStarted(
                shape=self._shapes[0],
                method=self._method,
                scenarios=tuple(scenario.name for scenario in plan.chosen),
                skipped=plan.skipped,
            )
        )
        for number, scenario in enumerate(plan.chosen):
            self._scenario(scenario, number, plan)

    def _scenario(self, scenario: Scenario, number: int, plan: AttackPlan) -> None:
        """Its workers, one after the other, for as long as each ends as it must."""
        options = scenario_options(self._options, number, len(plan.chosen))
        for part, expected in enumerate(scenario.ends):
            job = ScenarioJob(
                scenario=scenario.name,
                part=part,
                folder=absolute(self._run),
                workload=str(self._workload),
                device=self._options.device,
                shapes=self._options.shapes,
                shape=self._shapes[0],
                method=self._method,
                seed=self._options.seed,
            )
            process = self.spares.take(job)
            self.spares.prepare(len(scenario.ends) - part - 1 + workers_of(plan.chosen[number + 1 :]))
            stage = scenario_stage(scenario.name)
            result = work(job, self._run, stage, self._workload, options, process)
            self._run.append(result.end)
            if result.end.outcome != expected:
                return

    def write_end(self) -> None:
        """Log how far the ladder held."""
        evidence = collect_evidence(self._run)
        for ended in ladder(evidence, self._policy) if evidence.records else ():
            if ended.number <= self._options.rungs:
                self._run.append(ended)

    def raise_failures(self) -> None:
        """Raise the first failure that a worker reported, if one did."""
        for result in self._results:
            if result.error is not None:
                raise_failure(result, self._run, "pilot")

    @property
    def _shapes(self) -> list[str]:
        shapes: list[str] = self._answer.get("shapes", [])
        return shapes

    @property
    def _method(self) -> Method:
        method: Method = self._answer.get("method", "capture")
        return method

    def _instances_and_threads(self) -> Iterator[tuple[int, RungKind]]:
        if self._method == "capture":  # a path of the workload's own is tried with one request at a time
            yield 4, "instances"
            yield 5, "concurrency"

    def _is_bound(self) -> bool:
        """Whether the last rung that was tried fails, and leaves a use of the graph."""
        last = ladder(collect_evidence(self._run), self._policy)[-1]
        return last.status is GateStatus.FAIL and bool(RUNGS[last.number - 1].bound_to)

    def _goes_on_after(self, number: int) -> bool:
        return number < self._options.rungs and self._held(number)

    def _held(self, number: int) -> bool:
        ended = judge_rung(number, collect_evidence(self._run), self._policy)
        return ended.status is GateStatus.PASS

    def _try(self, shape: str | None, method: Method | None = None) -> WorkerResult:
        job = TrialJob(
            folder=absolute(self._run),
            workload=str(self._workload),
            device=self._options.device,
            shapes=self._options.shapes,
            shape=shape,
            method=method,
            flush_l2=self._options.flush_l2,
            seed=self._options.seed,
        )
        return self._work(job)

    def _workers_to_come(self) -> int:
        """After the one that measures memory, as far as all goes well."""
        attacked = self._options.rungs >= ATTACKED_RUNG
        scenarios = workers_of(attack_plan(self._options).chosen) if attacked else 0
        return len(self._shapes[1:]) + len([*self._instances_and_threads()]) + scenarios

    def _rung(self, kind: RungKind, *, then: int = 0) -> None:
        evidence = collect_evidence(self._run)
        job = RungJob(
            kind=kind,
            folder=absolute(self._run),
            workload=str(self._workload),
            device=self._options.device,
            shapes=self._options.shapes,
            shape=self._shapes[0],
            method=self._method,
            captured=shapes_that_hold(evidence, self._policy),
            seed=self._options.seed,
        )
        self._work(job, then=then)

    def _work(self, job: TrialJob | RungJob, *, then: int = 0) -> WorkerResult:
        """Run a job; workers for ``then`` further jobs get ready beside it."""
        process = self.spares.take(job)
        self.spares.prepare(then)
        result = work(job, self._run, "pilot", self._workload, self._options, process)
        self._run.append(result.end)
        self._results.append(result)
        return result


def run_for_pilot(workload: Path | None, folder: Path | None, options: Options) -> Run:
    """The run that a trial adds to: the named one, else the newest of the workload if it still holds.

    A run of another version of the file, or of another environment, is left alone and a new one made.
    """
    if folder is not None:
        return _named_run(folder, workload)
    if workload is None:
        newest = newest_run(options.root).info()
        if newest.mode == "trace":
            raise UsageError(
                f"the newest run is of the trace {newest.workload}: there is no step to try",
                hint="name a workload: cgate pilot workload.py",
            )
        workload = Path(newest.workload)
    require_module(workload)
    try:
        run = newest_run(options.root, workload=str(workload))
    except EvidenceError:
        return create_run(str(workload), "module", options.device, root=options.root)
    why = _why_not_add(run, options)
    if why:
        options.warn(f"starting a new run: {why}")
        return create_run(str(workload), "module", options.device, root=options.root)
    return run


def _named_run(folder: Path, workload: Path | None) -> Run:
    """The run that the user named. Raises UsageError where a trial would not belong to what it holds."""
    run = open_run(folder)
    own = run.info().workload
    if workload is not None and workload.resolve() != Path(own).resolve():
        raise UsageError(f"{run.name} is a run of {own}, not of {workload}", hint="leave out one of the two")
    changed = stale_fields(run)
    if changed:
        raise UsageError(
            f"since {run.name} was recorded, {', '.join(changed)} changed: a trial of now can't be added",
            hint="start a new run with cgate run",
        )
    return run


def _why_not_add(run: Run, options: Options) -> str:
    """Why a trial must not be added to ``run``; empty where it may."""
    if run.fingerprint() is None:
        return f"{run.name} has no fingerprint, so what changed since is unknown"
    changed = list(stale_fields(run))
    if run.info().device != options.device:
        changed.append("--device")
    return f"since {run.name}, {', '.join(changed)} changed" if changed else ""
