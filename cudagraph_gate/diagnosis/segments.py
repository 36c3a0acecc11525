"""Repeating sequences of operations: what a graph could be made of, by ``docs/definitions.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.gaps import launch_idle_ns
from cudagraph_gate.diagnosis.idle import IdleOfDevice
from cudagraph_gate.diagnosis.segment_boundaries import Repeats, repeats_of
from cudagraph_gate.diagnosis.segment_calls import LaneCalls, lane_calls, summaries_of
from cudagraph_gate.diagnosis.segment_hashing import UInt64, reduced
from cudagraph_gate.diagnosis.segment_map import map_of
from cudagraph_gate.diagnosis.segment_prediction import Repeat, predict_replay, repeat_of
from cudagraph_gate.diagnosis.segment_tokens import Lane, lanes_of, token_hashes
from cudagraph_gate.diagnosis.segment_variants import (
    Variants,
    digest,
    stable_piece,
    summaries,
    variants_of,
    variation_of,
)
from cudagraph_gate.diagnosis.submission import ints
from cudagraph_gate.model import (
    Measured,
    NotMeasured,
    ReplayPrediction,
    Segment,
)
from cudagraph_gate.stats import distribution
from cudagraph_gate.timeline.intervals import (
    Int64,
    Window,
    clip,
    expand,
    grouped_union_ns,
    int64,
    taken,
    union,
)
from cudagraph_gate.timeline.table import KERNEL, Timeline

MOST_SEGMENTS: Final = 10
"""Segments kept, the one with the most to gain first: what a person reads, and weighs."""
MOST_MEASURED: Final = 2_000_000
"""Operations whose busy time is measured repeat by repeat: beyond, evenly spaced repeats stand for all."""


@dataclass(frozen=True)
class _Candidate:
    """Repeats with what ranks them."""

    lane: Lane
    repeats: Repeats
    device: IdleOfDevice
    start_ns: Int64
    end_ns: Int64
    """The time of each repeat, which no other one has a part in."""
    upper_bound_ns: Measured

    @property
    def rank(self) -> tuple[int, int]:
        """Most to gain first, then most operations."""
        gain = 0 if isinstance(self.upper_bound_ns, NotMeasured) else self.upper_bound_ns
        held = self.lane.operations_in(self.repeats.first, self.repeats.beyond).sum()
        return -gain * len(self.start_ns), -int(held)


def segments_of(
    timeline: Timeline, operations: pd.DataFrame, window: Window, devices: Sequence[IdleOfDevice]
) -> tuple[Segment, ...] | NotMeasured:
    """The sequences that repeat in ``window`` at least three times, the one with the most to gain first.

    ``operations`` come from ``operations_with_submission``, ``devices`` from ``idle_of_devices``. Empty where
    nothing repeats.
    """
    if not devices:
        return NotMeasured(reason="no GPU operation lies in the window")
    best: list[_Candidate] = []
    for device in devices:
        found = _candidates(timeline, operations, window, device)
        best = sorted([*best, *found], key=lambda one: one.rank)[:MOST_SEGMENTS]
    segments: list[Segment | None] = [None] * len(best)
    # One lane after another, because each lane's hashes take as much memory as its operations.
    for lane in {id(one.lane): one.lane for one in best}.values():
        hashes, calls = token_hashes(operations, lane), lane_calls(lane, timeline)
        for place, one in enumerate(best):
            if one.lane is lane:
                segments[place] = _segment(one, operations, window, hashes, calls)
    kept = [segment for segment in segments if segment is not None]
    return tuple(msgspec.structs.replace(one, number=number) for number, one in enumerate(kept, start=1))


def _candidates(
    timeline: Timeline, operations: pd.DataFrame, window: Window, device: IdleOfDevice
) -> Iterator[_Candidate]:
    found = [
        (lane, repeats)
        for lane in lanes_of(timeline, operations, window, device.summary.process, device.summary.device)
        for repeats in repeats_of(operations, lane, timeline)
    ]
    before_ns = _launch_idle_before(operations, device)
    for lane, repeats in found:
        start, end = _spans(lane, repeats)
        wasted = _credited(before_ns, lane, repeats)
        yield _Candidate(lane, repeats, device, start, end, _upper_bound_ns(device, lane, wasted))


def _spans(lane: Lane, repeats: Repeats) -> tuple[Int64, Int64]:
    """Each repeat's time, in which no other one has a part.

    From its first submission, or from the end of the repeats before it if that is later, to its last end.
    Units back to back begin where the one before ended.
    """
    begin = int64(reduced(np.minimum, lane.begin_ns, repeats.first, repeats.beyond))
    end = np.maximum.accumulate(int64(reduced(np.maximum, lane.end_ns, repeats.first, repeats.beyond)))
    start = np.append(begin[:1], np.maximum(begin[1:], end[:-1]))
    if repeats.is_back_to_back:
        touching = np.flatnonzero(repeats.first[1:] == repeats.beyond[:-1])
        start[touching + 1] = end[touching]
    return start, int64(end)


def _launch_idle_before(operations: pd.DataFrame, device: IdleOfDevice) -> Int64:
    """For each operation, the idle that ended with it and that launching caused."""
    before = np.zeros(len(operations), dtype=np.int64)
    if device.pieces is not None and device.enders is not None:
        idle_ns = launch_idle_ns(device.pieces)
        caused = np.flatnonzero(idle_ns)
        before[device.enders[caused]] = idle_ns[caused]
    return before


def _credited(before_ns: Int64, lane: Lane, repeats: Repeats) -> Int64:
    """Idle that launching caused before the operations of each repeat, each ns once.

    The first operation counts only where repeats stand back to back: a graph is launched once as well.
    """
    total = np.zeros(len(lane.rows) + 1, dtype=np.int64)
    np.cumsum(taken(before_ns, lane.rows), out=total[1:])
    first, beyond = lane.first[repeats.first], lane.first[repeats.beyond]
    skipped = 0 if repeats.is_back_to_back else 1
    return int64(total[beyond] - total[np.minimum(first + skipped, beyond)])


def _upper_bound_ns(device: IdleOfDevice, lane: Lane, wasted: Int64) -> Measured:
    if isinstance(device.summary.idle_ns, NotMeasured):
        return device.summary.idle_ns
    if not lane.is_submission_known and lane.thread == 0:
        return NotMeasured(reason="no submission of the segment's operations is known")
    return _median(wasted)


def _median(values: Int64) -> int:
    return round(float(np.median(values)))


# --- one segment ----------------------------------------------------------------------------------
def _segment(
    one: _Candidate, operations: pd.DataFrame, window: Window, hashes: UInt64, calls: LaneCalls
) -> Segment:
    lane, repeats, device = one.lane, one.repeats, one.device.summary
    variants = variants_of(hashes, repeats)
    busy_ns, median = _busy(one, operations, variants)
    repeat = repeat_of(operations, lane, calls, int(repeats.first[median]), int(repeats.beyond[median]))
    around = calls.around(repeats)
    ending = calls.blocking[calls.blocking_place == repeat.beyond]
    covered = clip(union(one.start_ns, one.end_ns), window).length_ns
    return Segment(
        number=0,
        signature=digest(variants, 0),
        process=lane.process,
        device=lane.device,
        thread=lane.thread,
        marked_by=repeats.marked_by,
        operations=len(repeat.operations),
        unit_operations=_unit_operations(lane, hashes, repeat),
        repeats=len(repeats.first),
        coverage=covered / max(window[1] - window[0], 1),
        operation_share=_held(lane, repeats) / max(device.operations, 1),
        streams=len(np.unique(repeat.streams)),
        wall=distribution((one.end_ns - one.start_ns)[variants.variant == 0]),
        busy_ns=busy_ns,
        variants=summaries(lane, repeats, variants),
        variant_count=len(variants.repeats),
        variation=variation_of(operations, lane, repeats, variants),
        stable_piece=stable_piece(operations, lane, repeats, variants, hashes),
        blocking_calls=summaries_of(around),
        prohibited_calls=summaries_of(calls.prohibited_in(repeats)),
        graph_launches=int(lane.is_graph[repeat.first : repeat.beyond].sum()),
        kernels=_kernels(repeat),
        prediction=_prediction(one, repeat),
        map=map_of(repeat, lane, ending),
    )


def _held(lane: Lane, repeats: Repeats) -> int:
    return int(lane.operations_in(repeats.first, repeats.beyond).sum())


def _busy(one: _Candidate, operations: pd.DataFrame, variants: Variants) -> tuple[int, int]:
    """Median busy union of the commonest variant, and the repeat of it that has the median."""
    lane, repeats = one.lane, one.repeats
    step = max(-(-_held(lane, repeats) // MOST_MEASURED), 1)
    chosen = np.union1d(np.arange(0, len(repeats.first), step), variants.example[:1])
    first, beyond = lane.first[repeats.first[chosen]], lane.first[repeats.beyond[chosen]]
    owner, place = expand(first, beyond - first)
    rows = lane.rows[place]
    starts, ends = ints(operations, "start_ns")[rows], ints(operations, "end_ns")[rows]
    busy = grouped_union_ns(owner, starts, ends, len(chosen))
    commonest = np.flatnonzero(variants.variant[chosen] == 0)
    ordered = commonest[np.argsort(busy[commonest], kind="stable")]
    return _median(busy[commonest]), int(chosen[ordered[(len(ordered) - 1) // 2]])


def _unit_operations(lane: Lane, hashes: UInt64, repeat: Repeat) -> int:
    """Length of the shortest sequence that the repeat is some number of times, in operations."""
    own = hashes[repeat.first : repeat.beyond]
    divisors = [length for length in range(1, len(own) // 2 + 1) if len(own) % length == 0]
    for length in divisors:
        if np.array_equal(own[length:], own[:-length]):
            return int(lane.first[repeat.first + length] - lane.first[repeat.first])
    return len(repeat.operations)


def _kernels(repeat: Repeat) -> dict[str, int]:
    kernels = repeat.operations[(repeat.operations["kind"] == KERNEL).to_numpy()]
    names = kernels["name"].cat
    counts = np.bincount(names.codes, minlength=len(names.categories)).tolist()
    pairs = sorted(zip(map(str, names.categories), counts, strict=True))
    return {name: count for name, count in pairs if count}


def _prediction(one: _Candidate, repeat: Repeat) -> ReplayPrediction | NotMeasured:
    # What hides idle hides busy time too, and too little busy time predicts too much gain.
    if isinstance(one.device.summary.idle_ns, NotMeasured):
        return one.device.summary.idle_ns
    if one.lane.is_graph[repeat.first : repeat.beyond].all():
        return NotMeasured(reason="a repeat is nothing but graph launches: it is a graph already")
    return predict_replay(repeat, one.upper_bound_ns, is_unit=one.repeats.is_unit)
