"""Giving a device context up and making it anew: graphs of the old one must never be served again.

The simulated device really does it, with a context beside the scene's own: it is opened, served on, closed,
and another one opened in its place. On a GPU the primary context belongs to PyTorch, CuPy and CUPTI as well,
whose handles would dangle after a reset, so that there only the epoch of the cache's keys is counted up; a
context that is lost there is replaced with its process, which is another scenario.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from cudagraph_gate.device import make_current
from cudagraph_gate.errors import CgateError
from cudagraph_gate.graphs import GraphCache, GraphedStep, GraphKey, State
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.correctness import Expectation
from cudagraph_gate.pilot.describing import first_difference
from cudagraph_gate.pilot.scenarios.counting import CountedCapture, counted_graph
from cudagraph_gate.pilot.scenarios.device_loss import refused, said
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene, broke, held, undecided
from cudagraph_gate.pilot.session import Inputs, Session, load, opened

OLD: Final = 1
NEW: Final = 2


class UnmadeContextError(Exception):
    """The workload itself can't be built in another context; its text says why."""


@dataclass(frozen=True)
class Context:
    """A built workload in one device context, with what its normal path gives there."""

    epoch: int
    session: Session
    expected: Expectation
    example: Inputs


@dataclass
class Application:
    """What an application keeps over its contexts: the cache, and what was made for it by epoch."""

    cache: GraphCache
    made: dict[int, tuple[GraphedStep, CountedCapture]]

    @classmethod
    def with_cache(cls, cache: GraphCache | None = None) -> Application:
        """Nothing is made yet."""
        return cls(cache or GraphCache(capacity_entries=4), {})

    def request(self, context: Context, inputs: Inputs) -> Any:
        """One request in a context, by the cached graph of its epoch; outputs after its last work."""
        session = context.session
        with self.cache.lease(self.key(context), lambda: self._make(context)) as graphed:
            outputs = session.step(*inputs) if graphed is None else graphed(*inputs)
            session.adapter.synchronize()
            return outputs

    def complaint(self, context: Context) -> Outcome | None:
        """What is wrong with requests in a context; None: its graph serves them, and right."""
        difference = first_difference(
            context.session, context.expected, lambda inputs: self.request(context, inputs)
        )
        if difference:
            return broke(Reason.WRONG_OUTPUT, f"requests of epoch {context.epoch} go wrong: {difference}")
        if context.epoch in self.made:
            return None
        reason = self.cache.failures.get(self.key(context))
        if reason is None:
            return broke(Reason.LIFETIME, f"epoch {context.epoch} is served by a graph of another one")
        return broke(Reason.NO_GRAPH_USED, f"no graph could be made in epoch {context.epoch}: {reason}")

    def key(self, context: Context) -> GraphKey:
        """Nothing but the epoch changes."""
        name = context.session.device.name
        return GraphKey(model_version="1", shape=(), dtype=(), device=name, context_epoch=context.epoch)

    def _make(self, context: Context) -> GraphedStep:
        graphed, counted = counted_graph(context.session, context.example)
        self.made[context.epoch] = graphed, counted
        return graphed


def context_rebuild(scene: Scene) -> Outcome:
    """Serve in one context, give it up, and serve in the one that takes its place."""
    application = Application.with_cache()
    try:
        if scene.session.device.simulated:
            return _rebuilt(scene, application)
        return _counted_up(scene, application)
    except UnmadeContextError as error:
        return undecided(Reason.WORKLOAD, f"the workload can't be built in a context made anew: {error}")
    finally:
        application.cache.clear()
        make_current(scene.session.device)


# --- a context that is really made anew -----------------------------------------------------------


def _rebuilt(scene: Scene, application: Application) -> Outcome:
    old = _opened(scene, OLD)
    if complaint := application.complaint(old):
        return complaint
    old.session.device.close()
    refusal = refused(lambda: application.request(old, old.example))
    if refusal is None:
        return broke(Reason.LIFETIME, "a graph of a context that was given up is served")
    new = _opened(scene, NEW)
    try:
        return next(complaints(application, old, new), None) or held(
            f"a request to the old context is refused ({said(refusal)}), its graph is dropped with its "
            "epoch, and the one made anew is right"
        )
    finally:
        new.session.device.synchronize()
        application.cache.clear()
        new.session.device.close()


def _opened(scene: Scene, epoch: int) -> Context:
    """A context beside the scene's own, with the workload loaded and built anew in it."""
    job = scene.job
    scene.announce(f"context {epoch}")
    try:
        session = opened(load(job.workload, job.device, job.shapes), job.shape, job.seed)
        sets = session.input_sets(job.seed)
        return _context(epoch, session, session.baked(sets, sets[0]))
    except CgateError as error:  # its normal path, before any graph of this context
        raise UnmadeContextError(str(error)) from error


def _context(epoch: int, session: Session, sets: list[Inputs]) -> Context:
    expected = correctness.expect(session, sets)
    example = tuple(map(session.adapter.static_like, sets[0]))
    session.device.synchronize()
    return Context(epoch, session, expected, example)


# --- a context of which only the epoch changes ------------------------------------------------------


def _counted_up(scene: Scene, application: Application) -> Outcome:
    old = Context(OLD, scene.session, scene.expected, scene.example)
    new = Context(NEW, scene.session, scene.expected, scene.example)
    if complaint := application.complaint(old):
        return complaint
    return next(complaints(application, old, new), None) or held(
        "PyTorch, CuPy and CUPTI share the context, so only its epoch was counted up: the graph of the old "
        "epoch is dropped and not launched again, and the one made anew is right"
    )


# --- what must hold in both -------------------------------------------------------------------------


def complaints(application: Application, old: Context, new: Context) -> Iterator[Outcome]:
    """What is served of the old epoch's graph once the new one has begun, or is wrong with the new one's."""
    graphed, counted = application.made[OLD]
    launches = counted.launches
    if complaint := application.complaint(new):
        yield complaint
    application.cache.invalidate_epoch(NEW)
    if graphed.state is not State.FALLBACK:
        yield broke(Reason.LIFETIME, f"the old epoch's graph is {graphed.state} after it was invalidated")
    with application.cache.lease(application.key(old), _unmakeable) as served:
        pass
    if served is not None:
        yield broke(Reason.LIFETIME, "a graph is served under the key of an epoch that is over")
    captures = application.cache.statistics.captures
    if complaint := application.complaint(new):
        yield complaint
    if application.cache.statistics.captures != captures:
        yield broke(Reason.CHURN, "the new epoch's graph was dropped together with the old one's")
    if counted.launches != launches:
        yield broke(Reason.LIFETIME, "the old context's executable was launched again")


def _unmakeable() -> GraphedStep:
    raise RuntimeError("the context of this epoch is gone")
