"""What the driver tells of a graph's nodes."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from itertools import count
from typing import Any, Final, Literal

from cudagraph_gate.device.cuda_status import call, driver
from cudagraph_gate.device.port import PAGEABLE, ArgumentWord, LaunchShape, NodeInfo, NodeKind
from cudagraph_gate.errors import DeviceError

_PREFIX: Final = "CU_GRAPH_NODE_TYPE_"
_KINDS: Final[dict[str, NodeKind]] = {
    "KERNEL": "kernel",
    "MEMCPY": "memcpy",
    "MEMSET": "memset",
    "HOST": "host",
    "EMPTY": "empty",
    "MEM_ALLOC": "alloc",
    "MEM_FREE": "free",
    "EVENT_RECORD": "event",
    "WAIT_EVENT": "event",
    "GRAPH": "child",
    "CONDITIONAL": "conditional",
}
WORD: Final = 8
"""Bytes: an address, or a scalar that stands alone."""
LARGEST_ARGUMENT: Final = 32
"""Bytes: scalars, and small functors that hold some. Larger ones are tables of pointers, whose unused entries
hold whatever was on the stack, and tensor maps, which hold addresses in a form of their own."""
_PINNED: Final = "pinned memory"
_MANAGED: Final = "managed memory"
_DEVICE: Final = "device memory"


def node_info(index: int, handle: Any) -> NodeInfo:
    """What the node at place ``index`` does. Raises DeviceError where the driver does not say."""
    bindings = driver()
    type_name = call(bindings.cuGraphNodeGetType, handle).name.removeprefix(_PREFIX)
    kind = _KINDS.get(type_name, "other")
    if kind == "kernel":
        return _kernel(index, call(bindings.cuGraphKernelNodeGetParams, handle))
    if kind == "memcpy":
        copy = call(bindings.cuGraphMemcpyNodeGetParams, handle)
        nbytes = copy.WidthInBytes * copy.Height * copy.Depth
        return NodeInfo(index, kind, kind, nbytes=nbytes, detail=_direction(copy))
    if kind == "memset":
        fill = call(bindings.cuGraphMemsetNodeGetParams, handle)
        return NodeInfo(index, kind, kind, nbytes=fill.elementSize * fill.width * fill.height)
    if kind == "alloc":
        nbytes = int(call(bindings.cuGraphMemAllocNodeGetParams, handle).bytesize)
        return NodeInfo(index, kind, kind, nbytes=nbytes)
    if kind == "child":
        inside = _nodes_inside(call(bindings.cuGraphChildGraphNodeGetGraph, handle))
        return NodeInfo(index, kind, kind, detail=f"graph of {inside} node{'s' * (inside != 1)}")
    told = type_name.lower().replace("_", " ") if kind in ("event", "other") else ""
    return NodeInfo(index, kind, kind, detail=told)


def arguments_of(handle: Any) -> tuple[ArgumentWord, ...]:
    """What a kernel or memset node was recorded with; empty for other nodes and where it is not told."""
    bindings = driver()
    kind = call(bindings.cuGraphNodeGetType, handle).name.removeprefix(_PREFIX)
    if kind == "MEMSET":
        fill = call(bindings.cuGraphMemsetNodeGetParams, handle)
        return (ArgumentWord(0, 0, int(fill.value).to_bytes(4, sys.byteorder), is_address=False),)
    if kind != "KERNEL":
        return ()
    params = call(bindings.cuGraphKernelNodeGetParams, handle)
    pointers = int(params.kernelParams or 0)
    return tuple(_kernel_words(params, pointers)) if pointers else ()


def _kernel_words(params: Any, pointers: int) -> Iterator[ArgumentWord]:
    for number, size in enumerate(_argument_sizes(params)):
        if size > LARGEST_ARGUMENT:
            continue
        address = ctypes.c_void_p.from_address(pointers + number * ctypes.sizeof(ctypes.c_void_p)).value
        if not address:
            return
        held = ctypes.string_at(address, size)
        for offset in range(0, size, WORD):
            word = held[offset : offset + WORD]
            known = len(word) == WORD and bool(_memory_at(int.from_bytes(word, sys.byteorder)))
            yield ArgumentWord(number, offset, word, is_address=known)


def _argument_sizes(params: Any) -> Iterator[int]:
    """Bytes of each of a kernel's arguments; nothing where the driver does not say."""
    bindings = driver()
    asked = (bindings.cuFuncGetParamInfo, params.func)
    if not int(params.func):
        asked = (bindings.cuKernelGetParamInfo, params.kern)
    for number in count():
        try:
            _offset, size = call(*asked, number)
        except DeviceError:  # past the last one
            return
        yield int(size)


def node_handles(graph: Any) -> list[Any]:
    """Raw nodes of a raw graph, in the driver's order."""
    bindings = driver()
    handles, count = call(bindings.cuGraphGetNodes, graph, node_count(graph))
    return list(handles[:count])


def node_count(graph: Any) -> int:
    """How many nodes a raw graph has."""
    _none, count = call(driver().cuGraphGetNodes, graph, 0)
    return int(count)


def _nodes_inside(graph: Any) -> int:
    """Nodes of a graph and of the graphs in it."""
    bindings = driver()
    total = 0
    for handle in node_handles(graph):
        total += 1
        if call(bindings.cuGraphNodeGetType, handle).name == f"{_PREFIX}GRAPH":
            total += _nodes_inside(call(bindings.cuGraphChildGraphNodeGetGraph, handle))
    return total


def _kernel(index: int, params: Any) -> NodeInfo:
    shape = LaunchShape(
        (params.gridDimX, params.gridDimY, params.gridDimZ),
        (params.blockDimX, params.blockDimY, params.blockDimZ),
    )
    return NodeInfo(index, "kernel", _kernel_name(params), shape)


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


def _direction(copy: Any) -> str:
    """``HtoD from pageable memory`` and the like; empty where an end is not known."""
    source, target = _end(copy, "src"), _end(copy, "dst")
    if not source or not target:
        return ""
    if source == target == _DEVICE:
        return "DtoD"
    if target == _DEVICE:
        return f"HtoD from {source}"
    if source == _DEVICE:
        return f"DtoH to {target}"
    return f"HtoH from {source} to {target}"


def _end(copy: Any, side: Literal["src", "dst"]) -> str:
    """What kind of memory one end of a copy is in; empty where the driver does not know."""
    kinds = driver().CUmemorytype
    try:
        kind = getattr(copy, f"{side}MemoryType")
    except ValueError:  # a number that the bindings have no name for
        return ""
    if kind == kinds.CU_MEMORYTYPE_HOST:
        known = _memory_at(int(getattr(copy, f"{side}Host") or 0))
        return known if known in (_PINNED, _MANAGED) else PAGEABLE
    if kind == kinds.CU_MEMORYTYPE_UNIFIED:
        return _memory_at(int(getattr(copy, f"{side}Device")))
    return _DEVICE


def _memory_at(address: int) -> str:
    """By the driver's own records; empty for an address that it does not know (or no more)."""
    bindings = driver()
    attributes = bindings.CUpointer_attribute
    try:
        if int(call(bindings.cuPointerGetAttribute, attributes.CU_POINTER_ATTRIBUTE_IS_MANAGED, address)):
            return _MANAGED
        kind = int(call(bindings.cuPointerGetAttribute, attributes.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address))
    except DeviceError as error:
        if error.code != "CUDA_ERROR_INVALID_VALUE":
            raise
        return ""
    return _PINNED if kind == int(bindings.CUmemorytype.CU_MEMORYTYPE_HOST) else _DEVICE
