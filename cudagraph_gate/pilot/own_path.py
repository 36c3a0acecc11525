"""The workload's own graph path: what ``build_graphed(shape)`` returns.

torch.compile with reduce-overhead, ``torch.cuda.make_graphed_callables``, an engine's own switch, or anything
else that takes the step's inputs and returns its outputs. When and how it makes its graphs is its own affair,
so it has two phases only: building it, together with its first calls, and steady requests.

Its outputs are often buffers that its next call overwrites. State that it keeps for itself (a second copy of
the model, a cache of its own) is neither restored nor compared unless ``state()`` names it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from cudagraph_gate.errors import CgateError, WorkloadError
from cudagraph_gate.pilot.graph_path import WARM_UP_REQUESTS, GraphPath, ready_graph
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.records import Method
from cudagraph_gate.workload import user_frame
from cudagraph_gate.workload.calls import error_text


class OwnPath:
    """The graph path of a workload that declares ``build_graphed``; made by :meth:`make`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._path: Callable[..., Any] | None = None

    @property
    def what(self) -> str:
        """How errors name it."""
        return f"build_graphed({self._session.shape_name})"

    def make(self, inputs: Inputs) -> None:
        """Build the path and warm it up. Raises what the user's code raises."""
        self.build()
        self.warm_up(inputs)

    def build(self) -> None:
        """Call ``build_graphed``.

        Raises WorkloadError where the workload has none or it returns no callable; what it raises itself
        passes, so that it becomes a finding about the graph path with the line that raised it.
        """
        workload = self._session.workload
        if workload.build_graphed is None:
            raise WorkloadError("the workload declares no build_graphed", where=workload.path.name)
        built = self._called(workload.build_graphed, (self._session.shape,))
        if not callable(built):
            raise WorkloadError(
                f"build_graphed returned a {type(built).__name__}, not a callable",
                where=workload.where("build_graphed"),
                hint="return what takes the step's inputs and returns its outputs",
            )
        self._path = built

    def warm_up(self, inputs: Inputs, runs: int = WARM_UP_REQUESTS) -> None:
        """Call it until it has its graphs: such paths record theirs at the second or third call, or later.

        Each call gets a copy at another address: a step may change its inputs in place, and a graph that has
        kept the address of its first inputs must not look right.
        """
        adapter = self._session.adapter
        for _ in range(runs):
            passed = tuple(adapter.static_like(value) for value in inputs)
            self.replay(passed)
            adapter.synchronize()

    def replay(self, inputs: Sequence[Any]) -> Any:
        """One request on the current stream, not synchronised; returns whatever the path returns.

        What it raises passes. Raises RuntimeError when it was not built or was given up.
        """
        if self._path is None:
            raise RuntimeError(f"the path of {self.what} is not there: not built, or given up")
        return self._called(self._path, inputs)

    def invalidate(self) -> None:
        """Drop it; its graphs are freed with it, unless the workload keeps them elsewhere."""
        self._path = None
        gc.collect()

    def _called(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        try:
            return function(*arguments)
        except CgateError:
            raise
        except (Exception, SystemExit) as error:
            workload = self._session.workload
            if user_frame(error, workload.folder) is not None:
                raise
            # A library's own callable: without a line of the user's, the definition is the place to look.
            place = workload.where("build_graphed")
            raise RuntimeError(f"{self.what} at {place} raised {error_text(error)}") from error


def own_path(session: Session, inputs: Inputs) -> OwnPath:
    """What ``build_graphed`` returns, warmed up."""
    path = OwnPath(session)
    path.make(inputs)
    return path


PathMaker = Callable[[Session, Inputs], GraphPath]
"""Makes the graph path of a session, ready to serve, from the inputs of one request."""
PATH_MAKERS: Final[Mapping[Method, PathMaker]] = {"capture": ready_graph, "own": own_path}
"""By how the judged graph path is made."""
