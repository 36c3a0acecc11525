"""Host work on the CPU and off it: a starved loader, disk or network is no launch overhead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.causes import CAUSES, CausedPieces, of_thread
from cudagraph_gate.diagnosis.submission import ints
from cudagraph_gate.model import Cause, HostWork, NotMeasured
from cudagraph_gate.timeline.intervals import Bools, Int64, Intervals, Pieces, overlap_ns, union
from cudagraph_gate.timeline.table import Timeline

NO_CPU_TIME: Final = NotMeasured(reason="the CPU time of the submitting threads was not recorded")


@dataclass(frozen=True)
class _Split:
    on_cpu_ns: int
    waiting_ns: int


def host_work_of(caused: CausedPieces, process: int, timeline: Timeline) -> HostWork | NotMeasured:
    """The ``host_work`` among the pieces of a device of ``process``, split by CPU time of its threads.

    A sample says how long a thread was on a CPU between two moments. Of that time the thread's CUDA calls
    in between take their whole length first, because blocking calls spin by default; the rest is given to
    host work, at most as much as lies in the sample. What is left of that host work waited.
    """
    samples = timeline.cpu_times[ints(timeline.cpu_times, "process") == process]
    if samples.empty:
        return NO_CPU_TIME
    calls = timeline.calls[ints(timeline.calls, "process") == process]
    working = caused.causes == CAUSES.index(Cause.HOST_WORK)
    pieces, threads = caused.pieces.kept(working), caused.threads[caused.pieces.owners[working]]
    total_ns = int((pieces.ends - pieces.starts).sum())
    splits = [
        _split(_work_of(pieces, threads == thread), _samples_of(samples, thread), _calls_of(calls, thread))
        for thread in np.unique(threads).tolist()
    ]
    on_cpu_ns, waiting_ns = sum(one.on_cpu_ns for one in splits), sum(one.waiting_ns for one in splits)
    sampled_ns = on_cpu_ns + waiting_ns
    if total_ns and not sampled_ns:
        return NO_CPU_TIME
    return HostWork(on_cpu_ns=on_cpu_ns, waiting_ns=waiting_ns, unsampled_ns=total_ns - sampled_ns)


def _work_of(pieces: Pieces, own: Bools) -> Intervals:
    kept = pieces.kept(own)
    return union(kept.starts, kept.ends)


def _samples_of(samples: pd.DataFrame, thread: int) -> pd.DataFrame:
    """The samples of a thread. A thread that is not known is the sampled one if there is only one."""
    sampled = ints(samples, "thread")
    if thread == 0:
        return samples if len(np.unique(sampled)) == 1 else samples.iloc[:0]
    kept: pd.DataFrame = samples[sampled == thread]
    return kept


def _calls_of(calls: pd.DataFrame, thread: int) -> Intervals:
    own = calls[of_thread(calls, thread)]
    return union(ints(own, "start_ns"), ints(own, "end_ns"))


def _split(work: Intervals, samples: pd.DataFrame, calls: Intervals) -> _Split:
    starts, ends = ints(samples, "start_ns"), ints(samples, "end_ns")
    inside: Int64 = overlap_ns(work, starts, ends)
    left = ints(samples, "on_cpu_ns") - overlap_ns(calls, starts, ends)
    on_cpu = np.clip(left, 0, inside)
    return _Split(int(on_cpu.sum()), int((inside - on_cpu).sum()))
