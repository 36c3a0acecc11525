"""The drill: graphs are turned off in the middle of traffic, and the normal path must be what it was.

Closed loop: each thread sends its next request when the last one is answered. All requests ask the cache
first, as in an application; before the graphs are made it is off too. Whole trajectories are served, so that
each output, and the state where there is any, is compared. The workload's ``between`` is called where
requests come one by one. Times before and after are compared, so there one thread is served after the
other: what one waits for another's use of the interpreter would tell nothing of the normal path.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from cudagraph_gate.device import Device
from cudagraph_gate.model import NotMeasured, Reason
from cudagraph_gate.pilot import correctness, measure
from cudagraph_gate.pilot.comparing import Trajectory
from cudagraph_gate.pilot.correctness import Expectation
from cudagraph_gate.pilot.crew import Crew, Failure, attach
from cudagraph_gate.pilot.describing import described
from cudagraph_gate.pilot.graph_path import GraphPath
from cudagraph_gate.pilot.memory import MemoryReading
from cudagraph_gate.pilot.scenarios.builds import Apart, Model, apart, with_further_builds
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene, broke, held, undecided
from cudagraph_gate.pilot.scenarios.threads import first_complaint
from cudagraph_gate.pilot.scenarios.turned_off import CachedGraphs, Graphs, OwnGraphs
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.records import Comparison, DrillRun
from cudagraph_gate.workload.calls import error_text

THREADS: Final = 2
"""Where requests may overlap: one may be answered while the other is in flight."""
BLOCKS: Final = 16
"""Of the normal path, before and after: eight in each half of those before, which give the noise."""
GRAPH_BLOCKS: Final = 4
BLOCK_NS: Final = 4 * measure.BLOCK_NS
"""Of each thread: a block's time includes what is done to check the outputs."""
MEETING_LIMIT_S: Final = 60.0
"""Threads that have not met by then never will."""

Stretch = Literal["before", "graph", "switch", "after"]
TIMED: Final = ("before", "after")
"""Stretches whose latencies are compared."""


def drill(scene: Scene) -> Outcome:
    """Traffic before, with graphs, while they are turned off, and after; each block is logged."""
    return with_further_builds(scene, _drill)


def _drill(scene: Scene) -> Outcome:
    if scene.job.method == "own":
        alone = Apart((Model.of(scene),), overlap=False, why="a path of the workload's own may have one user")
        return run_drill(scene, alone, OwnGraphs(scene))
    found = apart(scene)
    if found.overlap and (why := first_complaint(scene, THREADS)):
        found = Apart((Model.of(scene),), overlap=False, why=why)
    return run_drill(scene, found, CachedGraphs(scene, found.models[:THREADS]))


def run_drill(scene: Scene, found: Apart, graphs: Graphs) -> Outcome:
    """The drill with ``graphs``. Raises what a thread raised, once its block is logged."""
    traffic = _Traffic(scene, found.models[:THREADS], graphs)
    try:
        traffic.run()
    finally:
        graphs.give_up()
    return _outcome(traffic.runs, found)


def _outcome(runs: Sequence[DrillRun], found: Apart) -> Outcome:
    """In a sentence; gate 7 judges the log itself."""
    sent, answered = sum(run.sent for run in runs), sum(run.answered for run in runs)
    if sent != answered:
        return broke(Reason.WRONG_OUTPUT, f"{sent - answered} of {sent} requests were never answered")
    wrong = next((run for run in runs if run.wrong), None)
    if wrong is not None:
        seen = f"{wrong.wrong} of {wrong.answered} requests are wrong ({wrong.stretch}): {wrong.detail}"
        return broke(Reason.WRONG_OUTPUT, seen)
    in_flight = sum(run.in_flight for run in runs)
    if not in_flight:
        return undecided(Reason.UNMEASURABLE, "no request was in flight while graphs were turned off")
    threads = f"{runs[0].threads} threads" if found.overlap else f"one thread ({found.why})"
    return held(f"{sent} requests of {threads} answered, {in_flight} in flight while graphs were turned off")


# --- traffic --------------------------------------------------------------------------------------


