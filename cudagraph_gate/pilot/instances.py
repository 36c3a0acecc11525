"""Rung 4: several graphs of one shape in one process, replayed together on streams of their own."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from itertools import count
from typing import Final

from cudagraph_gate.model import Measured, NotMeasured, Reason
from cudagraph_gate.pilot import measure
from cudagraph_gate.pilot.findings import failures_found
from cudagraph_gate.pilot.instance_set import (
    Arrangement,
    Enqueue,
    Instance,
    InstanceSet,
    prepare,
    replay,
    step,
    submit,
)
from cudagraph_gate.pilot.jobs import RungJob
from cudagraph_gate.pilot.session import Inputs, Loaded
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import Finding, InstanceRun, Phase
from cudagraph_gate.stats import noise_floor

ROUND_BLOCKS: Final = 10
"""Blocks of each path: their medians show whether the machine was steady."""
TIMED_SETS: Final = 2
"""Inputs that each instance takes in turn while it is timed: own ones, since a step may change them."""
STEADY_SHARE: Final = 0.05
"""Where normal against normal strays further than the smallest gain that counts, or than half of what was
gained, two medians say nothing."""

Rounds = Sequence[tuple[int, ...]]


def try_instances(loaded: Loaded, log: TrialLog, job: RungJob) -> None:
    """Try several instances and log one run. Raises WorkloadError where the workload itself fails."""
    log.begin(Phase.INSTANCES)
    with failures_found(log, loaded.workload.folder):
        made = prepare(loaded, job, log.announce)
        if made.note:
            log.append(arrangement_finding(made, log))
        normal, graph = _timed(made, log, job.seed)
        log.append(
            InstanceRun(
                shape=log.shape,
                count=len(made.instances),
                requests=made.checked.requests,
                wrong=made.checked.wrong,
                detail=made.checked.detail,
                bytes_per_instance=made.bytes_per_instance,
                normal_ns=normal,
                graph_ns=graph,
            )
        )
        made.release()
        made.instances[0].session.teardown()


def arrangement_finding(made: InstanceSet, log: TrialLog) -> Finding:
    """How the instances had to be arranged, and why; it decides nothing."""
    code, advice = {
        Arrangement.SHARED: (Reason.REPLAY_RACE, "let the step allocate what it writes, or use one instance"),
        Arrangement.OWN: (Reason.REPLAY_RACE, "call build once for each instance, as was done here"),
        Arrangement.TURNS: (Reason.STATE_MUTATION, "serve one request at a time, or give each its own state"),
    }[made.arrangement]
    return Finding(
        shape=log.shape, phase=log.phase, code=code, message=made.note, advice=advice, blocks=False
    )


# --- timing ---------------------------------------------------------------------------------------


def _timed(made: InstanceSet, log: TrialLog, seed: int) -> tuple[Measured, Measured]:
    """Median round of both paths in ns, or why there is none."""
    if made.checked.wrong:
        wrong = NotMeasured(reason="wrong outputs are not worth timing")
        return wrong, wrong
    normal, graph = _round_blocks(made, log, seed)
    if why := too_noisy(normal, graph):
        return NotMeasured(reason=why), NotMeasured(reason=why)
    return _median(normal), _median(graph)


def too_noisy(normal: Rounds, graph: Rounds) -> str:
    """Why the medians of these blocks, each path's in the order of their measurement, can't be compared."""
    if not all(_median(blocks) for blocks in (normal[0::2], normal[1::2])):
        return "rounds of the normal path take no time: the clock is too coarse"
    noise = noise_floor(normal[0::2], normal[1::2], 0.5, seed=0).upper
    gap = abs(1 - _median(graph) / _median(normal))
    if noise <= max(STEADY_SHARE, gap / 2):
        return ""
    return f"rounds of the normal path differ by up to {100 * noise:.1f} % from each other"


def _median(blocks: Rounds) -> int:
    return round(statistics.median(each for block in blocks for each in block))


def _round_blocks(made: InstanceSet, log: TrialLog, seed: int) -> tuple[Rounds, Rounds]:
    """Blocks of rounds of both paths, which of the two comes first is random."""
    session = made.instances[0].session
    paths = [_rounds(made, step), _rounds(made, replay)]
    blocks: tuple[list[tuple[int, ...]], list[tuple[int, ...]]] = ([], [])
    chance = random.Random(seed)
    with session.blaming_user():
        counts = [measure.requests_for(session.device, path, [()], measure.BLOCK_NS) for path in paths]
        for block in range(ROUND_BLOCKS):
            log.announce(f"rounds of all instances, block {block} of {ROUND_BLOCKS}")
            for which in chance.sample((0, 1), 2):
                measure.timed(session.device, paths[which], [()], 1)
                sample = measure.timed(session.device, paths[which], [()], counts[which])
                blocks[which].append(sample.latencies_ns)
    return blocks


def _rounds(made: InstanceSet, enqueue: Enqueue) -> measure.Request:
    """One request on each instance's stream, then wait for all; in turns, wait after each."""
    own_inputs = [timed_inputs(instance) for instance in made.instances]
    made.instances[0].session.device.synchronize()
    number = count()
    groups = [[index] for index in range(len(made.instances))]
    if made.arrangement is not Arrangement.TURNS:
        groups = [[index for group in groups for index in group]]

    def request(_inputs: Inputs) -> None:
        which = next(number) % TIMED_SETS
        for group in groups:
            members = [made.instances[index] for index in group]
            submit(members, [own_inputs[index][which] for index in group], enqueue)

    return request


def timed_inputs(instance: Instance) -> list[Inputs]:
    """Copies of the instance's first inputs, for timing alone."""
    adapter, requests = instance.session.adapter, instance.expected.start.requests
    return [
        tuple(adapter.static_like(value) for value in requests[number % len(requests)])
        for number in range(TIMED_SETS)
    ]
