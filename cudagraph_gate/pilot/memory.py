"""Memory of the device, of the framework's allocator and of this process, now."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cudagraph_gate.model import Measured, NotMeasured
from cudagraph_gate.pilot.session import Session
from cudagraph_gate.records import MemoryPoint, Phase

_STATM: Final = Path("/proc/self/statm")
"""Pages of this process: total, resident, … (``man 5 proc``)."""


@dataclass(frozen=True)
class MemoryReading:
    """Memory at one moment, in bytes."""

    device_used_bytes: int
    """Of the whole device: other processes move it too."""
    allocator_bytes: Measured
    """What the framework's allocator holds, used or cached."""
    occupied_bytes: Measured
    """The part of it that arrays take up, or that nobody else can be given."""
    host_rss_bytes: Measured
    """Host memory of this process that is resident."""


@dataclass(frozen=True)
class Growth:
    """What more is taken, in bytes. What lies free in an allocator, between arrays, is not."""

    occupied: int | None
    """In the framework's allocator; None where it does not tell."""
    outside: int
    """Of the device, and not by the framework's allocator."""

    @classmethod
    def between(cls, then: MemoryReading, now: MemoryReading) -> Growth:
        """From one reading to a later one."""
        device = now.device_used_bytes - then.device_used_bytes
        cached = _difference(then.allocator_bytes, now.allocator_bytes)
        occupied = _difference(then.occupied_bytes, now.occupied_bytes)
        if cached is None or occupied is None:
            return cls(None, device)
        return cls(occupied, device - cached)

    @property
    def arrays(self) -> int:
        """Where arrays lie."""
        return self.outside if self.occupied is None else self.occupied

    @property
    def most(self) -> int:
        """The larger of both."""
        return max(self.arrays, self.outside)


def _difference(then: Measured, now: Measured) -> int | None:
    return None if isinstance(then, NotMeasured) or isinstance(now, NotMeasured) else now - then


def memory_now(session: Session) -> MemoryReading:
    """A reading as things stand: the device may be busy, and garbage not collected."""
    memory = session.device.memory_info()
    return MemoryReading(
        device_used_bytes=memory.total_bytes - memory.free_bytes,
        allocator_bytes=session.adapter.allocator_bytes(),
        occupied_bytes=session.adapter.occupied_bytes(),
        host_rss_bytes=_host_rss_bytes(),
    )


def settled_memory(session: Session) -> MemoryReading:
    """A reading with the garbage collected and the device idle: what is left is held by somebody."""
    gc.collect()
    session.device.synchronize()
    return memory_now(session)


def memory_point(session: Session, phase: Phase) -> MemoryPoint:
    """Device-wide free memory and what the framework's allocator holds, now."""
    return MemoryPoint(
        shape=session.shape_name,
        phase=phase,
        device_free_bytes=session.device.memory_info().free_bytes,
        allocator_bytes=session.adapter.allocator_bytes(),
    )


def _host_rss_bytes() -> Measured:
    try:
        resident = int(_STATM.read_text().split()[1])
    except (OSError, IndexError, ValueError) as error:
        return NotMeasured(reason=f"{_STATM} can't be read ({type(error).__name__})")
    return resident * os.sysconf("SC_PAGE_SIZE")
