"""Rung 6: the request mix at its arrival times, both paths under the same load.

Open-loop: a request is due at its time whatever happened before. One host thread serves them in order of
arrival; who finds it busy waits, and that wait is part of the latency.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cudagraph_gate.device import Device
from cudagraph_gate.errors import CgateError
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.arrivals import Arrivals, arrivals, has_rate
from cudagraph_gate.pilot.between import Between, Pause
from cudagraph_gate.pilot.comparing import compare_repeats
from cudagraph_gate.pilot.findings import failures_found
from cudagraph_gate.pilot.graph_path import WARM_UP_REQUESTS, GraphPath
from cudagraph_gate.pilot.jobs import RungJob
from cudagraph_gate.pilot.measure import Request, graph_request, normal_request, timed
from cudagraph_gate.pilot.own_path import PATH_MAKERS, PathMaker
from cudagraph_gate.pilot.session import Inputs, Loaded, Session, opened
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import Finding, PathName, Phase, TrafficRun
from cudagraph_gate.workload import call_user
from cudagraph_gate.workload.shapes import Mix, mix_of

LEVELS: Final = (0.3, 0.6, 0.8, 0.95, 1.1)
"""Offered load, 1 is what the normal path can just serve: light, usual, busy, almost and beyond it."""
RUNS_PER_PATH: Final = 2
"""Of each level: how far two runs of one path differ is the noise that a gain must exceed."""
FEWEST_REQUESTS: Final = 100
"""Of a run, where its time allows: a P99 needs as many."""
MOST_REQUESTS: Final = 1_000
RUN_NS: Final = 200_000_000
"""Length of a run that needs no longer one for its fewest requests."""
LONGEST_RUN_NS: Final = 1_500_000_000
"""Slow requests get fewer of them: 20 runs stay within half a minute."""
LONGEST_DECLARED_NS: Final = 5_000_000_000
"""At the recorded rate itself, which may be a few requests a second."""
GIVE_UP_NS: Final = 10_000_000_000
"""A path that is so far behind is saturated: the rest of its requests would show no more."""
SERVICE_REQUESTS: Final = 20
"""Timed one by one before, for the service time of each shape."""
KEPT_INPUT_SETS: Final = 4
"""Of each shape: all shapes of the mix are in memory together."""
PATHS: Final[tuple[PathName, ...]] = ("normal", "graph")


def try_traffic(loaded: Loaded, log: TrialLog, job: RungJob, make_path: PathMaker | None = None) -> None:
    """Serve the mix by both paths at each load level and log every run.

    Shapes are built and their graphs made one after the other, the smallest first, as an application meets
    them: what a later shape replaces under an earlier graph is seen. ``make_path`` takes the place of the
    usual way to a graph path.

    Shapes of the mix that are not in ``job.captured`` take the normal path in both. Failures become
    findings; WorkloadError is raised where the workload itself fails, and what :func:`mix_of` raises.
    """
    log.begin(Phase.TRAFFIC)
    mix = mix_of(loaded.workload, job.shapes)
    if mix is None or not set(mix.weights) & set(job.captured):
        log.append(_nothing_to_try(log, mix))
        return
    with failures_found(log, loaded.workload.folder):
        # The whole mix counts, whatever part of it --shapes chose for the trial.
        known = replace(loaded, shapes={name: loaded.workload.shapes[name] for name in mix.weights})
        servers: list[Server] = []
        try:
            for name in _smallest_first(known, job.seed):
                servers.append(Server.of(known, name, job.seed))
                if name in job.captured:
                    _make_path(servers[-1], make_path or PATH_MAKERS[job.method], log)
            servers.sort(key=lambda server: list(mix.weights).index(server.session.shape_name))
            if all(_outputs_agree(server, log) for server in servers if server.path is not None):
                for run in Traffic(loaded.device, servers, mix, job.seed).runs(log):
                    log.append(run)
        finally:
            for server in servers:
                server.close()
        servers[0].session.teardown()


def _nothing_to_try(log: TrialLog, mix: Mix | None) -> Finding:
    what = (
        "the workload declares no request mix"
        if mix is None
        else "no shape of the mix has a graph that holds"
    )
    return Finding(
        shape=log.shape, method=log.method, phase=Phase.TRAFFIC, code=Reason.NOT_TRIED, message=what
    )


# --- the server -----------------------------------------------------------------------------------


@dataclass
class Server:
    """One shape of the mix, ready to be served by the normal path, and by a graph if it has one."""

    session: Session
    input_sets: Sequence[Inputs]
    normal: Request
    path: GraphPath | None = None

    @classmethod
    def of(cls, loaded: Loaded, name: str, seed: int) -> Server:
        """Build the shape and warm its normal path up."""
        session = opened(loaded, name, seed)
        input_sets = session.input_sets(seed)[:KEPT_INPUT_SETS]
        input_sets = session.baked(input_sets, input_sets[0])
        normal = normal_request(session)
        with session.blaming_user():
            timed(session.device, normal, input_sets, WARM_UP_REQUESTS)
            Between(session).call()
        return cls(session, input_sets, normal)

    def request(self, path: PathName) -> Request:
        """What serves one request by ``path``, synchronised at its end."""
        if path == "normal" or self.path is None:
            return self.normal
        return graph_request(self.session, self.path)

    def close(self) -> None:
        """Give the graph up."""
        if self.path is not None:
            self.path.invalidate()


def _smallest_first(loaded: Loaded, seed: int) -> list[str]:
    """Names of the shapes by the bytes of their inputs: buffers that are shared then grow on the way."""

    def nbytes(name: str) -> int:
        made = call_user(
            loaded.workload.inputs,
            loaded.shapes[name],
            seed,
            workload=loaded.workload,
            what=f"inputs({name}, {seed})",
        )
        arrays = made if isinstance(made, tuple | list) else (made,)
        return sum(int(getattr(array, "nbytes", 0)) for array in arrays)

    return sorted(loaded.shapes, key=nbytes)


def _make_path(server: Server, make_path: PathMaker, log: TrialLog) -> None:
    log.announce(f"traffic, graph of shape {server.session.shape_name}")
    server.path = make_path(server.session, server.input_sets[0])
    timed(server.session.device, server.request("graph"), server.input_sets, WARM_UP_REQUESTS)
    Between(server.session).call()


def _outputs_agree(server: Server, log: TrialLog) -> bool:
    """Whether a graph gives the normal path's outputs now that those of all shapes live side by side.

    A normal path that does not repeat itself here is no yardstick: ``state()`` may name another's arrays.
    """
    session, path = server.session, server.path
    assert path is not None, "asked for only where there is a graph"
    expected = correctness.expect(session, server.input_sets)
    if not all(found.equal for found in compare_repeats(log.shape, expected.normal, expected.repeated)):
        return True
    held = [*session.state().values(), *expected.start.requests[0]]
    actual = correctness.follow(
        session, path.replay, expected.start, before_each=lambda _request: correctness.churn(session, held)
    )
    for found in correctness.compare_paths(session, expected, actual):
        if found.subject == "outputs" and not found.equal:
            log.append(
                Finding(
                    shape=log.shape,
                    method=log.method,
                    phase=Phase.TRAFFIC,
                    code=Reason.WRONG_OUTPUT,
                    message=f"beside the graphs of the other shapes, the one of {session.shape_name} gives "
                    f"other outputs than the normal path (request {found.request}, {found.detail})",
                    advice="let no two shapes share buffers that a graph keeps using",
                )
            )
            return False
    return True


def serve(
    device: Device, servers: Sequence[Server], path: PathName, due: Arrivals, pause: Pause | None = None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Serve the requests by one path; returns when each started and ended, from the start of the run.

    Both are shorter than ``due`` where the path was given up. The clock of the run, arrivals included, stands
    still during ``pause``, which comes after each request.
    """
    work = list(_work(servers, path, due))
    starts: list[int] = []
    ends: list[int] = []
    clock, wait_until = device.clock_ns, device.wait_until
    gc.collect()
    origin = clock()
    try:
        for (request, inputs), due_ns in zip(work, due.due_ns, strict=True):
            wait_until(origin + due_ns)
            starts.append(clock() - origin)
            request(inputs)
            ends.append(clock() - origin)
            if pause is not None:
                stopped = clock()
                pause()
                origin += clock() - stopped
            if ends[-1] > due_ns + GIVE_UP_NS:
                break
    except CgateError:
        raise
    except (Exception, SystemExit):
        failed = servers[due.requests[len(ends)]]
        with failed.session.blaming_user("normal" if failed.path is None else path):
            raise
    return tuple(starts), tuple(ends)


