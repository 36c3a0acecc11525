"""What updating an executable graph costs, over the number of changed nodes.

Measured on an executable of its own, made from the same graph: the one that serves requests is not touched,
so whatever the driver refuses or an update leaves behind, its replays stay as they are.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, Literal

from cudagraph_gate.adapters import CapturedStep
from cudagraph_gate.device.port import ExecutableGraph, Graph, NodeInfo, UpdateResult
from cudagraph_gate.errors import DeviceError, StickyError
from cudagraph_gate.graphs import GraphedStep
from cudagraph_gate.model import Measured, NotMeasured
from cudagraph_gate.pilot.session import Session
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import UpdateCost

REPETITIONS: Final = 9
"""Updates a point is the median of: host time in us, with rare interruptions by the system."""
_NodeKind = Literal["kernel", "memcpy", "memset"]
_NODE_KINDS: Final[tuple[_NodeKind, ...]] = ("kernel", "memcpy", "memset")


def measure_update_curve(session: Session, graphed: GraphedStep, log: TrialLog) -> None:
    """Append the ``UpdateCost`` records of a graphed step that is ready.

    First whole-graph updates, in turns to a second graph of the step, whose static inputs and buffers lie
    elsewhere, and back. Then 1, 2, 4, … nodes of each kind up to all of them, set one by one to what the
    graph says: a captured kernel's arguments are opaque, but setting them again costs what changing them
    does. Making the second graph calls the step once more. What can't be done is a record too, with the
    reason; StickyError passes.
    """
    graph = graphed.graph
    if graph is None:
        raise RuntimeError(f"there is no graph in state {graphed.state}")
    nodes = graph.nodes()
    try:
        with _executable(session, graph) as executable:
            log.append(_whole(session, graphed, executable, log))
            for kind in _NODE_KINDS:
                of_kind = [node for node in nodes if node.kind == kind]
                for count in counts(len(of_kind)):
                    log.append(_nodes(session, executable, of_kind[:count], kind, len(nodes), log))
    except StickyError:
        raise
    except DeviceError as error:  # a graph that allocates may have one executable only
        log.append(_unmeasured(log, len(nodes), f"no second executable: {error}", error.code))


def counts(nodes: int) -> list[int]:
    """Numbers of changed nodes that are tried: powers of two, and all.

    >>> counts(6), counts(1), counts(0)
    ([1, 2, 4, 6], [1], [])
    """
    powers = [1 << exponent for exponent in range(nodes.bit_length())]
    return sorted({*powers, nodes} - {0})


@contextmanager
def _executable(session: Session, graph: Graph) -> Iterator[ExecutableGraph]:
    executable = graph.instantiate()
    try:
        executable.upload(session.adapter.current_stream())
        session.adapter.synchronize()
        yield executable
    finally:
        executable.destroy()


def _whole(session: Session, graphed: GraphedStep, executable: ExecutableGraph, log: TrialLog) -> UpdateCost:
    own = graphed.graph
    assert own is not None, "checked by the caller"
    nodes = len(own.nodes())
    static: tuple[Any, ...] = ()
    try:
        static = graphed.source.static_inputs(graphed.example)
        session.adapter.synchronize()
        second: CapturedStep = graphed.source.capture(static)
    except StickyError:
        raise
    except Exception as error:  # noqa: BLE001  (whatever the step raises when it is captured once more)
        with suppress(DeviceError, RuntimeError):
            session.adapter.recover()
        return _unmeasured(log, nodes, f"the step can't be captured a second time: {error}", "")
    try:
        updates = [partial(executable.update, graph) for graph in (second.graph, own)]
        elapsed, result = _median(session, updates * REPETITIONS)
    finally:
        second.graph.destroy()
    return _point(log, "whole", nodes, nodes, elapsed, result)


def _nodes(
    session: Session,
    executable: ExecutableGraph,
    changed: Sequence[NodeInfo],
    kind: _NodeKind,
    nodes: int,
    log: TrialLog,
) -> UpdateCost:
    elapsed, result = _median(session, [lambda: executable.retouch(changed)] * REPETITIONS)
    return _point(log, kind, len(changed), nodes, elapsed, result)


def _median(session: Session, updates: Sequence[Callable[[], UpdateResult]]) -> tuple[Measured, UpdateResult]:
    """Median host time of updates, in ns, and the driver's last answer; the first refusal ends it."""
    clock, times = session.device.clock_ns, []
    for update in updates:
        start = clock()
        result = update()
        times.append(clock() - start)
        if not result.ok:
            where = "" if result.node is None else f" at node {result.node}"
            return NotMeasured(reason=f"the driver refused: {result.result}{where}"), result
    return round(statistics.median(times)), result


def _point(
    log: TrialLog,
    kind: Literal["kernel", "memcpy", "memset", "whole"],
    changed: int,
    nodes: int,
    elapsed: Measured,
    result: UpdateResult,
) -> UpdateCost:
    return UpdateCost(
        shape=log.shape,
        method=log.method,
        kind=kind,
        changed_nodes=changed,
        nodes=nodes,
        elapsed=elapsed,
        result=result.result,
        node=result.node,
    )


def _unmeasured(log: TrialLog, nodes: int, reason: str, code: str) -> UpdateCost:
    refused = UpdateResult(ok=False, result=code)
    return _point(log, "whole", nodes, nodes, NotMeasured(reason=reason), refused)
