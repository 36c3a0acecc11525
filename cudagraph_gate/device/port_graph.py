"""Graphs of a device in our words: nodes, what was recorded with them, executables and their updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from cudagraph_gate.device.port_work import DeviceArray, Kernel, LaunchShape, Stream

NodeKind = Literal[
    "kernel", "memcpy", "memset", "host", "empty", "alloc", "free", "event", "child", "conditional", "other"
]
PAGEABLE: Final = "pageable memory"
"""In a copy node's detail: ordinary host memory, neither pinned nor managed."""


@dataclass(frozen=True)
class NodeInfo:
    """One node of a graph. ``index`` is its position in the graph's node list; ``name`` a kernel's name.

    ``detail`` says more where it is known: of a copy its direction first (``HtoD from pageable memory``,
    ``DtoD``), of a child graph how many nodes are inside, of another kind the driver's name for it.
    """

    index: int
    kind: NodeKind
    name: str
    shape: LaunchShape | None = None
    nbytes: int | None = None
    detail: str = ""


@dataclass(frozen=True)
class UpdateResult:
    """What the driver answered to a whole-graph update: its result by name, and the offending node."""

    ok: bool
    result: str
    node: int | None = None


@dataclass(frozen=True)
class ArgumentWord:
    """Up to eight bytes of what a node was recorded with."""

    argument: int
    """Which of the kernel's arguments it is part of, from 0."""
    offset: int
    """Bytes into that argument."""
    value: bytes
    is_address: bool
    """Whether it is an address in memory that is allocated now: where data lies, not what it says."""


class Node(Protocol):
    """A node added to an explicit graph."""

    @property
    def info(self) -> NodeInfo:
        """What the node does."""


class ExecutableGraph(Protocol):
    """An instantiated graph."""

    def upload(self, stream: Stream) -> None:
        """Send the graph to the device without running it."""

    def launch(self, stream: Stream) -> None:
        """Enqueue one replay."""

    def update(self, graph: Graph) -> UpdateResult:
        """Take over the parameters of ``graph``, which must have the same topology."""

    def update_kernel(self, node: NodeInfo, kernel: Kernel, shape: LaunchShape, args: Sequence[Any]) -> None:
        """Change launch shape and arguments of one kernel node; the kernel itself stays the same.

        This and the two below name a node of the graph that the executable was instantiated from, which
        must still be there. A refusal raises DeviceError with the driver's name for it and leaves the
        executable as it was; launches that were enqueued before keep the old parameters.
        """

    def update_copy(self, node: NodeInfo, target: DeviceArray, source: DeviceArray) -> None:
        """Let one copy within the device copy between other arrays, also of another size than before.

        Raises ValueError for arrays of unequal sizes; CUDA_ERROR_INVALID_VALUE for a node that is no such
        copy, and for arrays without elements.
        """

    def update_fill(self, node: NodeInfo, target: DeviceArray, byte: int) -> None:
        """Let one memset fill another array of the same size, or with another byte.

        Raises CUDA_ERROR_INVALID_VALUE for another size or a node that is no memset of one row: the driver
        takes other sizes only where the work happens to fit, which nobody should rely on.
        """

    def retouch(self, nodes: Sequence[NodeInfo]) -> UpdateResult:
        """Set the parameters of kernel, copy and memset nodes to what their graph says, one by one.

        This undoes their updates. It stops at the first refusal, which the result names with its node.
        """

    def destroy(self) -> None:
        """Free the executable; a later launch raises DeviceError."""


class Graph(Protocol):
    """A graph: captured, or built node by node. Nodes keep a stable order."""

    def add_kernel(
        self, kernel: Kernel, shape: LaunchShape, args: Sequence[Any], after: Sequence[Node] = ()
    ) -> Node:
        """Add a kernel node that runs after the given nodes."""

    def add_copy(self, target: DeviceArray, source: DeviceArray, after: Sequence[Node] = ()) -> Node:
        """Add a device-to-device copy node."""

    def add_fill(self, target: DeviceArray, byte: int, after: Sequence[Node] = ()) -> Node:
        """Add a memset node: every byte of ``target`` becomes ``byte``."""

    def nodes(self) -> tuple[NodeInfo, ...]:
        """All nodes, in the graph's order."""

    def arguments(self) -> tuple[tuple[ArgumentWord, ...], ...]:
        """What was recorded with each node, in the same order: a kernel's arguments, a memset's value.

        Empty for other nodes, and for a kernel whose arguments the driver does not give out.
        """

    def edges(self) -> tuple[tuple[int, int], ...]:
        """Dependencies as pairs of node indices (from, to)."""

    def instantiate(self) -> ExecutableGraph:
        """Build an executable graph."""

    def destroy(self) -> None:
        """Free the graph; executables made from it stay valid."""
