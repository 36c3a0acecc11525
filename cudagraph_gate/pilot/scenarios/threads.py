"""Several threads on one executable graph, and on a cache that is too small for them.

All work of these threads overlaps as it comes, on the simulated device too: what they get is looked at, not
how long it takes.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from cudagraph_gate.graphs import GraphCache, GraphKey
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.crew import Crew
from cudagraph_gate.pilot.scenarios.builds import Apart, Model, apart, with_further_builds
from cudagraph_gate.pilot.scenarios.making import Maker, WatchedStep
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene, broke, does_not_apply, held, undecided
from cudagraph_gate.pilot.scenarios.served import Served
from cudagraph_gate.workload.calls import error_text

SHARING: Final = 2
SHARED_REQUESTS: Final = 20
"""Of each of the threads on one executable."""
PAUSE_S: Final = 0.001
"""Between a replay and the copy of its outputs: time for another thread to step in, if it can."""
CLIENTS: Final = 3
CLIENT_REQUESTS: Final = 8
"""Of each client of the small cache: nearly every one captures, since most have another key than the last."""
KEYS: Final = 3


# --- one executable -------------------------------------------------------------------------------


def shared_executable(scene: Scene) -> Outcome:
    """Two threads ask for the same graph all the time."""
    return share(scene, GraphCache(capacity_entries=1))


def share(scene: Scene, cache: GraphCache) -> Outcome:
    """The same with the graph kept in ``cache``."""
    if why := first_complaint(scene, SHARING):
        return does_not_apply(f"the workload itself can't be used from other threads: {why}")
    model = Model.of(scene)
    key, maker = model.key(), Maker(scene, model)
    try:
        with cache.lease(key, maker) as graphed:  # made here: the threads only replay
            if graphed is None:
                raise maker.failure()
        seat = _Seat(cache, Served(model))
        crew = Crew(scene.session.device, SHARING)
        count = seat.served.most(SHARED_REQUESTS)
        sharers = [_Sharer(crew, seat, key, maker, number, count) for number in range(SHARING)]
        error = crew.run([sharer.serve for sharer in sharers])
        scene.session.device.synchronize()
    finally:
        cache.clear()
    if error is not None:
        raise error
    return _shared(seat)


def _shared(seat: _Seat) -> Outcome:
    requests = f"{len(seat.served)} requests of {SHARING} threads"
    if seat.most_inside > 1:
        return broke(
            Reason.REPLAY_RACE, f"{seat.most_inside} threads were inside one executable at the same time"
        )
    if difference := seat.served.first_wrong():
        return broke(Reason.REPLAY_RACE, f"of {requests} on one executable one is wrong: {difference}")
    if not seat.waited:
        return undecided(Reason.UNMEASURABLE, f"{requests} never met: none had to wait for the other")
    return held(f"{requests} took turns ({seat.waited} times one waited), and each got its own output")


@dataclass
class _Seat:
    """One graph that is used by one thread at a time, and what was seen of that."""

    cache: GraphCache
    served: Served
    inside: int = 0
    most_inside: int = 0
    waited: int = 0
    """How often somebody waited while a request was served."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self) -> None:
        """A thread has the lease."""
        with self._lock:
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)

    def leave(self) -> None:
        """It is about to give it back."""
        with self._lock:
            self.inside -= 1
            self.waited += self.cache.statistics.leased > 1


@dataclass
class _Sharer:
    """One of the threads on one executable."""

    crew: Crew
    seat: _Seat
    key: GraphKey
    maker: Maker
    number: int
    count: int

    def serve(self) -> None:
        """All requests of this thread, each answered before the lease ends."""
        adapter = self.seat.served.model.session.adapter
        with adapter.on_stream(adapter.new_stream()):
            self.crew.begin()
            for index in range(self.count):
                with self.seat.cache.lease(self.key, self.maker) as graphed:
                    if graphed is None:
                        raise self.maker.failure()
                    self._replay(graphed.replay, index * SHARING + self.number)

    def _replay(self, replay: Callable[..., Any], number: int) -> None:
        served = self.seat.served
        self.seat.enter()
        try:
            place, inputs = served.request(number)
            outputs = replay(inputs)
            time.sleep(PAUSE_S)
            served.keep(place, outputs)
            served.model.session.adapter.synchronize()
        finally:
            self.seat.leave()


# --- a small cache --------------------------------------------------------------------------------


def eviction_under_load(scene: Scene) -> Outcome:
    """A cache with room for one graph, asked for several at a time."""
    return with_further_builds(scene, lambda each: load(each, GraphCache(capacity_entries=1)))


