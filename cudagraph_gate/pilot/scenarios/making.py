"""Making graphs for a cache: counted, watched while they are used, and what their making raised is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from cudagraph_gate.graphs import GraphedStep
from cudagraph_gate.pilot.scenarios.builds import Model
from cudagraph_gate.pilot.scenarios.scene import Scene

WARM_UP: Final = 3
"""Runs before each capture: what is set up once in a process was set up before the scenario's fault."""


class WatchedStep(GraphedStep):
    """A graphed step that notes when it is given up while somebody uses it."""

    users = 0
    freed_in_use = False

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Around what one lease does with it."""
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1

    def invalidate(self) -> None:
        """As of every graphed step."""
        self.freed_in_use |= self.users > 0
        super().invalidate()


class Maker:
    """Makes graphs of one model; what a cache is given as ``make``."""

    def __init__(self, scene: Scene, model: Model) -> None:
        self._scene = scene
        self._model = model
        self._error: Exception | None = None
        self.steps: list[WatchedStep] = []

    @property
    def made(self) -> int:
        """How many were made."""
        return len(self.steps)

    def __call__(self) -> WatchedStep:
        """A graph that is ready; its warm-up leaves state and random numbers as they were."""
        session = self._model.session
        example = tuple(map(session.adapter.static_like, self._model.expected.start.requests[0]))
        made = WatchedStep(session.adapter, session.step, example, updatable=session.updatable())
        self._scene.keep(made)
        try:
            made.prepare(WARM_UP, state=self._changing())
        except Exception as error:
            self._error = error
            raise
        self.steps.append(made)
        return made

    def failure(self) -> Exception:
        """What making the last one raised, to be raised again where a lease is answered with None."""
        return self._error or RuntimeError("the cache serves no graph, though none failed")

    def _changing(self) -> list[Any]:
        changing = self._model.expected.start.changing
        named = self._model.session.state() if changing else {}
        return [value for name, value in named.items() if name in changing]
