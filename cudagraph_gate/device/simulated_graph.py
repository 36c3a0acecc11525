"""Graphs of the simulated device: nodes, instantiation, replay, update.

Nodes hold addresses and scalars only. A replay runs the references in topological order on whatever the
addresses hold by then, so memory that was freed and used again gives wrong numbers, as on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cudagraph_gate.device.port import (
    ArgumentWord,
    DeviceArray,
    Graph,
    Kernel,
    LaunchShape,
    Node,
    NodeInfo,
    Stream,
    UpdateResult,
)
from cudagraph_gate.device.simulated_engine import Engine
from cudagraph_gate.device.simulated_memory import Region
from cudagraph_gate.device.simulated_stream import SimulatedStream, simulated_stream
from cudagraph_gate.device.simulated_trace import HostCall
from cudagraph_gate.device.simulated_work import CopyWork, FillWork, KernelWork, Work
from cudagraph_gate.errors import DeviceError, device_error

Edges = tuple[tuple[int, int], ...]

UPDATE_SUCCESS = "CU_GRAPH_EXEC_UPDATE_SUCCESS"
_UPDATE_ERROR = "CU_GRAPH_EXEC_UPDATE_ERROR_"


@dataclass(frozen=True)
class SimulatedNode:
    """A node that was added to an explicit graph."""

    graph: SimulatedGraph
    info: NodeInfo


class SimulatedGraph:
    """A graph, captured or built node by node; edges always lead to later nodes."""

    def __init__(
        self, engine: Engine, nodes: Sequence[Work] = (), edges: Sequence[tuple[int, int]] = ()
    ) -> None:
        self._engine = engine
        self._nodes = list(nodes)
        self._edges = list(edges)
        self._destroyed = False

    # --- building -----------------------------------------------------------------------------------
    def add_kernel(
        self, kernel: Kernel, shape: LaunchShape, args: Sequence[Any], after: Sequence[Node] = ()
    ) -> Node:
        """Add a kernel node."""
        return self._add("cuGraphAddKernelNode", KernelWork.of(kernel, shape, args), after)

    def add_copy(self, target: DeviceArray, source: DeviceArray, after: Sequence[Node] = ()) -> Node:
        """Add a device-to-device copy node."""
        work = CopyWork.of(Region.of(target), Region.of(source))
        return self._add("cuGraphAddMemcpyNode", work, after)

    def add_fill(self, target: DeviceArray, byte: int, after: Sequence[Node] = ()) -> Node:
        """Add a memset node."""
        return self._add("cuGraphAddMemsetNode", FillWork(Region.of(target), byte), after)

    def _add(self, name: str, work: Work, after: Sequence[Node]) -> Node:
        with self._engine.call(name, self._engine.spec.capture_call_ns):
            self.require_live(name)
            before = sorted({self._index(node, name) for node in after})
            index = len(self._nodes)
            self._nodes.append(work)
            self._edges.extend((source, index) for source in before)
            return SimulatedNode(self, work.node_info(index))

    def _index(self, node: Node, call: str) -> int:
        if not isinstance(node, SimulatedNode) or node.graph is not self:
            raise device_error("CUDA_ERROR_INVALID_VALUE", call, detail="the node is not of this graph")
        return node.info.index

    # --- reading ------------------------------------------------------------------------------------
    def nodes(self) -> tuple[NodeInfo, ...]:
        """All nodes, in the order they were added or captured."""
        self.require_live("cuGraphGetNodes")
        return tuple(work.node_info(index) for index, work in enumerate(self._nodes))

    def arguments(self) -> tuple[tuple[ArgumentWord, ...], ...]:
        """What was recorded with each node."""
        self.require_live("cuGraphKernelNodeGetParams")
        return tuple(work.argument_words(self._engine.memory) for work in self._nodes)

    def edges(self) -> Edges:
        """Dependencies as pairs of node indices."""
        self.require_live("cuGraphGetEdges")
        return tuple(self._edges)

    def works(self) -> tuple[Work, ...]:
        """What each node does."""
        return tuple(self._nodes)

    def require_live(self, call: str) -> None:
        """Raise CUDA_ERROR_INVALID_VALUE when the graph was destroyed."""
        if self._destroyed:
            raise device_error("CUDA_ERROR_INVALID_VALUE", call, detail="the graph was destroyed")

    # --- running ------------------------------------------------------------------------------------
    def instantiate(self) -> SimulatedExecutableGraph:
        """Build an executable graph. Raises DeviceMemoryError when its memory is not free."""
        engine = self._engine
        nodes = len(self._nodes)
        held_bytes = nodes * engine.spec.instantiate_bytes_per_node
        with engine.call("cuGraphInstantiate", nodes * engine.spec.instantiate_ns_per_node) as call:
            self.require_live(call.name)
            engine.fail_due_allocation(call)
            engine.memory.reserve(held_bytes, call.name)
            return SimulatedExecutableGraph(engine, self, held_bytes)

    def destroy(self) -> None:
        """Free the graph."""
        self._destroyed = True


class SimulatedExecutableGraph:
    """An instantiated graph. Its launches run one after another, whatever their streams."""

    def __init__(self, engine: Engine, source: SimulatedGraph, held_bytes: int) -> None:
        self._engine = engine
        self._source = source
        self._nodes = list(source.works())
        self._edges = source.edges()
        self._held_bytes = held_bytes
        self._number = next(engine.graph_numbers)
        self._uploaded = False
        self._done_ns = 0
        self._destroyed = False

    def upload(self, stream: Stream) -> None:
        """Send it to the device: takes device time on the stream."""
        engine, queue = self._engine, simulated_stream(stream)
        with engine.call("cuGraphUpload", engine.spec.graph_launch_call_ns) as call:
            self._require_usable(call, queue)
            engine.finish(queue, engine.earliest_start_ns(queue) + self._upload_ns())

    def launch(self, stream: Stream) -> None:
        """Enqueue one replay; the first one uploads first, if nobody did."""
        engine, queue = self._engine, simulated_stream(stream)
        with engine.call("cuGraphLaunch", engine.spec.graph_launch_call_ns) as call:
            self._require_usable(call, queue)
            engine.captures.forbid_implicit(call.name, queue)
            begin_ns = max(engine.earliest_start_ns(queue), self._done_ns) + self._upload_ns()
            engine.lose_if_due()
            self._done_ns = self._replay(call, queue, begin_ns)
            engine.finish(queue, self._done_ns)

    def _upload_ns(self) -> int:
        if self._uploaded:
            return 0
        self._uploaded = True
        return len(self._nodes) * self._engine.spec.upload_ns_per_node

    def _replay(self, call: HostCall, stream: SimulatedStream, begin_ns: int) -> int:
        engine = self._engine
        starts = [begin_ns] * len(self._nodes)
        done_ns = begin_ns
        successors = _successors(self._edges, len(self._nodes))
        for index, work in enumerate(self._nodes):
            if engine.lost is not None:
                break
            end_ns = engine.place(call, stream, work, starts[index], (self._number, index + 1))
            for target in successors[index]:
                starts[target] = max(starts[target], end_ns + engine.spec.node_gap_ns)
            done_ns = max(done_ns, end_ns)
        return done_ns

    # --- changing -----------------------------------------------------------------------------------
    def update(self, graph: Graph) -> UpdateResult:
        """Take over another graph's parameters."""
        if not isinstance(graph, SimulatedGraph):
            raise TypeError("a graph of this device is needed")
        spec = self._engine.spec
        cost_ns = spec.update_base_ns + len(self._nodes) * spec.update_ns_per_node
        with self._engine.call("cuGraphExecUpdate", cost_ns) as call:
            self._require_live(call)
            refused = _difference(self._nodes, self._edges, graph.works(), graph.edges())
            if refused is None:
                self._nodes = list(graph.works())
            return refused or UpdateResult(ok=True, result=UPDATE_SUCCESS)

    def update_kernel(self, node: NodeInfo, kernel: Kernel, shape: LaunchShape, args: Sequence[Any]) -> None:
        """Change one kernel node. Raises CUDA_ERROR_INVALID_VALUE for another kernel or no kernel node."""
        work = KernelWork.of(kernel, shape, args)
        with self._node_update("cuGraphExecKernelNodeSetParams", node) as (call, old):
            if not isinstance(old, KernelWork) or old.name != kernel.name:
                raise _refused(call, node)
            self._nodes[node.index] = work

    def update_copy(self, node: NodeInfo, target: DeviceArray, source: DeviceArray) -> None:
        """Change one copy within the device."""
        work = CopyWork.of(Region.of(target), Region.of(source))
        with self._node_update("cuGraphExecMemcpyNodeSetParams", node) as (call, old):
            if not isinstance(old, CopyWork) or old.name != work.name or work.nbytes == 0:
                raise _refused(call, node)
            self._engine.require_mapped(call, work)
            self._nodes[node.index] = work

    def update_fill(self, node: NodeInfo, target: DeviceArray, byte: int) -> None:
        """Change one memset."""
        work = FillWork(Region.of(target), byte)
        with self._node_update("cuGraphExecMemsetNodeSetParams", node) as (call, old):
            if not isinstance(old, FillWork) or old.nbytes != work.nbytes:
                raise _refused(call, node)
            self._engine.require_mapped(call, work)
            self._nodes[node.index] = work

    def retouch(self, nodes: Sequence[NodeInfo]) -> UpdateResult:
        """Set nodes to what their graph says."""
        works = self._source.works()
        for node in nodes:
            with self._engine.call("cuGraphExecNodeSetParams", self._engine.spec.update_base_ns) as call:
                self._require_updatable(call)
                if not 0 <= node.index < len(self._nodes):
                    return UpdateResult(ok=False, result="CUDA_ERROR_INVALID_VALUE", node=node.index)
                self._nodes[node.index] = works[node.index]
        return UpdateResult(ok=True, result="CUDA_SUCCESS")

    @contextmanager
    def _node_update(self, name: str, node: NodeInfo) -> Iterator[tuple[HostCall, Work]]:
        spec = self._engine.spec
        with self._engine.call(name, spec.update_base_ns + spec.update_ns_per_node) as call:
            self._require_updatable(call)
            if not 0 <= node.index < len(self._nodes):
                raise _refused(call, node)
            yield call, self._nodes[node.index]

    def _require_updatable(self, call: HostCall) -> None:
        self._require_live(call)
        self._source.require_live(call.name)

    def destroy(self) -> None:
        """Free the executable and the device memory it holds."""
        if self._destroyed:
            return
        with self._engine.call("cuGraphExecDestroy", self._engine.spec.memory_call_ns):
            self._destroyed = True
            self._engine.memory.give_back(self._held_bytes)

    def _require_live(self, call: HostCall) -> None:
        if self._destroyed:
            detail = "the executable was destroyed"
            raise device_error("CUDA_ERROR_INVALID_HANDLE", call.name, detail=detail)

    def _require_usable(self, call: HostCall, stream: SimulatedStream) -> None:
        self._require_live(call)
        if stream.capture is not None:
            stream.capture.require_valid(call.name)
            rules = self._engine.captures
            rules.violate("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", call.name, stream.capture)


