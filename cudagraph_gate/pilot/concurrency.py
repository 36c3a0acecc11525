"""Rung 5: requests from several host threads at a time, each with a stream and an instance of its own.

Every thread sends its next request when the last one is answered (closed loop). Graphs are captured in the
main thread before any other starts; threads only replay.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import structs

from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness, measure
from cudagraph_gate.pilot.comparing import Trajectory
from cudagraph_gate.pilot.correctness import Expectation, beginning, follow
from cudagraph_gate.pilot.crew import Crew, Failure
from cudagraph_gate.pilot.findings import blamed, failures_found
from cudagraph_gate.pilot.instance_set import (
    INSTANCES,
    Arrangement,
    Instance,
    InstanceSet,
    prepare,
    replay,
    step,
)
from cudagraph_gate.pilot.instances import arrangement_finding, timed_inputs
from cudagraph_gate.pilot.jobs import RungJob
from cudagraph_gate.pilot.session import Inputs, Loaded
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import ConcurrentRun, Finding, PathName, Phase
from cudagraph_gate.workload.calls import error_text

THREADS: Final = INSTANCES
"""One for each instance: what a server with a few workers does."""
BLOCKS_PER_PATH: Final = 10
"""Five in each half of the normal path, which give the noise floor; 10 blocks of 4 threads with 5 requests
each are 200 samples, enough for a P95."""
CHECKED_REQUESTS: Final = 2
"""Requests of each thread and block whose outputs are compared, after the timed ones: a race shows in some
of the blocks, and large outputs take long to compare."""
PATHS: Final[tuple[PathName, PathName]] = ("normal", "graph")
_ENQUEUE: Final = {"normal": step, "graph": replay}


def try_concurrency(loaded: Loaded, log: TrialLog, job: RungJob) -> None:
    """Try concurrent requests and log each block. Raises WorkloadError where the workload itself fails."""
    log.begin(Phase.CONCURRENCY)
    with failures_found(log, loaded.workload.folder):
        made = prepare(loaded, job, log.announce)
        if made.note or made.checked.wrong:
            log.append(_arranged(made, log))
        if not made.checked.wrong and made.arrangement is not Arrangement.TURNS:
            _run_blocks(loaded, made, log, job.seed)
        made.release()
        made.instances[0].session.teardown()


def _arranged(made: InstanceSet, log: TrialLog) -> Finding:
    """The finding of the arrangement; it blocks where requests can't run at the same time."""
    finding = arrangement_finding(made, log)
    if made.checked.wrong:
        wrong = f"replays of several instances are wrong: {made.checked.detail}"
        return structs.replace(finding, code=Reason.REPLAY_RACE, message=wrong, blocks=True)
    if made.arrangement is Arrangement.TURNS:
        return structs.replace(finding, message=f"one request at a time: {made.note}", blocks=True)
    return finding


def _run_blocks(loaded: Loaded, made: InstanceSet, log: TrialLog, seed: int) -> None:
    """Blocks of both paths in random order; the first one in which a thread fails is the last."""
    for path, run, error in blocks(made, seed):
        log.append(run)
        if error is not None:
            finding = blamed(error, log, loaded.workload.folder)
            # A normal path that no thread but the first can use says nothing about the graph.
            log.append(structs.replace(finding, blocks=path == "graph"))
            return
        log.announce(f"concurrency, block {run.order} of {2 * BLOCKS_PER_PATH}")


def blocks(made: InstanceSet, seed: int) -> Iterator[tuple[PathName, ConcurrentRun, Failure | None]]:
    """Each block with what failed first in it."""
    counts = {path: _requests(made, path) for path in PATHS}
    chance = random.Random(seed)
    orders = itertools.count()
    for _ in range(BLOCKS_PER_PATH):
        for path in chance.sample(PATHS, len(PATHS)):
            run, error = _block(made, path, next(orders), counts[path])
            yield path, run, error


def _requests(made: InstanceSet, path: PathName) -> int:
    """Requests of each thread in a block."""
    instance = made.instances[0]
    session, inputs = instance.session, timed_inputs(instance)
    session.device.synchronize()

    def request(values: Inputs) -> None:
        _ENQUEUE[path](instance, values)
        session.adapter.synchronize()

    with session.blaming_user(), session.adapter.on_stream(instance.stream):
        return measure.requests_for(session.device, request, inputs, measure.BLOCK_NS)


def _block(made: InstanceSet, path: PathName, order: int, count: int) -> tuple[ConcurrentRun, Failure | None]:
    session = made.instances[0].session
    crew = Crew(session.device, len(made.instances))
    servers = [
        _Server(crew, number, path, instance, count, timed_inputs(instance))
        for number, instance in enumerate(made.instances)
    ]
    session.device.synchronize()  # also sets the clock at which simulated threads begin
    error = crew.run([server.serve for server in servers])
    served = [server for server in servers if server.latencies_ns]
    run = ConcurrentRun(
        shape=session.shape_name,
        path=path,
        order=order,
        threads=len(servers),
        latencies_ns=tuple(latency for server in served for latency in server.latencies_ns),
        elapsed_ns=_elapsed(served),
        process_cpu_ns=crew.cpu_ns,
        wrong=0 if error is not None else sum(server.wrong() for server in servers),
        failure="" if error is None else error_text(error),
    )
    return run, error


def _elapsed(served: Sequence[_Server]) -> int:
    """From the first start to the last end."""
    starts, ends = [server.start_ns for server in served], [server.end_ns for server in served]
    return max(ends) - min(starts) if served else 0


@dataclass
class _Server:
    """One thread's part of a block."""

    crew: Crew
    number: int
    path: PathName
    instance: Instance
    count: int
    inputs: Sequence[Inputs]
    latencies_ns: list[int] = field(default_factory=list)
    start_ns: int = 0
    end_ns: int = 0
    actual: Trajectory | None = None

    def serve(self) -> None:
        """Warm up, serve timed requests beside the other threads, then some whose outputs are kept."""
        adapter = self.instance.session.adapter
        with adapter.on_stream(self.instance.stream):
            self._enqueue(self.inputs[0])
            adapter.synchronize()
            self.crew.begin()
            self._time()
            self.actual = follow(
                self.instance.session,
                self._enqueue,
                self._expected().start,
                before_each=lambda _request: self.crew.pace(),
                after_each=lambda _given, _passed, _returned: self.crew.pace(),
            )

    def wrong(self) -> int:
        """Of the checked requests, those that differ from the normal path run alone."""
        if self.actual is None:
            return 0
        found = correctness.compare_paths(self.instance.session, self._expected(), self.actual)
        return len({comparison.request for comparison in found if not comparison.equal})

    def _time(self) -> None:
        device, synchronize = self.instance.session.device, self.instance.session.adapter.synchronize
        clock, enqueue, inputs = device.clock_ns, self._enqueue, self.inputs
        cpu_ns = device.cpu_time_ns()
        self.start_ns = clock()
        for number in range(self.count):
            self.crew.take_turn(self.number)
            start = clock()
            enqueue(inputs[number % len(inputs)])
            synchronize()
            self.end_ns = clock()
            self.latencies_ns.append(self.end_ns - start)
        self.crew.end(self.number, device.cpu_time_ns() - cpu_ns)

    def _enqueue(self, inputs: Inputs) -> Any:
        return _ENQUEUE[self.path](self.instance, inputs)

    def _expected(self) -> Expectation:
        return beginning(self.instance.expected, CHECKED_REQUESTS)