def _work(servers: Sequence[Server], path: PathName, due: Arrivals) -> Iterator[tuple[Request, Inputs]]:
    """What serves each request, and its inputs: those of its shape in turn."""
    requests = [server.request(path) for server in servers]
    served = [0] * len(servers)
    for index in due.requests:
        input_sets = servers[index].input_sets
        yield requests[index], input_sets[served[index] % len(input_sets)]
        served[index] += 1


# --- load levels ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The requests of one load level, the same for every run of it."""

    level: float
    due: Arrivals
    declared: bool = False


class Traffic:
    """The mix at several load levels."""

    def __init__(self, device: Device, servers: Sequence[Server], mix: Mix, seed: int) -> None:
        self._device = device
        self._servers = servers
        self._mix = mix
        self._seed = seed
        self._between = Between(servers[0].session)  # of the whole workload, whichever shape it counts for
        self._service_ns, self._wall_ns = self._service()

    def runs(self, log: TrialLog) -> Iterator[TrafficRun]:
        """Every run, as soon as it is over: rounds of all levels, levels and paths in random order."""
        chance, order = random.Random(self._seed), 0
        plans = self.plans()
        total = RUNS_PER_PATH * len(plans) * len(PATHS)
        self._between.call()  # says what one costs
        for _ in range(RUNS_PER_PATH):
            for plan in chance.sample(plans, len(plans)):
                # Both paths see the same calls. Evenly over the run where not each request can follow one.
                spread = self._between.spread(len(plan.due.requests), total - order)
                for path in chance.sample(PATHS, len(PATHS)):
                    log.announce(f"traffic, run {order + 1} of {total}")
                    yield self._run(plan, path, order, self._between.paused(spread))
                    order += 1

    def plans(self) -> list[Plan]:
        """The load levels, and the recorded rate itself if there is one."""
        plans = [self._at_level(level) for level in LEVELS]
        if has_rate(self._mix):
            gap_ns = arrivals(self._mix, len(self._mix.arrivals_ns), self._seed).mean_gap_ns
            due = arrivals(self._mix, self._count(gap_ns, LONGEST_DECLARED_NS), self._seed)
            plans.append(Plan(self._mean_service_ns(due) / due.mean_gap_ns, due, declared=True))
        return plans

    def _at_level(self, level: float) -> Plan:
        weights = self._mix.weights.values()
        mean_ns = sum(weight * ns for weight, ns in zip(weights, self._service_ns, strict=True))
        count = self._count(mean_ns / level, LONGEST_RUN_NS)
        due = arrivals(self._mix, count, self._seed)
        # Of these very requests, so that the level is exact however the draw fell.
        return Plan(level, due.at_mean_gap(self._mean_service_ns(due) / level))

    def _count(self, gap_ns: float, longest_ns: int) -> int:
        each_ns = max(gap_ns, self._wall_ns)
        wanted = min(MOST_REQUESTS, max(FEWEST_REQUESTS, RUN_NS // each_ns))
        return int(max(2, min(wanted, longest_ns // each_ns)))

    def _mean_service_ns(self, due: Arrivals) -> float:
        return statistics.fmean(self._service_ns[index] for index in due.requests)

    def _service(self) -> tuple[list[int], int]:
        """Median service time of the normal path by shape, and the slowest one's on the wall clock.

        On the simulated device the wall clock is the slower one.
        """
        medians, walls = [], []
        for server in self._servers:
            wall = time.perf_counter_ns()
            with server.session.blaming_user():
                sample = timed(self._device, server.normal, server.input_sets, SERVICE_REQUESTS)
            walls.append((time.perf_counter_ns() - wall) // SERVICE_REQUESTS)
            medians.append(max(1, round(statistics.median(sample.latencies_ns))))
        return medians, max(walls)

    def _run(self, plan: Plan, path: PathName, order: int, pause: Pause | None) -> TrafficRun:
        starts_ns, ends_ns = serve(self._device, self._servers, path, plan.due, pause)
        names = tuple(server.session.shape_name for server in self._servers)
        return TrafficRun(
            path=path,
            level=plan.level,
            order=order,
            declared=plan.declared,
            shapes=names,
            captured=tuple(s.session.shape_name for s in self._servers if s.path is not None),
            requests=plan.due.requests[: len(ends_ns)],
            arrivals_ns=plan.due.due_ns[: len(ends_ns)],
            starts_ns=starts_ns,
            ends_ns=ends_ns,
        )