@dataclass
class _Traffic:
    """All blocks of the drill."""

    scene: Scene
    models: Sequence[Model]
    graphs: Graphs
    runs: list[DrillRun] = field(default_factory=list)
    _streams: list[Any] = field(init=False)
    """Each server keeps its own, as one in an application does: libraries keep workspaces for each."""

    def __post_init__(self) -> None:
        self._streams = [model.session.adapter.new_stream() for model in self.models]

    def run(self) -> None:
        """Log every block. Raises what a thread raised."""
        passes = _passes(self.models[0])
        self._stretch("before", BLOCKS, passes)
        self.scene.announce("graphs are made")
        self.graphs.make()
        self._stretch("graph", GRAPH_BLOCKS, passes)
        self._stretch("switch", 1, passes)
        self._stretch("after", BLOCKS, passes)

    def _stretch(self, stretch: Stretch, blocks: int, passes: int) -> None:
        for number in range(blocks):
            self.scene.announce(f"{stretch}, block {number + 1} of {blocks}")
            error = self._block(stretch, passes, settled=number == blocks - 1)
            if error is not None:
                raise error

    def _block(self, stretch: Stretch, passes: int, *, settled: bool) -> Failure | None:
        meeting = Meeting(self.graphs, len(self.models)) if stretch == "switch" else None
        session = self.models[0].session
        crew = Crew(session.device, len(self.models), one_at_a_time=stretch in TIMED)
        servers = [
            _Server(crew, number, model, self.graphs, self._streams[number], passes, meeting)
            for number, model in enumerate(self.models)
        ]
        session.device.synchronize()
        error = _run(crew, servers) if meeting is None else meeting.during(crew, servers)
        wrong = [] if error is not None else [each for server in servers for each in server.wrong()]
        memory = self.scene.memory() if settled and error is None else None
        self._log(stretch, servers, wrong, error, memory)
        return error

    def _log(
        self,
        stretch: Stretch,
        servers: Sequence[_Server],
        wrong: Sequence[str],
        error: Failure | None,
        memory: MemoryReading | None,
    ) -> None:
        absent = NotMeasured(reason="read at the end of a stretch")
        run = DrillRun(
            shape=self.scene.job.shape,
            method=self.scene.job.method,
            stretch=stretch,
            order=len(self.runs),
            threads=len(servers),
            latencies_ns=tuple(latency for server in servers for latency in server.latencies_ns),
            sent=sum(server.sent for server in servers),
            answered=sum(server.answered for server in servers),
            wrong=len(wrong),
            detail=next(iter(wrong), ""),
            graph_served=sum(server.graph_served for server in servers),
            in_flight=sum(server.in_flight for server in servers),
            failure="" if error is None else error_text(error),
            device_used_bytes=absent if memory is None else memory.device_used_bytes,
            allocator_bytes=absent if memory is None else memory.allocator_bytes,
            occupied_bytes=absent if memory is None else memory.occupied_bytes,
        )
        self.runs.append(run)
        self.scene.log.append(run)


