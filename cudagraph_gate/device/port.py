"""The device port: the few verbs that ``cgate`` and portable workloads use, in the field's own words.

Two implementations keep one contract (``tests/device/test_contract.py``): :mod:`cudagraph_gate.device.cuda`
on a real GPU and :mod:`cudagraph_gate.device.simulated` on a virtual clock. No CUDA handle, enum or status
tuple crosses the port; a failed call raises :class:`~cudagraph_gate.errors.DeviceError` with the driver's
own name for the error.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from cudagraph_gate.errors import UsageError, device_error

HostArray = npt.NDArray[Any]
Dim = tuple[int, int, int]
CaptureMode = Literal["thread_local", "global"]
NodeKind = Literal[
    "kernel", "memcpy", "memset", "host", "empty", "alloc", "free", "event", "child", "conditional", "other"
]
PAGEABLE: Final = "pageable memory"
"""In a copy node's detail: ordinary host memory, neither pinned nor managed."""
SPIN_NS: Final = 100_000
"""The end of a wait is spun: a sleep returns up to 50 us (Linux's timer slack) and a wake-up late."""


@dataclass(frozen=True)
class LaunchShape:
    """Grid and block of a kernel launch, in blocks and in threads."""

    grid: Dim
    block: Dim


Reference = Callable[..., None]
"""NumPy twin of a kernel: called as ``reference(shape: LaunchShape, *args)``.

Device arrays arrive as NumPy arrays and are written in place.
"""
Cost = Callable[..., int]
"""Cost model of a kernel on the simulated device, in ns: called as ``cost(shape: LaunchShape, *args)``."""


@dataclass(frozen=True)
class Kernel:
    """One kernel for both devices.

    ``source`` is CUDA C++ for NVRTC with an ``extern "C" __global__`` function called ``name``;
    ``reference`` computes the same on NumPy arrays; ``cost_ns`` is its time on the simulated device.
    """

    name: str
    source: str
    reference: Reference
    cost_ns: Cost | int


def check_argument(kernel: Kernel, index: int, arg: object) -> None:
    """Raise UsageError unless ``arg`` is a device array or a NumPy scalar.

    A Python number's width on the device would be a guess.
    """
    if isinstance(arg, np.generic) or getattr(arg, "pointer", None) is not None:
        return
    raise UsageError(
        f"argument {index} of kernel {kernel.name} is a Python {type(arg).__name__}",
        hint="pass a device array or a NumPy scalar such as np.float32(x)",
    )


@dataclass(frozen=True)
class MemoryInfo:
    """Memory of the whole device, in bytes, as the driver reports it."""

    free_bytes: int
    total_bytes: int


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


class DeviceArray(Protocol):
    """A contiguous array in device memory."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each dimension."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""

    @property
    def pointer(self) -> int:
        """Device address of the first element."""

    def to_host(self) -> HostArray:
        """A copy on the host: waits for the device; not permitted while a stream captures."""

    def free(self) -> None:
        """Give the memory back; its address may be used again by the next allocation."""


class Event(Protocol):
    """A point in a stream's work."""

    def synchronize(self) -> None:
        """Block the calling thread until the event has happened."""

    def elapsed_ns(self, since: Event) -> int:
        """Device time from ``since`` to this event; both must have happened."""


class Stream(Protocol):
    """An in-order queue of device work."""

    @property
    def blocking(self) -> bool:
        """Whether the stream synchronises implicitly with the legacy stream."""

    @property
    def is_capturing(self) -> bool:
        """Whether work enqueued here is recorded into a graph instead of run."""

    def synchronize(self) -> None:
        """Block the calling thread until all work of the stream is done."""

    def record(self) -> Event:
        """An event that happens when the work enqueued so far is done."""

    def wait(self, event: Event) -> None:
        """Later work of this stream starts after ``event``; joins the event's capture, if it has one."""


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

    def edges(self) -> tuple[tuple[int, int], ...]:
        """Dependencies as pairs of node indices (from, to)."""

    def instantiate(self) -> ExecutableGraph:
        """Build an executable graph."""

    def destroy(self) -> None:
        """Free the graph; executables made from it stay valid."""


