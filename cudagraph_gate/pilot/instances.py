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

ROUND_BLOCKS: Final = 10
"""Blocks of each path: enough medians for an interval, and five in each half of the normal path's for the
noise floor."""
TIMED_SETS: Final = 2
"""Inputs that each instance takes in turn while it is timed: own ones, since a step may change them."""

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
                normal_ns=median_ns(normal),
                graph_ns=median_ns(graph),
                normal_blocks_ns=block_medians_ns(normal),
                graph_blocks_ns=block_medians_ns(graph),
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


def _timed(made: InstanceSet, log: TrialLog, seed: int) -> tuple[Rounds | NotMeasured, Rounds | NotMeasured]:
    """Blocks of rounds of both paths, or why there are none."""
    if made.checked.wrong:
        wrong = NotMeasured(reason="wrong outputs are not worth timing")
        return wrong, wrong
    return _round_blocks(made, log, seed)


def median_ns(blocks: Rounds | NotMeasured) -> Measured:
    """Median round of all blocks, in ns."""
    if isinstance(blocks, NotMeasured):
        return blocks
    return round(statistics.median(each for block in blocks for each in block))


def block_medians_ns(blocks: Rounds | NotMeasured) -> tuple[int, ...] | NotMeasured:
    """Median round of each block, in ns: rounds of one block share the machine's state and count as one."""
    if isinstance(blocks, NotMeasured):
        return blocks
    return tuple(round(statistics.median(block)) for block in blocks)


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
