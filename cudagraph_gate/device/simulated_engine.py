"""Discrete-event engine of the simulated device: host threads, virtual time, queues and placement.

Every operation is timed when it is enqueued, because all that can delay it is known by then, and its
NumPy reference runs at once, in program order. Each host thread has a clock of its own. A thread's clock
starts where the clock of the thread that opened the device stands; ``threading.Thread.join`` takes no
virtual time, so a thread that waits for others' work synchronises with the device.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from cudagraph_gate.device.simulated_capture import CaptureRules
from cudagraph_gate.device.simulated_memory import DeviceMemory, IllegalAccess
from cudagraph_gate.device.simulated_spec import JITTER_CLIP, Fault, SimulatedSpec
from cudagraph_gate.device.simulated_trace import (
    FIRST_STREAM,
    HostCall,
    Placement,
    SimulatedTrace,
    call_row,
    operation_row,
)
from cudagraph_gate.device.simulated_work import Work
from cudagraph_gate.errors import DeviceError, device_error

if TYPE_CHECKING:
    from cudagraph_gate.device.simulated_stream import SimulatedStream


class HostThread:
    """Virtual clock and CPU time of one host thread, with its own jitter so that others don't change it."""

    def __init__(self, start_ns: int, spec: SimulatedSpec, number: int) -> None:
        self.ident = threading.get_ident()
        self.clock_ns = start_ns
        self.cpu_ns = 0
        self._spread = spec.jitter
        self._random = np.random.default_rng([spec.seed, number])

    def jittered(self, duration_ns: int) -> int:
        """A duration as this thread sees it this time."""
        if self._spread == 0 or duration_ns == 0:
            return duration_ns
        deviation = min(JITTER_CLIP, max(-JITTER_CLIP, self._random.standard_normal()))
        return round(duration_ns * (1 + self._spread * deviation))

    def work(self, duration_ns: int) -> None:
        """Spend time on the CPU."""
        self.clock_ns += duration_ns
        self.cpu_ns += duration_ns

    def wait_until(self, time_ns: int) -> None:
        """Wait without using the CPU: spinning is not modelled."""
        self.clock_ns = max(self.clock_ns, time_ns)


@dataclass
class _ArmedFault:
    fault: Fault
    remaining: int


