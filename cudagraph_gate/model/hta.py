"""Idle time as HolisticTraceAnalysis defines it, for comparison with our own."""

from __future__ import annotations

from cudagraph_gate.model.base import Value


class HtaIdle(Value, frozen=True, kw_only=True):
    """Gaps between neighbouring operations of one stream; ``idle_ns`` is the sum of the three waits.

    Unlike our own idle time, a stream is idle while other streams work, and where operations of one stream
    overlap the gap between them is negative.
    """

    process: int
    device: int
    stream: int
    operations: int
    idle_ns: int
    host_wait_ns: int
    """Before operations whose launch call began after the operation before them had ended."""
    kernel_wait_ns: int
    """Other gaps that are shorter than the threshold."""
    other_wait_ns: int


class HtaTemporal(Value, frozen=True, kw_only=True):
    """The span from the first start to the last end of a device's operations, cut in three."""

    process: int
    device: int
    span_ns: int
    compute_ns: int
    """While a computation kernel ran: no copy, no memset and no communication."""
    non_compute_ns: int
    """While only other operations ran."""
    idle_ns: int


class HtaView(Value, frozen=True, kw_only=True):
    """Both breakdowns of one timeline."""

    streams: tuple[HtaIdle, ...]
    devices: tuple[HtaTemporal, ...]
