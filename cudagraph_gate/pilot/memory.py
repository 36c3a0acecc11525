"""Memory after each phase of a trial."""

from __future__ import annotations

from cudagraph_gate.pilot.session import Session
from cudagraph_gate.records import MemoryPoint, Phase


def memory_point(session: Session, phase: Phase) -> MemoryPoint:
    """Device-wide free memory and what the framework's allocator holds, now."""
    return MemoryPoint(
        shape=session.shape_name,
        phase=phase,
        device_free_bytes=session.device.memory_info().free_bytes,
        allocator_bytes=session.adapter.allocator_bytes(),
    )