class Engine:
    """State of one simulated device; see the module."""

    def __init__(self, spec: SimulatedSpec) -> None:
        self.spec = spec
        self.memory = DeviceMemory(spec.memory_bytes)
        self.captures = CaptureRules()
        self.trace: SimulatedTrace | None = None
        self.stream_numbers = count(FIRST_STREAM)
        self.graph_numbers = count(1)
        self.event_numbers = count(1)
        self.blocking_ready_ns = 0
        self.legacy_ready_ns = 0
        self.done_ns = 0
        self.lost: DeviceError | None = None
        self._lock = threading.RLock()
        self._depth = 0
        self._dropped: deque[int] = deque()
        self._threads = threading.local()
        self._thread_numbers = count()
        self._correlations = count(1)
        self._pending: list[int] = []
        self._copy_engines = {"HtoD": 0, "DtoH": 0, "DtoD": 0}
        self._faults: list[_ArmedFault] = []
        self._opener: HostThread | None = None
        self._opener = self.thread()

    # --- host threads -------------------------------------------------------------------------------
    def thread(self) -> HostThread:
        """The calling thread."""
        known: HostThread | None = getattr(self._threads, "thread", None)
        if known is None:
            start_ns = self._opener.clock_ns if self._opener is not None else 0
            known = HostThread(start_ns, self.spec, next(self._thread_numbers))
            self._threads.thread = known
        return known

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the device's lock; arrays that were dropped meanwhile are freed when it is given up."""
        with self._lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._free_dropped()

    @contextmanager
    def call(self, name: str, cost_ns: int, *, blocking: bool = False) -> Iterator[HostCall]:
        """One API call: takes its time, refuses when the context is lost, leaves its row in the trace."""
        with self.locked():
            thread = self.thread()
            call = HostCall(name, thread.ident, thread.clock_ns, next(self._correlations), blocking)
            thread.work(thread.jittered(cost_ns))
            try:
                if self.lost is not None:
                    raise device_error(self.lost.code, name, detail=self.lost.detail)
                yield call
            except DeviceError as error:
                call.status = error.code
                raise
            finally:
                if self.trace is not None:
                    self.trace.calls.append(call_row(call, thread.clock_ns))

    # --- memory -------------------------------------------------------------------------------------
    def free(self, pointer: int, cost_ns: int) -> None:
        """cuMemFree."""
        with self.call("cuMemFree", cost_ns) as call:
            self.captures.forbid_unsafe(call.name, self.thread())
            self.memory.release(pointer)

    def drop(self, pointer: int) -> None:
        """Free what a dead array held, later if the collector ran inside one of this thread's calls."""
        with self._lock:
            self._dropped.append(pointer)
            if self._depth == 0:
                self._free_dropped()

    def _free_dropped(self) -> None:
        self._depth += 1  # so that the frees below don't come back here
        while self._dropped:
            # A free that fails leaks the memory and breaks a capture, as on a GPU. It takes no time: when
            # the collector runs must not change any.
            with suppress(DeviceError):
                self.free(self._dropped.popleft(), cost_ns=0)
        self._depth -= 1

    def require_mapped(self, call: HostCall, work: Work) -> None:
        """Raise CUDA_ERROR_INVALID_VALUE for a copy or fill of addresses that the driver does not know."""
        try:
            work.operands(self.memory)
        except IllegalAccess as error:
            raise device_error("CUDA_ERROR_INVALID_VALUE", call.name, detail=str(error)) from error

    def allocate(self, nbytes: int, call: HostCall) -> int:
        """Allocate, unless a fault is due."""
        self.fail_due_allocation(call)
        return self.memory.allocate(nbytes)

    # --- faults -------------------------------------------------------------------------------------
    def inject(self, fault: Fault) -> None:
        """Arm a fault."""
        with self.locked():
            self._faults.append(_ArmedFault(fault, fault.countdown))

    def fail_due_allocation(self, call: HostCall) -> None:
        """Count an allocation; raise if an ``out_of_memory`` fault is due."""
        if self._due_fault(allocation=True) is not None:
            raise device_error("CUDA_ERROR_OUT_OF_MEMORY", call.name, detail="injected")

    def lose_if_due(self) -> None:
        """Count a launch; lose the context if a fault is due."""
        fault = self._due_fault(allocation=False)
        if fault is not None:
            self.lose(f"CUDA_ERROR_{fault.kind.upper()}", "injected")

    def lose(self, code: str, detail: str) -> None:
        """From now on every call fails with ``code``; the first loss counts."""
        if self.lost is None:
            self.lost = device_error(code, "a device operation", detail=detail)

    def _due_fault(self, *, allocation: bool) -> Fault | None:
        for armed in self._faults:
            if armed.fault.counts_allocations == allocation:
                if armed.remaining == 0:
                    self._faults.remove(armed)
                    return armed.fault
                armed.remaining -= 1
        return None

    # --- device time --------------------------------------------------------------------------------
    def submit(self, call: HostCall, stream: SimulatedStream, work: Work) -> None:
        """Enqueue one operation."""
        earliest_ns = self.earliest_start_ns(stream)
        self.finish(stream, self.place(call, stream, work, earliest_ns))

    def earliest_start_ns(self, stream: SimulatedStream) -> int:
        """When a submission could start, after a free place in the queue was waited for."""
        thread = self.thread()
        pending = self._pending
        while pending and (pending[0] <= thread.clock_ns or len(pending) >= self.spec.queue_depth):
            thread.wait_until(heapq.heappop(pending))
        return max(self.ready_ns(stream), thread.clock_ns + self.spec.start_latency_ns)

    def ready_ns(self, stream: SimulatedStream) -> int:
        """When a stream's work so far is done; legacy and blocking streams wait for each other."""
        if stream.legacy:
            return max(self.legacy_ready_ns, self.blocking_ready_ns)
        return max(stream.ready_ns, self.legacy_ready_ns) if stream.blocking else stream.ready_ns

    def place(
        self,
        call: HostCall,
        stream: SimulatedStream,
        work: Work,
        earliest_ns: int,
        graph_node: tuple[int, int] = (0, 0),
    ) -> int:
        """Run one operation now and give it its place in device time: when it ends."""
        try:
            operands = work.operands(self.memory)
        except IllegalAccess as error:
            self.lose("CUDA_ERROR_ILLEGAL_ADDRESS", f"{work.name}: {error}")
            return earliest_ns
        thread = self.thread()
        start_ns = max(earliest_ns, self._copy_engines.get(work.copy_engine or "", 0))
        end_ns = start_ns + thread.jittered(work.duration_ns(self.spec, operands))
        work.run(operands)
        if work.copy_engine:
            self._copy_engines[work.copy_engine] = end_ns
        self._record(call, work, Placement(stream.number, start_ns, end_ns, thread.clock_ns, *graph_node))
        return end_ns

    def finish(self, stream: SimulatedStream, end_ns: int) -> None:
        """A submission to ``stream`` will be done at ``end_ns``."""
        heapq.heappush(self._pending, end_ns)
        self.delay(stream, end_ns)

    def delay(self, stream: SimulatedStream, until_ns: int) -> None:
        """Later work of ``stream`` starts no earlier than ``until_ns``."""
        stream.ready_ns = max(stream.ready_ns, until_ns)
        self.done_ns = max(self.done_ns, stream.ready_ns)
        if stream.legacy:
            self.legacy_ready_ns = stream.ready_ns
        elif stream.blocking:
            self.blocking_ready_ns = max(self.blocking_ready_ns, stream.ready_ns)

    def _record(self, call: HostCall, work: Work, place: Placement) -> None:
        if self.trace is not None:
            row = operation_row(call, work.kind, work.name, work.nbytes, work.shape, place)
            self.trace.operations.append(row)
