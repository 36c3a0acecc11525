"""The graph path of a session as the trial uses it, however it was made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from cudagraph_gate.graphs import GraphedStep
from cudagraph_gate.pilot.session import Inputs, Session

WARM_UP_REQUESTS = 10
"""Lazy loading, autotuning and workspaces settle within a few calls."""


class GraphPath(Protocol):
    """What serves a request by a graph: :class:`GraphedStep`, or the workload's own path."""

    def replay(self, inputs: Sequence[Any]) -> Any:
        """One request on the current stream, not synchronised; returns its outputs."""

    def invalidate(self) -> None:
        """Give the graph up and free what it holds."""


def ready_graph(session: Session, inputs: Inputs) -> GraphedStep:
    """A captured graph of the session's step, warmed up, instantiated and uploaded.

    Raises what the step or the driver raised; the graph is given up then.
    """
    graphed = GraphedStep(session.adapter, session.step, inputs, updatable=session.updatable())
    graphed.warm_up(WARM_UP_REQUESTS)
    graphed.capture()
    graphed.instantiate()
    graphed.upload()
    return graphed
