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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from cudagraph_gate.device.port_graph import (
    PAGEABLE,
    ArgumentWord,
    ExecutableGraph,
    Graph,
    Node,
    NodeInfo,
    NodeKind,
    UpdateResult,
)
from cudagraph_gate.device.port_work import (
    Cost,
    DeviceArray,
    Dim,
    Event,
    HostArray,
    Kernel,
    LaunchShape,
    MemoryInfo,
    PinnedMemory,
    Reference,
    Stream,
    check_argument,
)
from cudagraph_gate.errors import device_error

__all__ = [
    "PAGEABLE",
    "ArgumentWord",
    "CaptureMode",
    "Cost",
    "Device",
    "DeviceArray",
    "Dim",
    "Event",
    "ExecutableGraph",
    "Graph",
    "HostArray",
    "Kernel",
    "LaunchShape",
    "MemoryInfo",
    "Node",
    "NodeInfo",
    "NodeKind",
    "PinnedMemory",
    "Reference",
    "Stream",
    "UpdateResult",
    "check_argument",
]

CaptureMode = Literal["thread_local", "global"]
SPIN_NS: Final = 100_000
"""The end of a wait is spun: a sleep returns up to 50 us (Linux's timer slack) and a wake-up late."""


class Device(ABC):
    """A GPU, real or simulated. Every method is called from the thread that opened it unless noted."""

    simulated: bool
    name: str

    def __init__(self) -> None:
        self._streams_in_use = threading.local()
        self._kept: list[DeviceArray] | None = None

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

    @contextmanager
    def keeping_arrays(self) -> Iterator[None]:
        """Hold every array that is allocated in the block until its end, whoever lets go of it.

        Blocks do not nest; what is freed by name, or allocated elsewhere, is not held.
        """
        self._kept = []
        try:
            yield
        finally:
            self._kept = None

    def _held(self, array: DeviceArray) -> DeviceArray:
        """An array that was just allocated."""
        if self._kept is not None:
            self._kept.append(array)
        return array

    @abstractmethod
    def pinned(self, nbytes: int) -> PinnedMemory:
        """Allocate page-locked host memory (cuMemHostAlloc): not permitted while this thread captures."""

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
    @contextmanager
    def watching_frees(self) -> Iterator[list[tuple[int, int]]]:
        """Address and size of every array of this device that is freed in the block, as it happens.

        Blocks do not nest; memory that a framework's own allocator holds is not among them.
        """
        yield []

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
