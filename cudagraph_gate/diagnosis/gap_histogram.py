"""Gaps in buckets: how many are short, how many long, and what each kind adds up to."""

from __future__ import annotations

from typing import Final

import numpy as np

from cudagraph_gate.model import Histogram
from cudagraph_gate.timeline.intervals import Int64, blocks, int64

EDGES_NS: Final = (0, *(step * 10**power for power in range(2, 10) for step in (1, 2, 5)))
"""Lower ends of the buckets: 1-2-5 steps, which read as round times, from 100 ns (less than any launch call
takes) to 5 s (no longer gap is a matter of launches). A bucket is at most 2.5 times as wide as its start."""


def buckets_of(gaps_ns: Int64) -> Int64:
    """The bucket of each gap: an index into ``EDGES_NS``. Negative gaps count as 0."""
    edges = np.array(EDGES_NS, dtype=np.int64)
    return int64(np.maximum(np.searchsorted(edges, gaps_ns, side="right") - 1, 0))


def filled(counts: Int64) -> slice:
    """The buckets from the first to the last that holds a gap. Raises ValueError where there is none."""
    used = np.flatnonzero(counts)
    return slice(int(np.min(used)), int(np.max(used)) + 1)


def histogram(gaps_ns: Int64) -> Histogram:
    """How many gaps lie in each bucket; empty buckets at both ends are left out.

    Raises ValueError for no gaps.
    """
    counts = np.zeros(len(EDGES_NS), dtype=np.int64)
    for part in blocks(len(gaps_ns)):
        counts += np.bincount(buckets_of(gaps_ns[part]), minlength=len(EDGES_NS))
    used = filled(counts)
    return Histogram(lower_ns=EDGES_NS[used], counts=tuple(counts[used].tolist()))
