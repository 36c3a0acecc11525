"""Making the graph path that a trial judges: captured, built node by node, or the workload's own."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from msgspec import structs

from cudagraph_gate.adapters import CapturedStep
from cudagraph_gate.errors import DeviceError
from cudagraph_gate.graphs import ExplicitSource, GraphedStep, contents, graph_map
from cudagraph_gate.model import Counts, NotMeasured
from cudagraph_gate.pilot import correctness, measure
from cudagraph_gate.pilot.afterwards import Afterwards
from cudagraph_gate.pilot.between import Between
from cudagraph_gate.pilot.fresh_inputs import FreshInputs
from cudagraph_gate.pilot.graph_path import WARM_UP_REQUESTS, GraphPath
from cudagraph_gate.pilot.own_path import OwnPath
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.pilot.updating import measure_update_curve
from cudagraph_gate.records import CapturedMap, Method, NodeSet, PathName, Phase
from cudagraph_gate.timeline.kernel_libraries import library_of
from cudagraph_gate.workload import call_user

STEADY_REPLAYS: Final = 20
STALL: Final = 10
"""Times the median: a steady replay that takes longer did something else as well, such as compiling."""
_NOT_YET: Final = NotMeasured(reason="the trial ended before the normal path's kernels were recorded")


class Making(Protocol):
    """One way to a graph path, phase by phase."""

    @property
    def path(self) -> GraphPath:
        """What serves requests."""

    @property
    def nodes(self) -> NodeSet | None:
        """What the graph holds; None before it was made, and of a path that does not show its graph."""

    def prepare(self) -> None:
        """Warm up, so that nothing is set up for the first time in capture, and call ``between`` once."""

    def make(self) -> None:
        """Make the graph. Raises what the step or the driver raised."""

    def make_ready(self) -> None:
        """Everything up to steady replays, each with its cost."""

    def measure_updates(self) -> None:
        """What updating the graph costs, where it can be updated."""

    def static_outputs(self) -> list[Any]:
        """The arrays that replays overwrite."""

    def constants(self) -> tuple[Any, ...]:
        """Static inputs that no replay changes."""

    def requests(self) -> Mapping[PathName, measure.Request]:
        """What is timed, by path."""


def making_of(session: Session, log: TrialLog, method: Method, inputs: Inputs) -> Making:
    """The way that ``method`` names."""
    if method == "own":
        return OwnMaking(session, log, inputs)
    return GraphMaking(session, log, inputs, explicit=method == "explicit")


class GraphMaking:
    """A graph of ours: captured from the step, or built by ``build_explicit``."""

    def __init__(self, session: Session, log: TrialLog, inputs: Inputs, *, explicit: bool) -> None:
        self._session = session
        self._log = log
        self.path = GraphedStep(
            session.adapter,
            session.step,
            inputs,
            updatable=session.updatable(),
            source=_explicit_source(session) if explicit else None,
        )
        self.nodes: NodeSet | None = None

    def prepare(self) -> None:
        """Run the normal step."""
        self._log.measured(self._session, Phase.WARM_UP, lambda: self.path.warm_up(WARM_UP_REQUESTS))
        Between(self._session).call()

    def make(self) -> None:
        """Capture or build; logs the nodes and their map."""
        log = self._log
        captured: CapturedStep = log.measured(self._session, Phase.CAPTURE, self.path.capture)
        held = contents(captured.graph)
        self.nodes = NodeSet(
            shape=log.shape,
            method=log.method,
            nodes=held.nodes,
            kinds=held.kinds,
            kernels=held.kernels,
            normal_kernels=_NOT_YET,
        )
        log.append(self.nodes)
        shown = graph_map(captured.graph, library_of)
        log.append(CapturedMap(shape=log.shape, method=log.method, map=shown))

    def make_ready(self) -> None:
        """Instantiate, upload, first and steady replays, update, re-instantiate."""
        log, session, path = self._log, self._session, self.path
        log.measured(session, Phase.INSTANTIATE, path.instantiate)
        log.measured(session, Phase.UPLOAD, path.upload)
        log.measured(session, Phase.FIRST_REPLAY, path.launch)
        steady(log, session, path.launch)
        result = log.measured(session, Phase.UPDATE, path.update)
        if not result.ok:
            raise DeviceError(result.result, "cuGraphExecUpdate", detail="an update that changes nothing")
        log.measured(session, Phase.REINSTANTIATE, path.reinstantiate)

    def measure_updates(self) -> None:
        """What updating costs; makes a second graph, so nothing that is compared or timed comes after it."""
        self._log.begin(Phase.UPDATE_CURVE)
        measure_update_curve(self._session, self.path, self._log)

    def static_outputs(self) -> list[Any]:
        """Device arrays among what the step returned at capture."""
        return correctness.device_arrays(self._session, self.path.outputs)

    def constants(self) -> tuple[Any, ...]:
        """Static inputs that keep the values of the capture."""
        return self.path.constants

    def requests(self) -> Mapping[PathName, measure.Request]:
        """The whole request, the replay without the copy, and the copy alone."""
        path, synchronize = self.path, self._session.adapter.synchronize

        def replay(_inputs: Inputs) -> None:
            path.launch()
            synchronize()

        def copy_in(inputs: Inputs) -> None:
            path.copy_in(inputs)
            synchronize()

        normal = measure.normal_request(self._session)
        graph = measure.graph_request(self._session, path)
        return {"normal": normal, "graph": graph, "replay": replay, "copy_in": copy_in}


class OwnMaking:
    """The path that ``build_graphed`` returns; when and how it makes graphs is its own affair."""

    nodes: NodeSet | None = None

    def __init__(self, session: Session, log: TrialLog, inputs: Inputs) -> None:
        self._session = session
        self._log = log
        self._inputs = inputs
        self.path = OwnPath(session)

    def prepare(self) -> None:
        """Run the normal step."""

        def normal() -> None:
            for _ in range(WARM_UP_REQUESTS):
                self._session.call(tuple(map(self._session.adapter.static_like, self._inputs)))

        self._log.measured(self._session, Phase.WARM_UP, normal)
        Between(self._session).call()

    def make(self) -> None:
        """Build it, and call it until it has its graphs."""
        self._log.measured(self._session, Phase.CAPTURE, lambda: self.path.make(self._inputs))

    def make_ready(self) -> None:
        """Steady requests: an own path has no other phases that could be told apart.

        Each has inputs at another address, as an application's have.
        """
        fresh = itertools.cycle(FreshInputs(self._session, [self._inputs]).take(STEADY_REPLAYS))
        steady(self._log, self._session, lambda: self.path.replay(next(fresh)))

    def measure_updates(self) -> None:
        """Nothing: only its maker could."""

    def static_outputs(self) -> list[Any]:
        """Unknown: such a path may return new arrays or its own."""
        return []

    def constants(self) -> tuple[Any, ...]:
        """Unknown."""
        return ()

    def requests(self) -> Mapping[PathName, measure.Request]:
        """The whole request of either path."""
        graph = measure.graph_request(self._session, self.path)
        return {"normal": measure.normal_request(self._session), "graph": graph}


def afterwards_of(
    session: Session,
    log: TrialLog,
    making: Making,
    expected: correctness.Expectation,
    made_at: Mapping[str, int],
) -> Afterwards:
    """What compares the paths again later; ``made_at`` are the addresses of state when the path was made."""
    return Afterwards(
        session,
        making.path.replay,
        expected,
        log,
        made_at=made_at,
        static=making.static_outputs(),
        constants=making.constants(),
    )


def steady(log: TrialLog, session: Session, replay: Callable[[], object]) -> None:
    """The median of some replays, each synchronised."""
    log.begin(Phase.STEADY_REPLAY)
    clock, times = session.device.clock_ns, []
    for _ in range(STEADY_REPLAYS):
        start = clock()
        replay()
        session.adapter.synchronize()
        times.append(clock() - start)
    median = round(statistics.median(times))
    log.cost(median, stalled_ns=sum(each - median for each in times if each > STALL * median))
    log.memory(session)


def with_normal(nodes: NodeSet, kernels: Counts | NotMeasured, copies: Counts | NotMeasured) -> NodeSet:
    """``nodes`` with what one request of the normal path ran."""
    return structs.replace(nodes, normal_kernels=kernels, normal_copies=copies)


def _explicit_source(session: Session) -> ExplicitSource:
    workload, build = session.workload, session.workload.build_explicit
    assert build is not None, "asked for only where the workload has it"

    def built(graph: Any) -> Any:
        what = f"build_explicit({session.shape_name})"
        return call_user(build, session.shape, graph, workload=workload, what=what)

    return ExplicitSource(session.adapter, session.device, built, where=workload.where("build_explicit"))
