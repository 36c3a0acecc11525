"""Graphs of the CUDA driver: nodes, instantiation, launch, update."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cudagraph_gate.device.cuda_launch import compile_kernel, kernel_parameters
from cudagraph_gate.device.cuda_nodes import arguments_of, node_count, node_handles, node_info
from cudagraph_gate.device.cuda_status import call, driver
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
from cudagraph_gate.errors import DeviceError, StickyError, device_error


@dataclass(frozen=True)
class CudaNode:
    """A node that was added to an explicit graph."""

    handle: Any
    info: NodeInfo


class CudaGraph:
    """A graph: captured here, captured by another library (its ``owner``), or built node by node."""

    def __init__(self, handle: Any, compute_capability: tuple[int, int], owner: object = None) -> None:
        self._handle = handle
        self._compute_capability = compute_capability
        self._owner = owner
        self._definition: Any = None
        self._destroyed = False

    @classmethod
    def explicit(cls, compute_capability: tuple[int, int]) -> CudaGraph:
        """An empty graph, which cuda.core owns and can build too."""
        from cuda.core.graph import GraphDefinition

        definition = GraphDefinition()
        graph = cls(definition.handle, compute_capability, owner=definition)
        graph._definition = definition
        return graph

    # --- building -----------------------------------------------------------------------------------
    def add_kernel(
        self, kernel: Kernel, shape: LaunchShape, args: Sequence[Any], after: Sequence[Node] = ()
    ) -> Node:
        """Add a kernel node."""
        params, _keep = kernel_node_params(kernel, shape, args, self._compute_capability)
        return self._add(driver().cuGraphAddKernelNode, after, params)

    def add_copy(self, target: DeviceArray, source: DeviceArray, after: Sequence[Node] = ()) -> Node:
        """Add a device-to-device copy node."""
        bindings = driver()
        params = _copy_params(target, source)
        return self._add(bindings.cuGraphAddMemcpyNode, after, params, call(bindings.cuCtxGetCurrent))

    def add_fill(self, target: DeviceArray, byte: int, after: Sequence[Node] = ()) -> Node:
        """Add a memset node."""
        bindings = driver()
        params = bindings.CUDA_MEMSET_NODE_PARAMS()
        params.dst, params.value, params.elementSize = target.pointer, byte, 1
        params.width, params.height, params.pitch = target.nbytes, 1, 0
        return self._add(bindings.cuGraphAddMemsetNode, after, params, call(bindings.cuCtxGetCurrent))

    @property
    def definition(self) -> Any:
        """cuda.core's ``GraphDefinition`` of this graph, for the node types that the port does not have.

        Nodes that it adds may stand in ``after`` of the port's. Raises CUDA_ERROR_NOT_SUPPORTED for a graph
        that was captured.
        """
        self.require_live()
        if self._definition is None:
            detail = "a captured graph has none"
            raise device_error("CUDA_ERROR_NOT_SUPPORTED", "graph.definition", detail=detail)
        return self._definition

    def _add(self, function: Any, after: Sequence[Node], *params: Any) -> Node:
        before = [_node_handle(node, function.__name__) for node in after]
        index = node_count(self._live())
        handle = call(function, self._live(), before, len(before), *params)
        return CudaNode(handle, node_info(index, handle))

    # --- reading ------------------------------------------------------------------------------------
    def nodes(self) -> tuple[NodeInfo, ...]:
        """All nodes, in the driver's order."""
        return tuple(node_info(index, handle) for index, handle in enumerate(self._handles()))

    def arguments(self) -> tuple[tuple[ArgumentWord, ...], ...]:
        """What was recorded with each node."""
        return tuple(map(arguments_of, self._handles()))

    def edges(self) -> tuple[tuple[int, int], ...]:
        """Dependencies as pairs of node indices."""
        bindings = driver()
        *_lists, count = call(bindings.cuGraphGetEdges, self._live(), 0)
        sources, targets, *_rest = call(bindings.cuGraphGetEdges, self._live(), count)
        index = {int(handle): place for place, handle in enumerate(self._handles())}
        pairs = zip(sources[:count], targets[:count], strict=True)
        return tuple((index[int(source)], index[int(target)]) for source, target in pairs)

    def _handles(self) -> list[Any]:
        return node_handles(self._live())

    def _live(self) -> Any:
        self.require_live()
        return self._handle

    def require_live(self) -> None:
        """Raise CUDA_ERROR_INVALID_VALUE when the graph was destroyed."""
        if self._destroyed:
            raise device_error("CUDA_ERROR_INVALID_VALUE", "cuGraph", detail="the graph was destroyed")

    # --- running ------------------------------------------------------------------------------------
    def instantiate(self) -> CudaExecutableGraph:
        """Build an executable graph."""
        handle = call(driver().cuGraphInstantiate, self._live(), 0)
        return CudaExecutableGraph(handle, self, self._compute_capability)

    def adopt_executable(self, handle: int, owner: object) -> CudaExecutableGraph:
        """The executable that another library made of this graph and keeps alive."""
        executable = driver().CUgraphExec(handle)
        return CudaExecutableGraph(executable, self, self._compute_capability, owner=owner)

    def destroy(self) -> None:
        """Free the graph, unless another library owns it."""
        if not self._destroyed and self._owner is None:
            call(driver().cuGraphDestroy, self._handle)
        self._destroyed = True
        self._owner = self._definition = None


