"""What the workload's ``version()`` is for: the key of every kept graph, and one evidence for one model.

An application that keeps graphs must not serve one that was captured for another model. With ``version()``
the request mix is therefore served as such an application does it: through a :class:`GraphCache`, the version
asked at every request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from cudagraph_gate.fingerprint.software import read_packages
from cudagraph_gate.graphs import GraphCache, GraphedStep, GraphKey
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.graph_path import ready_graph
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import Finding, Phase
from cudagraph_gate.workload import model_version

KEPT_GRAPHS: Final = 1
"""Of a shape: those of older model versions are evicted by the newest one."""


def graph_key(session: Session, inputs: Inputs) -> GraphKey:
    """The key under which an application would keep the session's graph, its model version the one of now.

    Without ``version()`` the version is empty. Raises TypeError for an input that does not tell its shape and
    dtype, and what ``version()`` raises.
    """
    return GraphKey.of(
        inputs,
        model_version=model_version(session.workload) or "",
        device=session.device.name,
        libraries=tuple((name, str(found)) for name, found in sorted(read_packages().identity.items())),
    )


class CachedPath:
    """A graph path as an application has it that keeps graphs by model version.

    Each request asks ``version()`` and leases the graph of that version, which is captured where there is
    none yet: a version that changes in mid-traffic costs what it costs in production.
    """

    def __init__(self, session: Session, inputs: Inputs) -> None:
        self._session = session
        self._inputs = inputs
        self._key = graph_key(session, inputs)
        self._cache = GraphCache(capacity_entries=KEPT_GRAPHS)
        self._error: Exception | None = None

    @property
    def cache(self) -> GraphCache:
        """Holds this shape's graphs alone: two shapes may have inputs of the same layout."""
        return self._cache

    @property
    def key(self) -> GraphKey:
        """The key of this moment."""
        version = model_version(self._session.workload) or ""
        if version != self._key.model_version:
            self._key = replace(self._key, model_version=version)
        return self._key

    def replay(self, inputs: Sequence[Any]) -> Any:
        """One request on the current stream, not synchronised; returns the graph's static outputs.

        Raises what making the graph raised.
        """
        key = self.key
        with self._cache.lease(key, self._make) as graphed:
            if graphed is None:
                raise self._failure(key)
            return graphed.replay(inputs)

    def invalidate(self) -> None:
        """Give all graphs up."""
        self._cache.clear()

    def _make(self) -> GraphedStep:
        try:
            return ready_graph(self._session, self._inputs)
        except Exception as error:
            self._error = error
            raise

    def _failure(self, key: GraphKey) -> Exception:
        """What was raised, with the line of the user's code in its traceback."""
        return self._error or RuntimeError(f"no graph is kept: {self._cache.failures.get(key, 'not made')}")


def cached_path(session: Session, inputs: Inputs) -> CachedPath:
    """A cached path whose first graph is made. Raises what making it raised."""
    path = CachedPath(session, inputs)
    path.replay(inputs)
    return path


def other_version(log: TrialLog, recorded: str, now: str) -> Finding:
    """The run's evidence is of another model version than the one that would be tried now."""
    return _finding(
        log,
        Phase.COLD_REQUEST,
        f"the model version is {now}, and the evidence of this run is of {recorded}",
        "start a new run with cgate run",
    )


def version_changed(log: TrialLog, before: str, after: str) -> Finding:
    """``version()`` changed while one graph was tried."""
    return _finding(
        log,
        Phase.TIMING,
        f"version() said {before} before the graph was captured and {after} after it was timed: with it in "
        "the key of a cache the graph would have been captured again meanwhile, which was not timed",
        "let version() change only with what a captured graph depends on",
    )


def _finding(log: TrialLog, phase: Phase, message: str, advice: str) -> Finding:
    return Finding(
        shape=log.shape,
        method=log.method,
        phase=phase,
        code=Reason.ENVIRONMENT,
        message=message,
        call="version()",
        advice=advice,
    )
