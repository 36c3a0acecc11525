"""Kernels that do harm: one that takes its time, one that never ends, one that writes where nothing lies.

Each is launched with one thread. On the simulated device the one that never ends keeps the host in its
launch, where everything is computed.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np

from cudagraph_gate.device import Device, Kernel, LaunchShape, Stream

ONE_THREAD: Final = LaunchShape((1, 1, 1), (1, 1, 1))
NEVER_NS: Final = 600 * 10**9
"""How long "never" lasts on a GPU: far longer than any watchdog waits, and yet a process that nobody ends
gives its device back."""
NOWHERE: Final = 0
"""Neither the device nor the host ever maps this address, also where the device reads the host's memory."""

_SPIN: Final = """
extern "C" __global__ void %s(long long duration_ns) {
    unsigned long long start, now;
    asm volatile("mov.u64 %%0, %%%%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %%0, %%%%globaltimer;" : "=l"(now));
    } while ((long long)(now - start) < duration_ns);
}"""
_WRITE: Final = """
extern "C" __global__ void cgate_write_nowhere(volatile int* target) {
    *target = 1;
}"""


def _nothing(_shape: LaunchShape, _duration_ns: Any) -> None:
    return


def _duration(_shape: LaunchShape, duration_ns: Any) -> int:
    return int(duration_ns)


def _never_return(_shape: LaunchShape, duration_ns: Any) -> None:
    time.sleep(int(duration_ns) / 1e9)


def _write(_shape: LaunchShape, target: Any) -> None:
    target[...] = 1


_DELAY: Final = Kernel("cgate_delay", _SPIN % "cgate_delay", _nothing, _duration)
_ENDLESS: Final = Kernel("cgate_endless", _SPIN % "cgate_endless", _never_return, _duration)
_WRITE_NOWHERE: Final = Kernel("cgate_write_nowhere", _WRITE, _write, 1_000)


def delay(device: Device, stream: Stream, duration_ns: int) -> None:
    """Keep a stream busy for so long, so that what is enqueued next has not run when the host goes on."""
    device.launch(_DELAY, ONE_THREAD, (np.int64(duration_ns),), stream)


def never_end(device: Device, stream: Stream, duration_ns: int = NEVER_NS) -> None:
    """Keep a stream busy for ever: its next synchronisation never returns."""
    device.launch(_ENDLESS, ONE_THREAD, (np.int64(duration_ns),), stream)


def write_nowhere(device: Device, stream: Stream) -> None:
    """Write to an address where nothing lies: the launch returns, and the context is lost when it runs."""
    device.launch(_WRITE_NOWHERE, ONE_THREAD, (device.view(NOWHERE, (1,), np.int32, None),), stream)