class CudaExecutableGraph:
    """An instantiated graph; the driver needs the source graph's nodes for single-node updates."""

    def __init__(
        self,
        handle: Any,
        source: CudaGraph,
        compute_capability: tuple[int, int],
        owner: object = None,
    ) -> None:
        self._handle = handle
        self._owner = owner
        self._source = source
        self._compute_capability = compute_capability
        self._node_handles: list[Any] | None = None

    def upload(self, stream: Stream) -> None:
        """Send it to the device."""
        call(driver().cuGraphUpload, self._live(), _stream_handle(stream))

    def launch(self, stream: Stream) -> None:
        """Enqueue one replay."""
        call(driver().cuGraphLaunch, self._live(), _stream_handle(stream))

    def update(self, graph: Graph) -> UpdateResult:
        """Take over another graph's parameters."""
        if not isinstance(graph, CudaGraph):
            raise TypeError("a graph of this device is needed")
        return exec_update(int(self._live()), int(graph._live()), graph._handles)

    def update_kernel(self, node: NodeInfo, kernel: Kernel, shape: LaunchShape, args: Sequence[Any]) -> None:
        """Change one kernel node."""
        params, _keep = kernel_node_params(kernel, shape, args, self._compute_capability)
        handle = self._node("cuGraphExecKernelNodeSetParams", node)
        with _naming(node):
            call(driver().cuGraphExecKernelNodeSetParams, self._live(), handle, params)

    def update_copy(self, node: NodeInfo, target: DeviceArray, source: DeviceArray) -> None:
        """Change one copy within the device."""
        bindings = driver()
        params = _copy_params(target, source)
        handle = self._node("cuGraphExecMemcpyNodeSetParams", node)
        with _naming(node):
            original = call(bindings.cuGraphMemcpyNodeGetParams, handle)
            unified = bindings.CUmemorytype.CU_MEMORYTYPE_UNIFIED
            # A captured node may leave the kind of its addresses to the driver: it stays as it was.
            if original.srcMemoryType == unified:
                params.srcMemoryType = unified
            if original.dstMemoryType == unified:
                params.dstMemoryType = unified
            context = call(bindings.cuCtxGetCurrent)
            call(bindings.cuGraphExecMemcpyNodeSetParams, self._live(), handle, params, context)

    def update_fill(self, node: NodeInfo, target: DeviceArray, byte: int) -> None:
        """Change one memset."""
        bindings = driver()
        name = "cuGraphExecMemsetNodeSetParams"
        handle = self._node(name, node)
        with _naming(node):
            params = call(bindings.cuGraphMemsetNodeGetParams, handle)
            if params.height != 1 or params.width * params.elementSize != target.nbytes:
                raise device_error("CUDA_ERROR_INVALID_VALUE", name)
            params.dst = target.pointer
            params.value = int.from_bytes(bytes([byte]) * params.elementSize, "little")
            context = call(bindings.cuCtxGetCurrent)
            call(bindings.cuGraphExecMemsetNodeSetParams, self._live(), handle, params, context)

    def retouch(self, nodes: Sequence[NodeInfo]) -> UpdateResult:
        """Set nodes to what their graph says."""
        bindings, executable = driver(), self._live()
        context = call(bindings.cuCtxGetCurrent)
        setters: dict[str, tuple[Any, Any, tuple[Any, ...]]] = {
            "kernel": (bindings.cuGraphKernelNodeGetParams, bindings.cuGraphExecKernelNodeSetParams, ()),
            "memcpy": (
                bindings.cuGraphMemcpyNodeGetParams,
                bindings.cuGraphExecMemcpyNodeSetParams,
                (context,),
            ),
            "memset": (
                bindings.cuGraphMemsetNodeGetParams,
                bindings.cuGraphExecMemsetNodeSetParams,
                (context,),
            ),
        }
        for node in nodes:
            if node.kind not in setters:
                return UpdateResult(ok=False, result="CUDA_ERROR_NOT_SUPPORTED", node=node.index)
            get, put, more = setters[node.kind]
            try:
                handle = self._node(put.__name__, node)
                call(put, executable, handle, call(get, handle), *more)
            except StickyError:
                raise
            except DeviceError as error:
                return UpdateResult(ok=False, result=error.code, node=node.index)
        return UpdateResult(ok=True, result="CUDA_SUCCESS")

    def _node(self, name: str, node: NodeInfo) -> Any:
        """The source graph's node, by which the driver knows the executable's; looked up once for all."""
        self._source.require_live()  # its nodes would be dangling
        if self._node_handles is None:
            self._node_handles = self._source._handles()
        if not 0 <= node.index < len(self._node_handles):
            raise device_error("CUDA_ERROR_INVALID_VALUE", name, detail=f"node {node.index}")
        return self._node_handles[node.index]

    def destroy(self) -> None:
        """Free the executable."""
        if self._handle is not None and self._owner is None:
            call(driver().cuGraphExecDestroy, self._handle)
        self._handle = None

    def _live(self) -> Any:
        if self._handle is None:
            raise device_error(
                "CUDA_ERROR_INVALID_HANDLE", "cuGraphLaunch", detail="the executable was destroyed"
            )
        return self._handle


