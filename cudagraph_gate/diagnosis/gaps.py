"""Which idle time is a matter of launching operations: what a graph can take away."""

from __future__ import annotations

from typing import Final

import numpy as np

from cudagraph_gate.diagnosis.causes import CAUSES, CausedPieces
from cudagraph_gate.model import SUBMISSION_CAUSES, Cause
from cudagraph_gate.timeline.intervals import Int64, blocks, int64

LONG_GAP_NS: Final = 1_000_000
"""Longer gaps are no matter of launching one operation: the slowest frameworks take 0.1 ms for it, and a few
times that under a recorder. In a longer gap the host did something else, or nobody did anything."""
SHORT_GAP_NS: Final = 100_000
"""Shorter gaps always may be a matter of launching."""
TIMES_THE_MEDIAN: Final = 20
"""Between the two, a gap is too long for launching where it is so many times the median time between
submissions: a loader that takes 0.8 ms stands out among launches every 20 µs."""
LATE_START_NS: Final = 20_000
"""An operation whose stream is free starts within a few µs of its launch. Later ones waited for something
that nobody recorded, such as a host callback, and wait for it in a graph too."""


def longest_launch_gap_ns(caused: CausedPieces) -> int:
    """The longest idle interval of a device that launching operations explains."""
    usual_ns = caused.cadence_ns or caused.median_gap_ns
    return round(min(max(TIMES_THE_MEDIAN * usual_ns, SHORT_GAP_NS), LONG_GAP_NS))


def late_starts(caused: CausedPieces) -> Int64:
    """Pieces (by place) of launch latency that are too long for it."""
    late = np.flatnonzero(caused.causes == CAUSES.index(Cause.LAUNCH_LATENCY))
    return int64(late[(caused.pieces.ends[late] - caused.pieces.starts[late]) > LATE_START_NS])


def launch_idle_ns(caused: CausedPieces) -> Int64:
    """For each idle interval, the part that launching caused: none of it in long gaps and of late starts."""
    pieces, lengths = caused.pieces, caused.interval_lengths_ns()
    submitting = np.array([cause in SUBMISSION_CAUSES for cause in CAUSES])
    found = np.zeros(len(lengths), dtype=np.int64)
    for part in blocks(len(pieces)):
        chosen = np.flatnonzero(submitting[caused.causes[part]]) + part.start
        np.add.at(found, pieces.owners[chosen], pieces.ends[chosen] - pieces.starts[chosen])
    late = late_starts(caused)
    np.subtract.at(found, pieces.owners[late], pieces.ends[late] - pieces.starts[late])
    found[lengths > longest_launch_gap_ns(caused)] = 0
    return found
