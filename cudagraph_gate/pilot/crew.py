"""Host threads that start together, work at the same time and end together; none of their errors is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from cudagraph_gate.device import Device
from cudagraph_gate.model import Measured, NotMeasured

Failure = Exception | SystemExit


class Crew:
    """``size`` host threads on one device, each known by its index.

    On the simulated device, where each thread has a virtual clock of its own, requests are served in the
    order of these clocks: a thread that ran ahead would take a copy engine before work that came earlier.
    Elsewhere they are served as they come, or all of one thread's before the next one's where
    ``one_at_a_time`` asks for times that no other thread disturbs, be it by waking up.
    """

    def __init__(self, device: Device, size: int, *, one_at_a_time: bool = False) -> None:
        self.cpu_ns: Measured = NotMeasured(reason="not every thread came to the end of its requests")
        """CPU time of the process from :meth:`begin` to :meth:`end`, in ns."""
        self._device = device
        self._paced = threading.Barrier(size)
        self._begun = threading.Barrier(size, action=self._note_begin)
        self._ended = threading.Barrier(size, action=self._note_end)
        self._turns = _Turns(size) if device.simulated else None
        self._alone = _Alone() if one_at_a_time and not device.simulated else None
        self._failures: list[Failure] = []
        self._begun_ns = 0
        self._spent_ns: list[int] = []

    def run(self, tasks: Sequence[Callable[[], None]]) -> Failure | None:
        """Run each task in a thread of its own and wait for all; returns what failed first, if anything.

        When one fails the barriers break, so that the others end as well.
        """
        threads = []
        for index, task in enumerate(tasks):
            attached = threading.Event()
            threads.append(threading.Thread(target=self._run, args=(index, task, attached), daemon=True))
            threads[-1].start()
            attached.wait()  # one by one: the simulated device's threads are numbered as they come
        for thread in threads:
            thread.join()
        own = [error for error in self._failures if not isinstance(error, threading.BrokenBarrierError)]
        return next(iter(own or self._failures), None)

    def _run(self, index: int, task: Callable[[], None], attached: threading.Event) -> None:
        try:
            try:
                attach(self._device)
            finally:
                attached.set()
            task()
        except (Exception, SystemExit) as error:  # noqa: BLE001  (the main thread judges it)
            self._failures.append(error)
            for barrier in (self._paced, self._begun, self._ended):
                barrier.abort()
        finally:
            self.leave(index)

    # --- in the threads -----------------------------------------------------------------------------
    def begin(self) -> None:
        """Wait until every thread is ready and the device idle."""
        self._paced.wait()
        self._device.synchronize()
        self._begun.wait()

    def take_turn(self, index: int) -> None:
        """Before each request from :meth:`begin` on: wait for one's turn, if there are turns."""
        if self._turns is not None:
            self._turns.take(index, self._device.clock_ns())
        if self._alone is not None:
            self._alone.take(index)

    def leave(self, index: int) -> None:
        """No further request comes from this thread."""
        if self._alone is not None:
            self._alone.leave(index)
        if self._turns is not None:
            self._turns.leave(index)

    def end(self, index: int, cpu_ns: int) -> None:
        """Wait until every thread has ended; ``cpu_ns`` is what this one has used since it began."""
        self.leave(index)
        self._spent_ns.append(cpu_ns)
        self._ended.wait()

    def pace(self) -> None:
        """Wait until every thread has come so far."""
        self._paced.wait()

    def _note_begin(self) -> None:
        self._begun_ns = time.process_time_ns()

    def _note_end(self) -> None:
        real_ns = time.process_time_ns() - self._begun_ns
        self.cpu_ns = sum(self._spent_ns) if self._device.simulated else real_ns


class _Turns:
    """Lets the thread whose clock is behind all others go next, while none of the others is at work."""

    def __init__(self, size: int) -> None:
        self._members = set(range(size))
        self._clocks: dict[int, int] = {}
        self._changed = threading.Condition()

    def take(self, index: int, clock_ns: int) -> None:
        with self._changed:
            self._clocks[index] = clock_ns
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._next() == index)
            del self._clocks[index]

    def leave(self, index: int) -> None:
        with self._changed:
            self._members.discard(index)
            self._changed.notify_all()

    def _next(self) -> int | None:
        if len(self._clocks) < len(self._members):
            return None
        return min(self._clocks, key=lambda index: (self._clocks[index], index))


class _Alone:
    """Lets one thread go from its first request to its last."""

    def __init__(self) -> None:
        self._seat = threading.Lock()
        self._taken_by: int | None = None

    def take(self, index: int) -> None:
        if self._taken_by != index:
            self._seat.acquire()
            self._taken_by = index

    def leave(self, index: int) -> None:
        if self._taken_by == index:
            self._taken_by = None
            self._seat.release()


def attach(device: Device) -> None:
    """Make the device usable from this thread: a CUDA context is current only in the one that opened it."""
    device.attach_thread()
    device.clock_ns()
