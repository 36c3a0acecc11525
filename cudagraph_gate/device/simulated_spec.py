"""What a simulated device is like: its times, sizes and injected faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

GIB: Final = 1 << 30

JITTER_CLIP: Final = 3.0
"""Jitter beyond three standard deviations is cut off, so that a time can't come near zero."""
MAX_JITTER: Final = 0.25
"""Above it, clipped jitter would allow times under a quarter of their mean."""

FaultKind = Literal["launch_failed", "out_of_memory", "illegal_address"]


@dataclass(frozen=True)
class SimulatedSpec:
    """Times in ns, sizes in bytes, rates in bytes per ns (1 byte per ns is 1 GB/s).

    Defaults are rounded from measurements of one H200 where there are any. ``jitter`` is the relative
    standard deviation of host call and kernel times; 0 makes every time exact.
    """

    launch_call_ns: int = 5_000
    """An eager launch call takes about 5 us on its thread: 4.1 us until it queues, 1.2 us after."""
    graph_launch_call_ns: int = 3_000
    """A steady graph launch call was measured at 2.9 us."""
    copy_call_ns: int = 2_000
    event_call_ns: int = 500
    sync_call_ns: int = 1_500
    """What a synchronisation costs when there is nothing to wait for."""
    memory_call_ns: int = 2_000
    """Allocation or free. Unlike cuMemFree, a simulated free does not wait for the device."""
    capture_call_ns: int = 2_500
    """A call that is only recorded skips the submission: about half of a launch call."""
    start_latency_ns: int = 1_000
    """From the end of the submission to the earliest start on an idle stream."""
    node_gap_ns: int = 300
    """Between dependent nodes of a graph; measured medians are 130 to 420 ns."""
    memory_bytes: int = 16 * GIB
    d2d_bytes_per_ns: int = 2_000
    """About 2 TB/s; fills run at the same rate."""
    h2d_bytes_per_ns: int = 50
    """About 50 GB/s, PCIe 5 x16."""
    d2h_bytes_per_ns: int = 50
    queue_depth: int = 1_024
    """Submissions (a graph launch is one) that may be pending before a submitting call blocks."""
    jitter: float = 0.02
    seed: int = 0
    instantiate_ns_per_node: int = 3_500
    """1.5 ms for 342 nodes was measured, with a fixed part of some 60 us in it."""
    instantiate_bytes_per_node: int = 4_700
    """Device memory that an executable holds per node, as measured."""
    upload_ns_per_node: int = 1_500
    """0.19 ms for 128 nodes was measured."""
    update_ns_per_node: int = 80
    """9.8 us for 128 unchanged nodes was measured."""
    update_base_ns: int = 1_000

    def __post_init__(self) -> None:
        if not 0 <= self.jitter <= MAX_JITTER:
            raise ValueError(f"jitter must be between 0 and {MAX_JITTER}")
        if self.queue_depth < 1:
            raise ValueError("queue_depth must be at least 1")


@dataclass(frozen=True)
class Fault:
    """A fault that fires once, after so many more launches or allocations have gone well.

    ``launch_failed`` and ``illegal_address`` count launches (of kernels and graphs) and lose the context:
    the launch itself returns, every later call fails. ``out_of_memory`` counts allocations (arrays and
    executables) and fails that one only.
    """

    kind: FaultKind
    after_launches: int = 0
    after_allocations: int = 0

    @property
    def counts_allocations(self) -> bool:
        """Whether it waits for an allocation and not for a launch."""
        return self.kind == "out_of_memory"

    @property
    def countdown(self) -> int:
        """How many launches or allocations go well before it fires."""
        return self.after_allocations if self.counts_allocations else self.after_launches
