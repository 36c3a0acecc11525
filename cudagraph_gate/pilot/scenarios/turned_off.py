"""An application's graphs as the drill sees them: made, leased for a request, turned off in mid-traffic."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from cudagraph_gate.graphs import GraphCache
from cudagraph_gate.pilot.graph_path import GraphPath
from cudagraph_gate.pilot.scenarios.builds import Model
from cudagraph_gate.pilot.scenarios.making import Maker
from cudagraph_gate.pilot.scenarios.scene import Scene


class Graphs(Protocol):
    """The graphs of the application, which can be turned off."""

    def make(self) -> None:
        """Make them, and serve requests by them from now on."""

    def lease(self, number: int) -> AbstractContextManager[GraphPath | None]:
        """What serves a request of this server; None: the normal path."""

    def turn_off(self) -> None:
        """Serve no further request by a graph; those that are in flight are answered."""

    def give_up(self) -> None:
        """Drop them all, no request being in flight."""


class CachedGraphs:
    """A graph for each server, kept in a cache."""

    def __init__(self, scene: Scene, models: Sequence[Model], cache: GraphCache | None = None) -> None:
        self._cache = cache or GraphCache(capacity_entries=len(models))
        self._cache.turn_off()
        self._makers = [Maker(scene, model) for model in models]
        self._keys = [model.key(model_version=f"server {n}") for n, model in enumerate(models)]

    def make(self) -> None:
        """In this thread, one after the other. Raises what making one raised."""
        self._cache.turn_on()
        for number, maker in enumerate(self._makers):
            with self.lease(number) as graphed:
                if graphed is None:
                    raise maker.failure()

    def lease(self, number: int) -> AbstractContextManager[GraphPath | None]:
        """What serves a request of this server."""
        return self._cache.lease(self._keys[number], self._makers[number])

    def turn_off(self) -> None:
        """``GraphCache.turn_off``."""
        self._cache.turn_off()

    def give_up(self) -> None:
        """Drop the graphs."""
        self._cache.clear()


class OwnGraphs:
    """The workload's own path, for one server; dropped once it is off and its last request is over."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._path: GraphPath | None = None
        self._off = threading.Event()

    def make(self) -> None:
        """Raises what the path raises."""
        self._path = self._scene.graph()

    @contextmanager
    def lease(self, number: int) -> Iterator[GraphPath | None]:
        """The path until it is turned off."""
        del number
        yield None if self._off.is_set() else self._path
        if self._off.is_set():
            self.give_up()

    def turn_off(self) -> None:
        """From the next request on."""
        self._off.set()

    def give_up(self) -> None:
        """Drop the path."""
        path, self._path = self._path, None
        if path is not None:
            path.invalidate()
