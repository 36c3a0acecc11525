"""A scenario's worker: build, note the baseline, inject the fault, prove what is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from cudagraph_gate.errors import DeviceError, WorkloadError
from cudagraph_gate.evidence import Run
from cudagraph_gate.model import SCENARIO_BY_NAME, Scenario
from cudagraph_gate.pilot.blame import blame
from cudagraph_gate.pilot.garbage import freeze_imports
from cudagraph_gate.pilot.jobs import ScenarioJob
from cudagraph_gate.pilot.scenarios import (
    beside,
    cancelled,
    capturing,
    churn,
    context_rebuild,
    device_loss,
    drill,
    out_of_memory,
    parameters,
    switching,
    threads,
)
from cudagraph_gate.pilot.scenarios.proofs import Baseline, proofs
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene, broke, does_not_apply
from cudagraph_gate.pilot.session import load
from cudagraph_gate.pilot.trial_log import AnswerSink, TrialLog
from cudagraph_gate.records import Phase, ScenarioEnded, ScenarioStarted

Attack = Callable[[Scene], Outcome]
"""Injects the fault and says what came of it. What it raises speaks against the graph."""

ATTACKS: Final[Mapping[str, Attack]] = {
    "capture-failure": capturing.prohibited_call,
    "user-exception": capturing.user_exception,
    "sync-inside": capturing.synchronised_inside,
    "unjoined-stream": capturing.unjoined_stream,
    "noisy-neighbour": capturing.noisy_neighbour,
    "wrong-inputs": parameters.wrong_inputs,
    "topology-change": parameters.topology_change,
    "oom-at-capture": out_of_memory.at_capture,
    "oom-at-instantiate": out_of_memory.at_instantiate,
    "oom-at-instance": out_of_memory.at_instance,
    "device-fault": device_loss.device_fault,
    "context-rebuild": context_rebuild.context_rebuild,
    "hang": device_loss.hang,
    "cancelled-request": cancelled.cancelled,
    "model-switch": switching.model_switch,
    "version-upgrade": switching.version_upgrade,
    "eviction-under-load": threads.eviction_under_load,
    "allocator-churn": churn.allocator_churn,
    "shared-executable": threads.shared_executable,
    "instances-with-canaries": beside.instances_with_canaries,
    "drill": drill.drill,
}
"""What injects each scenario's fault."""
_LOST: Final[list[object]] = []
"""What belongs to a lost device is kept until its process is gone: destructors of frameworks may abort."""


def try_scenario(job: ScenarioJob, report: AnswerSink) -> None:
    """Run one scenario and log it. Raises WorkloadError where the workload fails before the fault."""
    start_ns = time.monotonic_ns()
    report.progress(f"{job.scenario}: loading the workload", Phase.SCENARIO)
    spec = SCENARIO_BY_NAME[job.scenario]
    loaded = load(job.workload, job.device, job.shapes)
    freeze_imports()
    log = TrialLog(Run(Path(job.folder)), job.shape, report, method=job.method)
    log.phase = Phase.SCENARIO
    if job.method == "own" and not spec.own_path:
        why = "the graph path is the workload's own: how it is made and kept is its own affair"
        log.append(_ended(job, does_not_apply(why), start_ns))
        return
    scene = Scene.set(loaded, log, job)
    scene.announce("the normal path")
    try:
        _ = scene.expected
        before = Baseline.of(scene)
    except WorkloadError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  (without a graph there is nothing to attack)
        log.append(_ended(job, _raised(scene, error), start_ns))
        return
    log.append(ScenarioStarted(scenario=job.scenario, part=job.part, shape=job.shape, method=job.method))
    scene.announce(spec.injected)
    outcome = _outcome(scene, spec)
    if job.part in spec.lost_parts:
        _LOST.append((scene, before))
    else:
        for proof in proofs(scene, before, lambda: _repeated(scene, spec)):
            log.append(proof)
    log.append(_ended(job, outcome, start_ns))
    before.end()


def _outcome(scene: Scene, spec: Scenario) -> Outcome:
    """What the attack says, or what it raised."""
    try:
        return ATTACKS[spec.name](scene)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (nothing that a fault leads to may end the proofs)
        return _raised(scene, error)


def _repeated(scene: Scene, spec: Scenario) -> None:
    """The attack once more, of which nothing is logged."""
    scene.announce(f"{spec.injected}, once more")
    log, scene.log = scene.log, scene.log.muted()
    try:
        ATTACKS[spec.name](scene)
    finally:
        scene.log = log


def _raised(scene: Scene, error: Exception | SystemExit) -> Outcome:
    """The outcome for what was raised; what is nobody's but ours is raised again."""
    found = blame(error, scene.job.shape, Phase.SCENARIO, scene.loaded.workload.folder)
    if not (found.where or isinstance(error, DeviceError | RuntimeError | MemoryError)):
        raise error
    return broke(found.code, found.message, call=found.call, where=found.where, advice=found.advice)


def _ended(job: ScenarioJob, outcome: Outcome, start_ns: int) -> ScenarioEnded:
    return ScenarioEnded(
        scenario=job.scenario,
        part=job.part,
        shape=job.shape,
        method=job.method,
        status=outcome.status,
        applies=outcome.applies,
        seen=outcome.seen,
        code=outcome.code,
        call=outcome.call,
        where=outcome.where,
        advice=outcome.advice,
        elapsed_ns=time.monotonic_ns() - start_ns,
    )
