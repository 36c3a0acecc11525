"""Idle time by the definitions of HolisticTraceAnalysis (HTA) 0.5.0, so that both can be compared.

HTA reads Kineto traces and knows one process and device a file. Its definitions, from its documentation
(docs/source/features/idle_time_breakdown.rst, temporal_breakdown.rst) and its answers on real traces:

- Operations of one stream in order of start; the gap before each but the first, to the end of the one before.
  Where the two overlap the gap is negative, and counts so.
- *Host wait*: the launch call of the operation began after the operation before had ended. *Kernel wait*: any
  other gap below a threshold. *Other wait*: the rest, also where the launch call is not in the file.
- The threshold is documented as 30 ns, but HTA compares it with µs: 30 µs in effect.
- Files with fractional µs are first rounded to whole µs: starts up, ends down.

Where a file has several ``ProfilerStep`` ranges, HTA leaves out what was launched in the last one, and joins
launch calls by row numbers that no longer fit, which counts some gaps twice. Its temporal breakdown counts
records of synchronisation on GPU rows as work. Neither is reproduced.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.submission import BEGIN_NS, CALL_ROW, NO_ROW, ints, operations_with_submission
from cudagraph_gate.model import HtaIdle, HtaTemporal
from cudagraph_gate.timeline.intervals import Bools, Int64, int64, union
from cudagraph_gate.timeline.table import KERNEL, Timeline

KERNEL_WAIT_BELOW_NS: Final = 30_000
"""HTA's default threshold as it acts."""
NOT_COMPUTE: Final = re.compile(r"nccl.*Kernel|.*Memcpy|Memset|.*Sync")
"""How the names of kernels begin that HTA does not count as computation: communication, memory, waiting."""
US: Final = 1_000


def hta_idle(
    timeline: Timeline, *, whole_us: bool = False, kernel_wait_below_ns: int = KERNEL_WAIT_BELOW_NS
) -> tuple[HtaIdle, ...]:
    """Host, kernel and other wait of each stream of each device and process.

    ``whole_us`` rounds all times as HTA does for files with fractional µs; without it the result is exact.
    """
    operations = operations_with_submission(timeline)
    if whole_us:
        operations = _rounded(operations)
    # Rounding may change the order; of equal starts the order of the file stands.
    operations = operations.sort_values("start_ns", kind="stable")
    streams = operations.groupby(["process", "device", "stream"], sort=True)
    return tuple(_stream(own, kernel_wait_below_ns) for _, own in streams)


def _rounded(operations: pd.DataFrame) -> pd.DataFrame:
    """Whole µs: starts (of operations and calls) rounded up, ends down."""
    begins, starts = ints(operations, BEGIN_NS), ints(operations, "start_ns")
    return operations.assign(
        **{
            BEGIN_NS: _up(begins),
            "start_ns": _up(starts),
            "end_ns": ints(operations, "end_ns") // US * US,
        }
    )


def _up(times_ns: Int64) -> Int64:
    return int64(-(-times_ns // US) * US)


def _stream(operations: pd.DataFrame, kernel_wait_below_ns: int) -> HtaIdle:
    starts, ends = ints(operations, "start_ns"), ints(operations, "end_ns")
    gaps = starts[1:] - ends[:-1]
    launched_late = (ints(operations, CALL_ROW)[1:] != NO_ROW) & (ints(operations, BEGIN_NS)[1:] > ends[:-1])
    brief = ~launched_late & (gaps < kernel_wait_below_ns)
    first = operations.iloc[0]
    return HtaIdle(
        process=int(first["process"]),
        device=int(first["device"]),
        stream=int(first["stream"]),
        operations=len(operations),
        idle_ns=int(gaps.sum()),
        host_wait_ns=int(gaps[launched_late].sum()),
        kernel_wait_ns=int(gaps[brief].sum()),
        other_wait_ns=int(gaps[~launched_late & ~brief].sum()),
    )


def hta_temporal(timeline: Timeline, *, whole_us: bool = False) -> tuple[HtaTemporal, ...]:
    """Compute, non-compute and idle time of each device of each process.

    The span runs from its first operation's start to its last one's end. ``whole_us`` as in :func:`hta_idle`.
    """
    operations = operations_with_submission(timeline)
    if whole_us:
        operations = _rounded(operations)
    devices = operations.groupby(["process", "device"], sort=True)
    return tuple(_device(own) for _, own in devices)


def _device(operations: pd.DataFrame) -> HtaTemporal:
    starts, ends = ints(operations, "start_ns"), ints(operations, "end_ns")
    computes = _computes(operations)
    busy = union(starts, ends)
    compute_ns = union(starts[computes], ends[computes]).length_ns
    span_ns = int(np.max(ends) - np.min(starts))
    return HtaTemporal(
        process=int(operations["process"].iloc[0]),
        device=int(operations["device"].iloc[0]),
        span_ns=span_ns,
        compute_ns=compute_ns,
        non_compute_ns=busy.length_ns - compute_ns,
        idle_ns=span_ns - busy.length_ns,
    )


def _computes(operations: pd.DataFrame) -> Bools:
    names = operations["name"].cat
    computes = np.array([NOT_COMPUTE.match(str(name)) is None for name in names.categories], dtype=np.bool_)
    kernel = (operations["kind"] == KERNEL).to_numpy(dtype=np.bool_)
    return np.asarray(kernel & computes[int64(names.codes)], dtype=np.bool_)
