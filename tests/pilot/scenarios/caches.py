"""Caches with a fault: what the scenarios that use one must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cudagraph_gate.graphs import GraphCache, GraphedStep, GraphKey

Make = Callable[[], GraphedStep]


class ForgetfulOf(GraphCache):
    """Leaves one component out of its keys."""

    def __init__(self, component: str, **options: Any) -> None:
        super().__init__(**options)
        self._component = component

    @contextmanager
    def lease(self, key: GraphKey, make: Make, *, nbytes: int | None = None) -> Iterator[GraphedStep | None]:
        """The lease of the key without it."""
        blank = {"context_epoch": 0}.get(self._component, "")
        with super().lease(replace(key, **{self._component: blank}), make, nbytes=nbytes) as graphed:
            yield graphed


class WithoutTurns(GraphCache):
    """Lets every thread in at once."""

    @contextmanager
    def lease(self, key: GraphKey, make: Make, *, nbytes: int | None = None) -> Iterator[GraphedStep | None]:
        """The key's graph, whoever uses it."""
        with super().lease(key, make, nbytes=nbytes) as graphed:
            pass
        yield graphed


class Hasty(GraphCache):
    """Frees a graph as soon as another key is asked for, whoever uses it."""

    _last: GraphedStep | None = None

    @contextmanager
    def lease(self, key: GraphKey, make: Make, *, nbytes: int | None = None) -> Iterator[GraphedStep | None]:
        """A graph made for this lease; the one before is given up now."""
        last, self._last = self._last, make()
        if last is not None:
            last.invalidate()
        yield self._last