class _UpdateInfo(ctypes.Structure):
    """``CUgraphExecUpdateResultInfo``."""

    _fields_ = (
        ("result", ctypes.c_int),
        ("error_node", ctypes.c_void_p),
        ("error_from_node", ctypes.c_void_p),
    )


def exec_update(executable: int, graph: int, nodes: Callable[[], list[Any]]) -> UpdateResult:
    """``cuGraphExecUpdate`` by ctypes: the bindings drop the driver's reason when the update fails."""
    bindings = driver()
    info = _UpdateInfo()
    number = driver_library().cuGraphExecUpdate_v2(
        ctypes.c_void_p(executable), ctypes.c_void_p(graph), ctypes.byref(info)
    )
    status = bindings.CUresult(number)
    if status not in (
        bindings.CUresult.CUDA_SUCCESS,
        bindings.CUresult.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
    ):
        raise device_error(status.name, "cuGraphExecUpdate")
    result = bindings.CUgraphExecUpdateResult(info.result).name
    if number == 0:
        return UpdateResult(ok=True, result=result)
    places = {int(handle): place for place, handle in enumerate(nodes())}
    return UpdateResult(ok=False, result=result, node=places.get(info.error_node or 0))


@lru_cache(maxsize=1)
def driver_library() -> ctypes.CDLL:
    """The driver by ctypes; a device loads it when it opens, so that no update pays for it."""
    return ctypes.CDLL("libcuda.so.1")


def kernel_node_params(
    kernel: Kernel, shape: LaunchShape, args: Sequence[Any], compute_capability: tuple[int, int]
) -> tuple[Any, Any]:
    """Parameters of a kernel node, and what must stay alive until the driver has copied them."""
    bindings = driver()
    arguments = kernel_parameters(kernel, args)
    params = bindings.CUDA_KERNEL_NODE_PARAMS()
    params.func = call(bindings.cuKernelGetFunction, compile_kernel(kernel, compute_capability).handle)
    params.gridDimX, params.gridDimY, params.gridDimZ = shape.grid
    params.blockDimX, params.blockDimY, params.blockDimZ = shape.block
    params.sharedMemBytes, params.kernelParams, params.extra = 0, arguments.address, 0
    return params, arguments


def _copy_params(target: DeviceArray, source: DeviceArray) -> Any:
    if target.nbytes != source.nbytes:
        raise ValueError(f"copy of {source.nbytes} bytes into {target.nbytes}")
    bindings = driver()
    params = bindings.CUDA_MEMCPY3D()
    params.srcMemoryType = params.dstMemoryType = bindings.CUmemorytype.CU_MEMORYTYPE_DEVICE
    params.srcDevice, params.dstDevice = source.pointer, target.pointer
    params.WidthInBytes, params.Height, params.Depth = target.nbytes, 1, 1
    return params


@contextmanager
def _naming(node: NodeInfo) -> Iterator[None]:
    """Add the node to what the driver refuses."""
    try:
        yield
    except DeviceError as error:
        raise device_error(error.code, error.call, detail=f"node {node.index}") from error


def _node_handle(node: Any, name: str) -> Any:
    """The raw node of the port's or of cuda.core's; the driver refuses one of another graph."""
    handle = getattr(node, "handle", None)
    if handle is None:
        raise device_error("CUDA_ERROR_INVALID_VALUE", name, detail=f"{type(node).__name__} is no node")
    return handle


def _stream_handle(stream: Stream) -> Any:
    return stream.handle  # type: ignore[attr-defined]
