"""CPU time of this process's threads over time: whether a thread that runs no CUDA call computes or waits.

Linux gives every thread a clock of its CPU time that any other thread can read. A sampler reads them every
few milliseconds. Threads that do nothing are read less often; their intervals are longer, not less exact.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from cudagraph_gate.timeline.table import CPU_TIME_COLUMNS, frame

PERIOD_S: Final = 0.005
"""Short against the waits that matter (a late batch, a read from disk), and rare enough: a sample of one
thread takes about 1 us, so that the sampler itself is on a CPU 0.1 % of the time."""
IDLE_PERIODS: Final = 20
"""Every so many samples, new threads are looked for and idle ones read: each costs as much as a busy one."""
SATURATED: Final = 0.999
"""On-CPU share from which on an interval is as good as all CPU: such neighbours are joined into one row."""

Clock = Callable[[], int]
CpuTime = Callable[[int], int | None]
"""Thread number -> ns on a CPU so far; None if there is no such thread."""


def thread_cpu_ns(thread: int) -> int | None:
    """CPU time of a thread of this process by its kernel number, from its POSIX clock."""
    # As glibc's pthread_getcpuclockid makes the number: 6 is "scheduler time of a thread".
    try:
        return time.clock_gettime_ns((~thread << 3) | 6)
    except OSError:
        return None


def own_threads() -> list[int]:
    """Kernel numbers of this process's threads."""
    return [int(task.name) for task in Path("/proc/self/task").iterdir()]


class Samples:
    """Intervals of threads with their CPU time; a thread's first reading only begins one."""

    def __init__(self, cpu_time: CpuTime = thread_cpu_ns, clock: Clock = time.time_ns) -> None:
        self._cpu_time = cpu_time
        self._clock = clock
        self._last: dict[int, tuple[int, int]] = {}
        self._rows: dict[int, array[int]] = {}
        """Per thread: start, end and on-CPU ns of its intervals, one after the other."""
        self.busy: set[int] = set()
        """Threads whose last interval was not idle."""

    def read(self, threads: Collection[int]) -> None:
        """One reading of each thread."""
        for thread in threads:
            cpu = self._cpu_time(thread)
            now = self._clock()
            before = self._last.get(thread)
            if cpu is None:
                self._last.pop(thread, None)
                self.busy.discard(thread)
                continue
            self._last[thread] = (now, cpu)
            if before is not None and now > before[0]:
                self._add(thread, before[0], now, min(cpu - before[1], now - before[0]))

    def _add(self, thread: int, start: int, end: int, on_cpu: int) -> None:
        (self.busy.add if on_cpu else self.busy.discard)(thread)
        rows = self._rows.setdefault(thread, array("q"))
        if (
            len(rows)
            and rows[-2] == start
            and _extreme(rows[-1], start - rows[-3]) == _extreme(on_cpu, end - start) != ""
        ):
            rows[-2], rows[-1] = end, rows[-1] + on_cpu
        else:
            rows.extend((start, end, on_cpu))

    def table(
        self, *, process: int, offset_ns: int = 0, threads: Collection[int] | None = None
    ) -> pd.DataFrame:
        """The rows of a timeline, of ``threads`` only if named, on a clock that is ``offset_ns`` ahead."""
        chosen = {t: rows for t, rows in self._rows.items() if threads is None or t in threads}
        if not chosen:
            return frame(CPU_TIME_COLUMNS)
        values = np.concatenate([np.asarray(rows, dtype=np.int64).reshape(-1, 3) for rows in chosen.values()])
        columns: dict[str, Any] = {
            "thread": np.repeat(list(chosen), [len(rows) // 3 for rows in chosen.values()]),
            "start_ns": values[:, 0] + offset_ns,
            "end_ns": values[:, 1] + offset_ns,
            "on_cpu_ns": values[:, 2],
            "process": np.full(len(values), process),
        }
        rows = frame(CPU_TIME_COLUMNS, columns)
        return rows.sort_values(["start_ns", "thread"], kind="stable", ignore_index=True)


def _extreme(on_cpu: int, length: int) -> str:
    if on_cpu == 0:
        return "off"
    return "on" if on_cpu >= SATURATED * length else ""


class CpuSampler:
    """Samples all threads of this process but its own from ``start`` to ``stop``."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        self._period_s = period_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="cgate-cpu-times", daemon=True)
        self.samples = Samples()

    def start(self) -> None:
        """Begin; threads that exist now are read at once."""
        self.samples.read(own_threads())
        self._thread.start()

    def stop(self) -> Samples:
        """End, with a last reading of all threads."""
        self._ended.set()
        self._thread.join()
        self.samples.read(own_threads())
        return self.samples

    def _sample(self) -> None:
        own, turn = threading.get_native_id(), 0
        while not self._ended.wait(self._period_s):
            turn += 1
            threads = own_threads() if turn % IDLE_PERIODS == 0 else list(self.samples.busy)
            self.samples.read([thread for thread in threads if thread != own])