def _refused(call: HostCall, node: NodeInfo) -> DeviceError:
    return device_error("CUDA_ERROR_INVALID_VALUE", call.name, detail=f"node {node.index}")


def _successors(edges: Edges, nodes: int) -> list[list[int]]:
    successors: list[list[int]] = [[] for _ in range(nodes)]
    for source, target in edges:
        successors[source].append(target)
    return successors


def _difference(
    nodes: Sequence[Work], edges: Edges, new_nodes: Sequence[Work], new_edges: Edges
) -> UpdateResult | None:
    """Why an executable can't take over a graph, or None when it can."""
    if len(nodes) != len(new_nodes) or set(edges) != set(new_edges):
        return UpdateResult(ok=False, result=f"{_UPDATE_ERROR}TOPOLOGY_CHANGED")
    for index, (old, new) in enumerate(zip(nodes, new_nodes, strict=True)):
        if old.kind != new.kind:
            return UpdateResult(ok=False, result=f"{_UPDATE_ERROR}NODE_TYPE_CHANGED", node=index)
        if old.name != new.name:
            # A copy's name is its direction, which belongs to its parameters.
            changed = "FUNCTION_CHANGED" if old.kind == "kernel" else "PARAMETERS_CHANGED"
            return UpdateResult(ok=False, result=f"{_UPDATE_ERROR}{changed}", node=index)
    return None
