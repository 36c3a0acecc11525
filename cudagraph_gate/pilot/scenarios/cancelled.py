"""Requests that are given up by an exception: before the copy, between copy and launch, during the replay.

Nothing is waited for when one is given up, and the device is kept busy, so that the next request is enqueued
while the last one's replay has still to run. A replay that was launched runs to its end: what it does to the
state is undone before the next request, on the same stream, as the normal path's would have to be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cudagraph_gate.graphs import GraphCache, GraphedStep, GraphKey, State
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.comparing import difference
from cudagraph_gate.pilot.crew import Crew
from cudagraph_gate.pilot.graph_path import GraphPath
from cudagraph_gate.pilot.scenarios import kernels
from cudagraph_gate.pilot.scenarios.counting import counted_graph
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene, broke, held
from cudagraph_gate.pilot.session import Inputs
from cudagraph_gate.workload.calls import error_text

GIVEN_UP: Final = 3
"""Requests that are given up one after the other at each point: one alone may leave things as they were."""
BUSY_NS: Final = 2_000_000
"""How long the stream is kept busy before a replay: the host comes back and gives it up long before."""
LATE_S: Final = 0.05
"""Work that goes on after its stream was synchronised shows within so long."""


class GivenUpError(BaseException):
    """What ends a request from outside; like a cancelled task's, no ``except Exception`` catches it."""


GiveUp = Callable[[Any, Inputs], None]
"""Begins a request on a path and is interrupted: raises GivenUpError."""


@dataclass
class Interrupted:
    """Serves like ``serve``, but before a trajectory's first request it begins others that are given up."""

    scene: Scene
    begin: Callable[[Inputs], None]
    serve: Callable[[Inputs], Any]
    given_up: list[Inputs] = field(default_factory=list)
    """Inputs of the requests that were given up: they outlive the work that reads them."""

    def __call__(self, inputs: Inputs) -> Any:
        """One request of the trajectory."""
        if not self.given_up:
            for number in range(GIVEN_UP):
                self.give_up(number + 1)
            self._undo()
        return self.serve(inputs)

    def give_up(self, number: int = 0) -> None:
        """Begin a request and leave it where it is interrupted."""
        inputs = self.scene.input_sets[number % len(self.scene.input_sets)]
        self.given_up.append(tuple(map(self.scene.session.adapter.static_like, inputs)))
        try:
            self.begin(self.given_up[-1])
        except GivenUpError:
            return
        raise RuntimeError("the interruption of a request went lost")

    def _undo(self) -> None:
        """Take the state back to where the trajectory starts, on the stream and without waiting."""
        session, start = self.scene.session, self.scene.expected.start
        state = session.state() if start.changing else {}
        for name in sorted(start.changing & state.keys()):
            session.adapter.copy_into(state[name], start.state[name])
        session.adapter.set_random_state(start.random)


def cancelled(scene: Scene) -> Outcome:
    """Give requests up at every point that the path has, directly and inside a lease of a cache."""
    path = scene.graph()
    complaint = next(_complaints(scene, path), None) or _left_over(scene, path)
    if complaint is not None:
        return complaint
    if not isinstance(path, GraphedStep):
        return held(f"{_listed(OWN_POINTS)}: the next request is right, and no work is left over")
    return next(_complaints_of_cache(scene), None) or held(
        f"{_listed(POINTS)}, directly and in a lease of a cache: the next request is right, from another "
        "thread as well, and no work is left over"
    )


# --- the points -----------------------------------------------------------------------------------


def _before(_path: GraphPath, _inputs: Inputs) -> None:
    raise GivenUpError


def _between(path: GraphedStep, inputs: Inputs) -> None:
    path.copy_in(inputs)
    raise GivenUpError


def _during(path: GraphPath, inputs: Inputs) -> None:
    path.replay(inputs)
    raise GivenUpError


OWN_POINTS: Final[dict[str, GiveUp]] = {"before it began": _before, "during its replay": _during}
"""A path of the workload's own has no others that could be told apart."""
POINTS: Final[dict[str, GiveUp]] = {
    "before the copy": _before,
    "between copy and replay": _between,
    "during the replay": _during,
}


def _points(path: GraphPath) -> dict[str, GiveUp]:
    return POINTS if isinstance(path, GraphedStep) else OWN_POINTS


def _listed(points: dict[str, GiveUp]) -> str:
    *first, last = points
    return f"requests given up {', '.join(first)} and {last}"


def _busy(scene: Scene) -> None:
    session = scene.session
    kernels.delay(session.device, session.adapter.current_stream(), BUSY_NS)


# --- directly ---------------------------------------------------------------------------------------


