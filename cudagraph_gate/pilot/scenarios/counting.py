"""A captured graph that counts how often it is launched, to show that one that was given up never is."""

from __future__ import annotations

from typing import Any

from cudagraph_gate.adapters import CapturedStep, Executable
from cudagraph_gate.device.port import Graph, UpdateResult
from cudagraph_gate.graphs import GraphedStep
from cudagraph_gate.graphs.graphed_step import StreamCapture
from cudagraph_gate.pilot.graph_path import WARM_UP_REQUESTS
from cudagraph_gate.pilot.session import Inputs, Session


class CountedCapture:
    """A graph source that captures the session's step; ``launches`` counts those of all its executables."""

    def __init__(self, session: Session) -> None:
        self._capture = StreamCapture(session.adapter, session.step)
        self.launches = 0

    def static_inputs(self, example: tuple[Any, ...]) -> tuple[Any, ...]:
        """As of every captured step."""
        return self._capture.static_inputs(example)

    def capture(self, static: tuple[Any, ...]) -> CapturedStep:
        """Capture one call of the step."""
        return _Captured(self._capture.capture(static), self)


class _Captured:
    def __init__(self, captured: CapturedStep, counted: CountedCapture) -> None:
        self._captured = captured
        self._counted = counted

    @property
    def graph(self) -> Graph:
        return self._captured.graph

    @property
    def outputs(self) -> Any:
        return self._captured.outputs

    def instantiate(self) -> Executable:
        return _Executable(self._captured.instantiate(), self._counted)


class _Executable:
    def __init__(self, executable: Executable, counted: CountedCapture) -> None:
        self._executable = executable
        self._counted = counted

    def upload(self) -> None:
        self._executable.upload()

    def launch(self) -> None:
        self._counted.launches += 1  # before it: a launch that is refused was tried all the same
        self._executable.launch()

    def update(self, graph: Graph) -> UpdateResult:
        return self._executable.update(graph)

    def destroy(self) -> None:
        self._executable.destroy()


def counted_graph(session: Session, example: Inputs) -> tuple[GraphedStep, CountedCapture]:
    """A graph of the session's step that is ready, and the count of its launches.

    Making it leaves the workload's state as it was: it may be made in the middle of a trajectory. Raises what
    the step or the driver raised; the graph is given up then.
    """
    counted = CountedCapture(session)
    graphed = GraphedStep(
        session.adapter, session.step, example, updatable=session.updatable(), source=counted
    )
    return graphed.prepare(WARM_UP_REQUESTS, state=tuple(session.state().values())), counted
