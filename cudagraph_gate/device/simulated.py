"""The device port without a GPU: a discrete-event device on a virtual clock that computes with NumPy.

It stands in for a GPU in rehearsals and exact tests: launch cost, queue, stream and event order, copy
engines, graph node gaps, memory that is reused and poisoned, the driver's capture rules and error names,
injected faults and seeded jitter. The same spec and program give the same times. It does not model
compute contention between streams, caches, clocks, or host CPU time spent spinning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from cudagraph_gate.device.port import (
    CaptureMode,
    Device,
    DeviceArray,
    Graph,
    HostArray,
    Kernel,
    LaunchShape,
    MemoryInfo,
    PinnedMemory,
    Stream,
)
from cudagraph_gate.device.simulated_array import SimulatedArray, SimulatedPinned
from cudagraph_gate.device.simulated_engine import Engine, HostThread
from cudagraph_gate.device.simulated_graph import SimulatedGraph
from cudagraph_gate.device.simulated_memory import Region
from cudagraph_gate.device.simulated_spec import Fault, SimulatedSpec
from cudagraph_gate.device.simulated_stream import SimulatedStream, simulated_stream
from cudagraph_gate.device.simulated_trace import SimulatedTrace, cpu_time_row, range_row
from cudagraph_gate.device.simulated_work import CopyWork, FillWork, KernelWork, Operand, Work
from cudagraph_gate.errors import UsageError, device_error

__all__ = ["Fault", "SimulatedArray", "SimulatedDevice", "SimulatedSpec", "SimulatedTrace"]


class SimulatedDevice(Device):
    """A simulated GPU; any number of them can be open at the same time, each with its own clock."""

    simulated = True
    name = "simulated device"

    def __init__(self, spec: SimulatedSpec | None = None) -> None:
        super().__init__()
        self.spec = spec or SimulatedSpec()
        self._engine = Engine(self.spec)
        self._legacy = SimulatedStream(self._engine, blocking=True, legacy=True)
        self._default = SimulatedStream(self._engine, blocking=False)

    # --- time -------------------------------------------------------------------------------------
    def clock_ns(self) -> int:
        """The calling thread's virtual clock."""
        return self._engine.thread().clock_ns

    def cpu_time_ns(self) -> int:
        """Virtual CPU time of the calling thread: its calls and its :meth:`host_work`, not its waiting."""
        return self._engine.thread().cpu_ns

    def host_work(self, duration_ns: int) -> None:
        """Let the calling thread compute for ``duration_ns``: stands for the Python between calls."""
        thread = self._engine.thread()
        thread.work(duration_ns)
        self._trace_cpu(thread, duration_ns, on_cpu_ns=duration_ns)

    def host_wait(self, duration_ns: int) -> None:
        """Let the calling thread wait for ``duration_ns`` off the CPU: for a file, a lock, another thread."""
        thread = self._engine.thread()
        thread.wait_until(thread.clock_ns + duration_ns)
        self._trace_cpu(thread, duration_ns, on_cpu_ns=0)

    def wait_until(self, time_ns: int) -> None:
        """Let the calling thread wait off the CPU until its virtual clock says ``time_ns``."""
        self.host_wait(max(0, time_ns - self.clock_ns()))

    def _trace_cpu(self, thread: HostThread, duration_ns: int, *, on_cpu_ns: int) -> None:
        with self._engine.locked():
            if self._engine.trace is not None and duration_ns:
                row = cpu_time_row(thread.ident, thread.clock_ns - duration_ns, thread.clock_ns, on_cpu_ns)
                self._engine.trace.cpu_times.append(row)

    # --- memory -----------------------------------------------------------------------------------
    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Allocate poisoned memory."""
        engine, wanted = self._engine, Region(0, tuple(shape), np.dtype(dtype))
        if wanted.nbytes == 0:
            return SimulatedArray(self._legacy, wanted, is_view=False)
        with engine.call("cuMemAlloc", self.spec.memory_call_ns) as call:
            engine.captures.forbid_unsafe(call.name, engine.thread())
            pointer = engine.allocate(wanted.nbytes, call)
        region = Region(pointer, wanted.shape, wanted.dtype)
        return self._held(SimulatedArray(self._legacy, region, is_view=False))

    def pinned(self, nbytes: int) -> PinnedMemory:
        """Allocate host memory: no copy is faster for it here."""
        engine = self._engine
        with engine.call("cuMemHostAlloc", self.spec.memory_call_ns) as call:
            engine.captures.forbid_unsafe(call.name, engine.thread())
        return SimulatedPinned(np.zeros(nbytes, np.uint8))

    def view(self, pointer: int, shape: tuple[int, ...], dtype: npt.DTypeLike, owner: object) -> DeviceArray:
        """An array over another object's memory."""
        region = Region(pointer, tuple(shape), np.dtype(dtype))
        return SimulatedArray(self._legacy, region, is_view=True, owner=owner)

    def copy(
        self, target: DeviceArray | HostArray, source: DeviceArray | HostArray, stream: Stream | None = None
    ) -> None:
        """Enqueue a copy; one that involves the host does not block here, and has happened at once."""
        work = CopyWork.of(_operand(target), _operand(source))
        self._enqueue(f"cuMemcpy{work.name}Async", self.spec.copy_call_ns, work, stream)

    def fill(self, target: DeviceArray, byte: int, stream: Stream | None = None) -> None:
        """Enqueue a memset."""
        self._enqueue("cuMemsetD8Async", self.spec.copy_call_ns, FillWork(Region.of(target), byte), stream)

    @contextmanager
    def watching_frees(self) -> Iterator[list[tuple[int, int]]]:
        """What is released meanwhile."""
        memory = self._engine.memory
        released: list[tuple[int, int]] = []
        memory.released = released
        try:
            yield released
        finally:
            memory.released = None

    def memory_info(self) -> MemoryInfo:
        """Memory of the device: arrays in units of 256 bytes, and executable graphs."""
        with self._engine.call("cuMemGetInfo", self.spec.event_call_ns):
            memory = self._engine.memory
            return MemoryInfo(memory.total_bytes - memory.used_bytes, memory.total_bytes)

    # --- streams ----------------------------------------------------------------------------------
    @property
    def legacy_stream(self) -> Stream:
        """The default stream."""
        return self._legacy

    def create_stream(self, *, blocking: bool = False) -> Stream:
        """A new stream."""
        with self._engine.call("cuStreamCreate", self.spec.event_call_ns):
            return SimulatedStream(self._engine, blocking=blocking)

    def synchronize(self) -> None:
        """Wait for the whole device."""
        engine = self._engine
        with engine.call("cuCtxSynchronize", self.spec.sync_call_ns, blocking=True) as call:
            engine.captures.forbid_unsafe(call.name, engine.thread(), device_wide=True)
            engine.thread().wait_until(engine.done_ns)

    def _default_stream(self) -> Stream:
        return self._default

    # --- work -------------------------------------------------------------------------------------
    def launch(
        self, kernel: Kernel, shape: LaunchShape, args: Sequence[Any], stream: Stream | None = None
    ) -> None:
        """Enqueue a kernel."""
        work = KernelWork.of(kernel, shape, args)
        self._enqueue("cuLaunchKernel", self.spec.launch_call_ns, work, stream)

    def _enqueue(self, name: str, cost_ns: int, work: Work, stream: Stream | None) -> None:
        engine, queue = self._engine, simulated_stream(stream or self.current_stream())
        recorded = queue.capture is not None
        with engine.call(name, self.spec.capture_call_ns if recorded else cost_ns) as call:
            engine.captures.forbid_implicit(name, queue)
            if not isinstance(work, KernelWork):
                engine.require_mapped(call, work)
            if queue.capture is not None:
                queue.capture.add(queue, work, name)
                return
            if isinstance(work, KernelWork):
                engine.lose_if_due()
            engine.submit(call, queue, work)

    @contextmanager
    def annotate(self, name: str, *, domain: str = "cgate") -> Iterator[None]:
        """Mark the block as a range of the trace; takes no time."""
        thread = self._engine.thread()
        start_ns = thread.clock_ns
        try:
            yield
        finally:
            with self._engine.locked():
                if self._engine.trace is not None:
                    row = range_row(name, domain, start_ns, thread.clock_ns, thread.ident)
                    self._engine.trace.ranges.append(row)

    # --- graphs -----------------------------------------------------------------------------------
    def begin_capture(self, stream: Stream, mode: CaptureMode = "thread_local") -> None:
        """Start capturing."""
        engine, queue = self._engine, simulated_stream(stream)
        with engine.call("cuStreamBeginCapture", self.spec.capture_call_ns):
            engine.captures.begin(queue, mode, engine.thread())

    def end_capture(self, stream: Stream) -> Graph:
        """End the capture."""
        engine, queue = self._engine, simulated_stream(stream)
        with engine.call("cuStreamEndCapture", self.spec.capture_call_ns):
            capture = engine.captures.end(queue, engine.thread())
            return SimulatedGraph(engine, capture.nodes, capture.edges)

    def create_graph(self) -> Graph:
        """An empty graph."""
        return SimulatedGraph(self._engine)

    def adopt_graph(self, handle: int, owner: object) -> Graph:
        """Not possible: no other library knows this device. Raises CUDA_ERROR_NOT_SUPPORTED."""
        raise device_error("CUDA_ERROR_NOT_SUPPORTED", "adopt_graph")

    # --- tests and evidence -------------------------------------------------------------------------
    def start_trace(self) -> None:
        """Record operations, calls and ranges from now on. Raises UsageError when that is on already."""
        with self._engine.locked():
            if self._engine.trace is not None:
                raise UsageError("the simulated device records already")
            self._engine.trace = SimulatedTrace()

    def traced_ranges(self, name: str) -> int:
        """Ranges called ``name`` in the recording so far; 0 when nothing records."""
        with self._engine.locked():
            trace = self._engine.trace
            return sum(row["name"] == name for row in trace.ranges) if trace is not None else 0

    def stop_trace(self) -> SimulatedTrace:
        """Stop recording; operations still to run are in it. Raises UsageError when nothing records."""
        with self._engine.locked():
            trace, self._engine.trace = self._engine.trace, None
            if trace is None:
                raise UsageError("the simulated device does not record")
            return trace

    def inject(self, fault: Fault) -> None:
        """Arm a fault that fires once."""
        self._engine.inject(fault)

    # --- life -------------------------------------------------------------------------------------
    def close(self) -> None:
        """Give all memory up; every later call fails with CUDA_ERROR_DEINITIALIZED."""
        with self._engine.locked():
            self._engine.lose("CUDA_ERROR_DEINITIALIZED", "the device was closed")
            self._engine.memory.clear()


def _operand(side: DeviceArray | HostArray) -> Operand:
    return side if isinstance(side, np.ndarray) else Region.of(side)