def _passes(model: Model) -> int:
    """Trajectories of each thread in a block, what is done to check their outputs included in its length."""
    session, start = model.session, model.expected.start
    device, wall, began = session.device, time.perf_counter_ns(), session.device.clock_ns()
    with session.blaming_user():
        correctness.follow(session, lambda passed: session.step(*passed), start, alone=True)
    passes = BLOCK_NS // max(1, device.clock_ns() - began)
    if device.simulated:
        passes = min(passes, measure.SIMULATED_WALL_NS // (time.perf_counter_ns() - wall))
    _fewest, most = measure.BLOCK_REQUESTS
    return max(1, min(passes, most // len(start.requests)))


def _run(crew: Crew, servers: Sequence[_Server]) -> Failure | None:
    """One server works in this thread: its graphs, and frameworks' own paths, may belong to it."""
    if len(servers) > 1:
        return crew.run([server.serve for server in servers])
    try:
        servers[0].serve()
    except (Exception, SystemExit) as error:  # noqa: BLE001  (the block is logged before it is raised)
        return error
    return None


class Meeting:
    """Where all servers have a request in flight, and graphs are turned off before any is answered."""

    def __init__(self, graphs: Graphs, servers: int) -> None:
        self._graphs = graphs
        self._barrier = threading.Barrier(servers + 1)
        self._turned_off = threading.Event()
        self._error: Failure | None = None

    def during(self, crew: Crew, servers: Sequence[_Server]) -> Failure | None:
        """Run the servers, and turn graphs off from another thread when they meet."""
        operator = threading.Thread(
            target=self._operate, args=(servers[0].model.session.device,), daemon=True
        )
        operator.start()
        error = _run(crew, servers)
        self._barrier.abort()  # a server that failed never came
        operator.join()
        return error or self._error

    def _operate(self, device: Device) -> None:
        try:
            attach(device)
            self._barrier.wait(MEETING_LIMIT_S)
            self._graphs.turn_off()
        except threading.BrokenBarrierError:
            return
        except (Exception, SystemExit) as error:  # noqa: BLE001  (the main thread judges it)
            self._error = error
        finally:
            self._turned_off.set()

    def wait(self) -> None:
        """Called by each server with a request in flight; returns when graphs are turned off."""
        self._barrier.wait(MEETING_LIMIT_S)
        if not self._turned_off.wait(MEETING_LIMIT_S):
            raise RuntimeError(f"graphs were not turned off within {MEETING_LIMIT_S:g} s")


@dataclass
class _Server:
    """One thread's part of a block."""

    crew: Crew
    number: int
    model: Model
    graphs: Graphs
    stream: Any
    passes: int
    meeting: Meeting | None
    latencies_ns: list[int] = field(default_factory=list)
    sent: int = 0
    answered: int = 0
    graph_served: int = 0
    in_flight: int = 0
    _answers: list[Trajectory] = field(default_factory=list)

    def serve(self) -> None:
        """Warm this thread up, then serve whole trajectories beside the others."""
        adapter = self.model.session.adapter
        with adapter.on_stream(self.stream):
            self._warm_up()
            self.crew.begin()
            for _ in range(self.passes):
                self._answers.append(
                    correctness.follow(
                        self.model.session,
                        self._request,
                        self.model.expected.start,
                        before_each=self._before,
                        alone=True,
                    )
                )
            self.crew.leave(self.number)

    def wrong(self) -> list[str]:
        """What is wrong with each request that is."""
        session, expected = self.model.session, self.model.expected
        # The digests of all state are left out: reading it would take longer than all requests.
        bare = replace(expected, normal=replace(expected.normal, final_state={}))
        found = [each for actual in self._answers for each in _unequal(session, bare, actual)]
        return [described(each) for each in found]

    def _warm_up(self) -> None:
        adapter = self.model.session.adapter
        passed = tuple(map(adapter.static_like, self.model.expected.start.requests[0]))
        with self.graphs.lease(self.number) as path:
            (self.model.session.step if path is None else _called(path))(*passed)
            adapter.synchronize()

    def _before(self, request: int) -> None:
        if request:
            self.model.session.between(request - 1)
        if self.meeting is None:  # who has the turn must not wait for the others in the middle of a request
            self.crew.take_turn(self.number)

    def _request(self, passed: Inputs) -> Any:
        session = self.model.session
        clock, adapter = session.device.clock_ns, session.adapter
        adapter.synchronize()  # with the copies of the inputs, which are not part of it
        self.sent += 1
        start = clock()
        with self.graphs.lease(self.number) as path:
            outputs = session.step(*passed) if path is None else path.replay(passed)
            self._meet(by_graph=path is not None)
            adapter.synchronize()
            self.latencies_ns.append(clock() - start)
            self.answered += 1
            if path is None:
                return outputs
            self.graph_served += 1
            outputs = correctness.copied(adapter, outputs)
            adapter.synchronize()
            return outputs

    def _meet(self, *, by_graph: bool) -> None:
        """In the middle of the block, with a request that was just sent to the device."""
        middle = self.passes * len(self.model.expected.start.requests) // 2 + 1
        if self.meeting is not None and self.sent == middle:
            self.meeting.wait()
            self.in_flight += by_graph


def _called(path: GraphPath) -> Callable[..., Any]:
    return lambda *inputs: path.replay(inputs)


def _unequal(session: Session, expected: Expectation, actual: Trajectory) -> list[Comparison]:
    """The first difference of each request that has one."""
    found = {
        each.request: each for each in correctness.compare_paths(session, expected, actual) if not each.equal
    }
    return list(found.values())