def load(scene: Scene, cache: GraphCache) -> Outcome:
    """The same with the graphs kept in ``cache``."""
    if why := first_complaint(scene, CLIENTS):
        return does_not_apply(f"the workload itself can't be used from other threads: {why}")
    shelf = _Shelf.of(scene, cache, apart(scene))
    crew = Crew(scene.session.device, CLIENTS)
    clients = [_Client(crew, shelf, random.Random(f"{scene.job.seed} {n}")) for n in range(CLIENTS)]
    try:
        error = crew.run([client.serve for client in clients])
        scene.session.device.synchronize()
        evictions = cache.statistics.evictions
    finally:
        cache.clear()
    if any(step.freed_in_use for maker in shelf.makers for step in maker.steps):
        return broke(Reason.LIFETIME, f"of {shelf.requests}, one lost its graph while it used it")
    if error is not None:
        raise error
    return _loaded(shelf, evictions)


def _loaded(shelf: _Shelf, evictions: int) -> Outcome:
    requests = shelf.requests
    for served in shelf.served:
        if difference := served.first_wrong():
            return broke(Reason.REPLAY_RACE, f"of {requests} from a cache of one, one is wrong: {difference}")
    if not evictions:
        return undecided(Reason.UNMEASURABLE, f"{requests} drove none out of a cache of one")
    return held(f"{requests} are right, {evictions} graphs were evicted meanwhile, none of them in use")


@dataclass(frozen=True)
class _Shelf:
    """Several keys in one cache."""

    cache: GraphCache
    served: tuple[Served, ...]
    """One for each model: graphs of one model may share it."""
    keys: tuple[GraphKey, ...]
    makers: tuple[Maker, ...]
    of_key: tuple[Served, ...]
    alone: AbstractContextManager[Any]
    """Held by each request where only one may run at a time."""
    why: str
    """Why only one may, if so."""

    @classmethod
    def of(cls, scene: Scene, cache: GraphCache, found: Apart) -> _Shelf:
        distinct = {id(model.session): model for model in found.models[:KEYS]}
        models = list(distinct.values())
        chosen = [models[number % len(models)] for number in range(KEYS)]
        served = {id(model): Served(model) for model in models}
        return cls(
            cache=cache,
            served=tuple(served.values()),
            keys=tuple(model.key(model_version=f"model {n}") for n, model in enumerate(chosen)),
            makers=tuple(Maker(scene, model) for model in chosen),
            of_key=tuple(served[id(model)] for model in chosen),
            alone=nullcontext() if found.overlap else threading.Lock(),
            why=found.why,
        )

    @property
    def requests(self) -> str:
        """What was served, for a sentence."""
        alone = f", one at a time ({self.why})," if self.why else ""
        return f"{sum(map(len, self.served))} requests of {CLIENTS} threads for {KEYS} graphs{alone}"


@dataclass
class _Client:
    """One thread that asks for a graph by chance each time."""

    crew: Crew
    shelf: _Shelf
    chance: random.Random

    def serve(self) -> None:
        """All requests of this thread."""
        adapter = self.shelf.served[0].model.session.adapter
        with adapter.on_stream(adapter.new_stream()):
            self.crew.begin()
            for _ in range(CLIENT_REQUESTS):
                self._one(self.chance.randrange(KEYS), self.chance.randrange(1 << 16))

    def _one(self, which: int, number: int) -> None:
        shelf, maker, served = self.shelf, self.shelf.makers[which], self.shelf.of_key[which]
        with shelf.alone, shelf.cache.lease(shelf.keys[which], maker) as graphed:
            if graphed is None:
                raise maker.failure()
            assert isinstance(graphed, WatchedStep), "made by the maker"
            with graphed.in_use():
                place, inputs = served.request(number)
                outputs = graphed.replay(inputs)
                time.sleep(PAUSE_S)
                served.keep(place, outputs)
                served.model.session.adapter.synchronize()


# --- threads at all -------------------------------------------------------------------------------


def first_complaint(scene: Scene, threads: int) -> str:
    """What keeps the normal path from being run by other threads, one after the other; empty: nothing."""
    session = scene.session
    for _ in range(threads):
        error = Crew(session.device, 1).run([lambda: _one_normal(scene)])
        if error is not None:
            return error_text(error)
    return ""


def _one_normal(scene: Scene) -> None:
    adapter = scene.session.adapter
    with adapter.on_stream(adapter.new_stream()):
        scene.session.step(*map(adapter.static_like, scene.input_sets[0]))
        adapter.synchronize()
