"""Graphs of the CUDA driver: nodes, instantiation, launch, update."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from cudagraph_gate.device.cuda_launch import compile_kernel, kernel_parameters
from cudagraph_gate.device.cuda_status import call, driver
from cudagraph_gate.device.port import (
    DeviceArray,
    Graph,
    Kernel,
    LaunchShape,
    Node,
    NodeInfo,
    NodeKind,
    Stream,
    UpdateResult,
)
from cudagraph_gate.errors import DeviceError, device_error

_KINDS: Final[dict[str, NodeKind]] = {
    "CU_GRAPH_NODE_TYPE_KERNEL": "kernel",
    "CU_GRAPH_NODE_TYPE_MEMCPY": "memcpy",
    "CU_GRAPH_NODE_TYPE_MEMSET": "memset",
    "CU_GRAPH_NODE_TYPE_HOST": "host",
    "CU_GRAPH_NODE_TYPE_EMPTY": "empty",
    "CU_GRAPH_NODE_TYPE_MEM_ALLOC": "alloc",
    "CU_GRAPH_NODE_TYPE_MEM_FREE": "free",
    "CU_GRAPH_NODE_TYPE_EVENT_RECORD": "event",
    "CU_GRAPH_NODE_TYPE_WAIT_EVENT": "event",
    "CU_GRAPH_NODE_TYPE_GRAPH": "child",
}


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
        self._destroyed = False

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
        params = bindings.CUDA_MEMCPY3D()
        params.srcMemoryType = params.dstMemoryType = bindings.CUmemorytype.CU_MEMORYTYPE_DEVICE
        params.srcDevice, params.dstDevice = source.pointer, target.pointer
        params.WidthInBytes, params.Height, params.Depth = target.nbytes, 1, 1
        return self._add(bindings.cuGraphAddMemcpyNode, after, params, call(bindings.cuCtxGetCurrent))

    def add_fill(self, target: DeviceArray, byte: int, after: Sequence[Node] = ()) -> Node:
        """Add a memset node."""
        bindings = driver()
        params = bindings.CUDA_MEMSET_NODE_PARAMS()
        params.dst, params.value, params.elementSize = target.pointer, byte, 1
        params.width, params.height, params.pitch = target.nbytes, 1, 0
        return self._add(bindings.cuGraphAddMemsetNode, after, params, call(bindings.cuCtxGetCurrent))

    def _add(self, function: Any, after: Sequence[Node], *params: Any) -> Node:
        before = [node.handle for node in after if isinstance(node, CudaNode)]
        index = len(self._handles())
        handle = call(function, self._live(), before, len(before), *params)
        return CudaNode(handle, _node_info(index, handle))

    # --- reading ------------------------------------------------------------------------------------
    def nodes(self) -> tuple[NodeInfo, ...]:
        """All nodes, in the driver's order."""
        return tuple(_node_info(index, handle) for index, handle in enumerate(self._handles()))

    def edges(self) -> tuple[tuple[int, int], ...]:
        """Dependencies as pairs of node indices."""
        bindings = driver()
        *_lists, count = call(bindings.cuGraphGetEdges, self._live(), 0)
        sources, targets, *_rest = call(bindings.cuGraphGetEdges, self._live(), count)
        index = {int(handle): place for place, handle in enumerate(self._handles())}
        pairs = zip(sources[:count], targets[:count], strict=True)
        return tuple((index[int(source)], index[int(target)]) for source, target in pairs)

    def _handles(self) -> list[Any]:
        bindings = driver()
        _none, count = call(bindings.cuGraphGetNodes, self._live(), 0)
        handles, count = call(bindings.cuGraphGetNodes, self._live(), count)
        return list(handles[:count])

    def _live(self) -> Any:
        if self._destroyed:
            raise device_error("CUDA_ERROR_INVALID_VALUE", "cuGraph", detail="the graph was destroyed")
        return self._handle

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
        call(
            driver().cuGraphExecKernelNodeSetParams, self._live(), self._source._handles()[node.index], params
        )

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


def _stream_handle(stream: Stream) -> Any:
    return stream.handle  # type: ignore[attr-defined]


def _node_info(index: int, handle: Any) -> NodeInfo:
    bindings = driver()
    kind = _KINDS.get(call(bindings.cuGraphNodeGetType, handle).name, "other")
    if kind == "kernel":
        params = call(bindings.cuGraphKernelNodeGetParams, handle)
        shape = LaunchShape(
            (params.gridDimX, params.gridDimY, params.gridDimZ),
            (params.blockDimX, params.blockDimY, params.blockDimZ),
        )
        return NodeInfo(index, kind, _kernel_name(params), shape)
    if kind == "memcpy":
        copy = call(bindings.cuGraphMemcpyNodeGetParams, handle)
        return NodeInfo(index, kind, kind, nbytes=copy.WidthInBytes * copy.Height * copy.Depth)
    if kind == "memset":
        fill = call(bindings.cuGraphMemsetNodeGetParams, handle)
        return NodeInfo(index, kind, kind, nbytes=fill.elementSize * fill.width * fill.height)
    return NodeInfo(index, kind, kind)


def _kernel_name(params: Any) -> str:
    bindings = driver()
    try:
        if int(params.func):
            name = call(bindings.cuFuncGetName, params.func)
        else:
            name = call(bindings.cuKernelGetName, params.kern)
    except DeviceError as error:
        return f"unnamed kernel ({error.code})"
    return name.decode() if isinstance(name, bytes) else str(name)