def _complaints(scene: Scene, path: GraphPath) -> Iterator[Outcome]:
    for point, give_up in _points(path).items():

        def begin(inputs: Inputs, give_up: GiveUp = give_up) -> None:
            _busy(scene)
            give_up(path, inputs)

        scene.announce(f"requests given up {point}")
        if difference := scene.wrong(Interrupted(scene, begin, path.replay)):
            yield _wrong_after(point, difference)
        if isinstance(path, GraphedStep) and path.state is not State.READY:
            yield broke(Reason.CHURN, f"a request given up {point} leaves the graphed step {path.state}")


def _wrong_after(point: str, difference: str, how: str = "") -> Outcome:
    return broke(
        Reason.WRONG_OUTPUT,
        f"after requests given up {point}{how} the next one is wrong: {difference}",
        advice="let a request depend on nothing that the last one leaves, or name it in state()",
    )


def _left_over(scene: Scene, path: GraphPath) -> Outcome | None:
    """The complaint if a request that was given up still writes once its stream was synchronised."""
    session = scene.session
    _busy(scene)
    outputs = correctness.device_arrays(session, path.replay(scene.example))
    session.adapter.synchronize()
    if isinstance(path, GraphedStep):  # a late replay of the same inputs would write what is there already
        correctness.poison(session, outputs, scene.expected.start.changing, path.constants)
    return late_work(scene, outputs)


def late_work(scene: Scene, outputs: Sequence[Any]) -> Outcome | None:
    """The complaint if arrays change although the current stream was synchronised; None: they do not."""
    session = scene.session
    held_then = [session.adapter.static_like(array) for array in outputs]
    session.adapter.synchronize()
    time.sleep(LATE_S)
    session.device.synchronize()
    for then, now in zip(held_then, outputs, strict=True):
        if difference(session.adapter.to_host(then), session.adapter.to_host(now)).error:
            return broke(
                Reason.REPLAY_RACE,
                "work of a request that was given up goes on after its stream was synchronised",
                advice="let the current stream wait for every stream that the path uses",
            )
    return None


# --- in a lease of a cache --------------------------------------------------------------------------


class CachedRequests:
    """Requests through a cache, which an exception leaves in the middle of a lease."""

    def __init__(self, scene: Scene, cache: GraphCache) -> None:
        self._scene = scene
        self.cache = cache
        self._key = GraphKey(model_version="1", shape=(), dtype=(), device=scene.session.device.name)

    def serve(self, inputs: Inputs) -> Any:
        """One request to the end of its work."""
        session = self._scene.session
        with self.cache.lease(self._key, self._make) as graphed:
            outputs = session.step(*inputs) if graphed is None else graphed(*inputs)
            session.adapter.synchronize()
            return outputs

    def give_up(self, point: GiveUp, inputs: Inputs) -> None:
        """One request that is interrupted inside the lease. Raises GivenUpError through it."""
        with self.cache.lease(self._key, self._make) as graphed:
            if graphed is None:
                raise RuntimeError(f"the cache has no graph: {self.cache.failures.get(self._key)}")
            _busy(self._scene)
            point(graphed, inputs)

    def _make(self) -> GraphedStep:
        graphed, _counted = counted_graph(self._scene.session, self._scene.example)
        self._scene.keep(graphed)
        return graphed

    def complaint(self, point: str) -> Outcome | None:
        """What the cache has not kept or not ended; None: all is well."""
        counts = self.cache.statistics
        if counts.leased:
            return broke(Reason.LIFETIME, f"a request given up {point} still holds its lease")
        if counts.captures != 1 or counts.failures or counts.entries != 1:
            return broke(Reason.CHURN, f"a request given up {point} costs the cache its graph")
        return None


def _complaints_of_cache(scene: Scene) -> Iterator[Outcome]:
    requests = CachedRequests(scene, GraphCache(capacity_entries=1))
    if difference := scene.wrong_requests(requests.serve):
        yield broke(Reason.WRONG_OUTPUT, f"a cached graph is wrong: {difference}")
    for point, give_up in POINTS.items():

        def begin(inputs: Inputs, give_up: GiveUp = give_up) -> None:
            requests.give_up(give_up, inputs)

        scene.announce(f"requests given up {point} inside a lease")
        interrupted = Interrupted(scene, begin, requests.serve)
        if difference := scene.wrong(interrupted):
            yield _wrong_after(point, difference, " in a lease")
        interrupted.give_up()
        if difference := _wrong_elsewhere(scene, requests):
            yield _wrong_after(point, difference, " in a lease of another thread")
        if (complaint := requests.complaint(point)) is not None:
            yield complaint
    requests.cache.clear()


def _wrong_elsewhere(scene: Scene, requests: CachedRequests) -> str:
    """The first difference of a request that another thread serves from the same cache; empty: right."""
    found: list[str] = []

    def serve() -> None:
        found.append(scene.wrong_requests(requests.serve))

    failure = Crew(scene.session.device, 1).run([serve])
    return error_text(failure) if failure is not None else found[0]