class Device(ABC):
    """A GPU, real or simulated. Every method is called from the thread that opened it unless noted."""

    simulated: bool
    name: str

    def __init__(self) -> None:
        self._streams_in_use = threading.local()

    # --- time -------------------------------------------------------------------------------------
    @abstractmethod
    def clock_ns(self) -> int:
        """Monotonic host time: the real clock, or the simulated device's virtual clock."""

    @abstractmethod
    def cpu_time_ns(self) -> int:
        """CPU time that the calling host thread has used."""

    def wait_until(self, time_ns: int) -> None:
        """Let the calling thread wait until :meth:`clock_ns` says ``time_ns``; no wait if it is over."""
        while (left_ns := time_ns - self.clock_ns()) > SPIN_NS:
            time.sleep((left_ns - SPIN_NS) / 1e9)
        while self.clock_ns() < time_ns:
            pass

    # --- memory -----------------------------------------------------------------------------------
    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Allocate without initialising (cuMemAlloc): not permitted while a stream captures."""

    @abstractmethod
    def copy(
        self, target: DeviceArray | HostArray, source: DeviceArray | HostArray, stream: Stream | None = None
    ) -> None:
        """Enqueue a copy between arrays of the same number of bytes, on the current stream by default.

        A host side is pageable memory: the call may return late, and the host array must stay unchanged
        until the stream is synchronised.
        """

    @abstractmethod
    def fill(self, target: DeviceArray, byte: int, stream: Stream | None = None) -> None:
        """Enqueue a memset of every byte."""

    @abstractmethod
    def memory_info(self) -> MemoryInfo:
        """Free and total memory of the whole device, other processes included."""

    def l2_cache_bytes(self) -> int:
        """Size of the L2 cache; 0 where there is none, as on the simulated device."""
        return 0

    @abstractmethod
    def view(self, pointer: int, shape: tuple[int, ...], dtype: npt.DTypeLike, owner: object) -> DeviceArray:
        """An array over memory that ``owner`` holds; ``free`` on it does nothing."""

    def array(self, values: HostArray) -> DeviceArray:
        """Allocate and fill from the host; waits for the copy."""
        target = self.empty(values.shape, values.dtype)
        self.copy(target, np.ascontiguousarray(values))
        self.current_stream().synchronize()
        return target

    # --- streams ----------------------------------------------------------------------------------
    @property
    @abstractmethod
    def legacy_stream(self) -> Stream:
        """The default stream, which waits for and is waited for by every blocking stream."""

    @abstractmethod
    def create_stream(self, *, blocking: bool = False) -> Stream:
        """A new stream; ``blocking`` ones synchronise with the legacy stream."""

    @abstractmethod
    def synchronize(self) -> None:
        """Block the calling thread until all work of the device is done."""

    def current_stream(self) -> Stream:
        """The calling thread's current stream: the innermost :meth:`use_stream`, else its own default.

        The default is one non-blocking stream per device, never the legacy stream, which can't capture.
        """
        stack: list[Stream] = getattr(self._streams_in_use, "stack", [])
        return stack[-1] if stack else self._default_stream()

    @abstractmethod
    def _default_stream(self) -> Stream:
        """The stream that is current when none was chosen."""

    @contextmanager
    def use_stream(self, stream: Stream) -> Iterator[Stream]:
        """Make ``stream`` current in this thread for the block."""
        if not hasattr(self._streams_in_use, "stack"):
            self._streams_in_use.stack = []
        self._streams_in_use.stack.append(stream)
        try:
            yield stream
        finally:
            self._streams_in_use.stack.pop()

    # --- work -------------------------------------------------------------------------------------
    @abstractmethod
    def launch(
        self, kernel: Kernel, shape: LaunchShape, args: Sequence[Any], stream: Stream | None = None
    ) -> None:
        """Enqueue a kernel, on the current stream by default.

        Arguments are device arrays and NumPy scalars (``np.int32(n)``), so that their width is explicit.
        """

    @abstractmethod
    @contextmanager
    def annotate(self, name: str, *, domain: str = "cgate") -> Iterator[None]:
        """Mark the block as an NVTX range."""
        yield

    # --- graphs -----------------------------------------------------------------------------------
    @abstractmethod
    def begin_capture(self, stream: Stream, mode: CaptureMode = "thread_local") -> None:
        """From now on, work enqueued on ``stream`` (and streams that wait for it) is recorded."""

    @abstractmethod
    def end_capture(self, stream: Stream) -> Graph:
        """End the capture and return its graph.

        Whatever happens, the stream is not capturing afterwards. Raises CaptureError when the capture was
        invalidated, or when a forked stream was not joined.
        """

    @abstractmethod
    def create_graph(self) -> Graph:
        """An empty graph to add nodes to."""

    @abstractmethod
    def adopt_graph(self, handle: int, owner: object) -> Graph:
        """A graph that another library captured, by its raw handle; ``owner`` keeps it alive.

        The one door through which a foreign handle comes in. The simulated device raises DeviceError.
        """

    def adopt_executable(self, handle: int, graph: Graph, owner: object) -> ExecutableGraph:
        """An executable that another library instantiated from ``graph`` (an adopted one)."""
        raise device_error("CUDA_ERROR_NOT_SUPPORTED", "adopt_executable", detail=self.name)

    # --- life -------------------------------------------------------------------------------------
    def attach_thread(self) -> None:
        """Make the device usable from the calling thread, where that takes anything."""
        return

    @abstractmethod
    def close(self) -> None:
        """Free everything that the device object itself holds."""
