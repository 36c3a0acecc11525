"""How the repeats of a segment differ: variants, what varies, and the longest piece that stays the same."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.segment_boundaries import MIN_OPERATIONS, Repeats
from cudagraph_gate.diagnosis.segment_hashing import (
    SHAPE_COLUMNS,
    SIZE_COLUMNS,
    STREAM_COLUMNS,
    UInt64,
    grouped,
    operation_hashes,
    sequence_hashes,
)
from cudagraph_gate.diagnosis.segment_periods import grams
from cudagraph_gate.diagnosis.segment_tokens import Lane
from cudagraph_gate.model import NotMeasured, SegmentVariant, SegmentVariation, StablePiece
from cudagraph_gate.timeline.intervals import Int64, expand, int64

MOST_VARIANTS: Final = 10
"""Variants that are listed: what a person reads; all count in the shares."""
STABLE_SHARE: Final = 0.95
"""Share of the repeats that hold a stable piece: one in twenty may take the normal path at little cost."""
MOST_ALIGNED: Final = 20
"""Variants that are aligned with the commonest one; the rest are only searched for the piece found."""
MOST_MATCHED: Final = 500
"""Tokens up to which sequences are aligned by matching blocks; longer ones by their equal ends alone."""


@dataclass(frozen=True)
class Variants:
    """The distinct sequences of a segment's repeats, the most frequent first, ties by first occurrence."""

    signature: UInt64
    repeats: Int64
    example: Int64
    """Index of the first repeat of each."""
    variant: Int64
    """The variant of each repeat."""


def variants_of(hashes: UInt64, repeats: Repeats) -> Variants:
    """``hashes``: one a token of the lane, of all that is compared."""
    sequences = sequence_hashes(hashes, repeats.first, repeats.beyond)
    signature, example, kind, count = np.unique(
        sequences, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.lexsort((example, -count))
    rank = np.argsort(order, kind="stable")
    return Variants(signature[order], int64(count[order]), int64(example[order]), int64(rank[kind]))


def summaries(lane: Lane, repeats: Repeats, variants: Variants) -> tuple[SegmentVariant, ...]:
    """The most frequent variants."""
    operations = lane.operations_in(repeats.first, repeats.beyond)[variants.example]
    return tuple(
        SegmentVariant(
            signature=digest(variants, place),
            repeats=int(variants.repeats[place]),
            share=float(variants.repeats[place] / len(repeats.first)),
            operations=int(operations[place]),
        )
        for place in range(min(len(operations), MOST_VARIANTS))
    )


def digest(variants: Variants, place: int) -> str:
    """The signature of one variant as text."""
    return f"{int(variants.signature[place]):016x}"


def variation_of(
    operations: pd.DataFrame, lane: Lane, repeats: Repeats, variants: Variants
) -> SegmentVariation:
    """The share of repeats that differ from the commonest variant, in each respect."""
    first, beyond = repeats.first[variants.example], repeats.beyond[variants.example]
    counts = lane.operations_in(first, beyond)
    total = len(repeats.first)

    def share(differs: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
        return float(variants.repeats[differs].sum() / total)

    loose = _facet(operations, lane, first, beyond, ())
    is_same = (counts == counts[0]) & (loose == loose[0])
    facets = {
        name: _facet(operations, lane, first, beyond, columns)
        for name, columns in (("grid", SHAPE_COLUMNS), ("sizes", SIZE_COLUMNS), ("streams", STREAM_COLUMNS))
    }
    return SegmentVariation(
        operation_count=share(counts != counts[0]),
        order=share((counts == counts[0]) & (loose != loose[0])),
        **{name: share(is_same & (hashes != hashes[0])) for name, hashes in facets.items()},
    )


def _facet(
    operations: pd.DataFrame, lane: Lane, first: Int64, beyond: Int64, columns: tuple[str, ...]
) -> UInt64:
    """One hash for each slice, of kinds, names and ``columns`` alone."""
    slices, tokens = expand(first, beyond - first)
    slot, rows = expand(lane.first[tokens], np.diff(lane.first)[tokens])
    borders = np.searchsorted(slot, np.arange(len(tokens) + 1))
    hashes = grouped(operation_hashes(operations, lane.rows[rows], columns), int64(borders))
    ends = np.searchsorted(slices, np.arange(len(first) + 1))
    return sequence_hashes(hashes, int64(ends[:-1]), int64(ends[1:]))


# --- the stable piece -----------------------------------------------------------------------------
def stable_piece(
    operations: pd.DataFrame, lane: Lane, repeats: Repeats, variants: Variants, hashes: UInt64
) -> StablePiece | NotMeasured:
    """The longest run of the commonest variant that nearly every repeat has; compared in everything."""
    sequences = [hashes[repeats.first[place] : repeats.beyond[place]] for place in variants.example.tolist()]
    first, beyond = _longest_piece(sequences[:MOST_ALIGNED], variants.repeats[:MOST_ALIGNED])
    begin = int(repeats.first[variants.example[0]])
    length = int(lane.first[begin + beyond] - lane.first[begin + first])
    share = _share_with(sequences, variants.repeats, sequences[0][first:beyond])
    if length < MIN_OPERATIONS or share < STABLE_SHARE:
        reason = (
            f"no {MIN_OPERATIONS} neighbouring operations are the same in {STABLE_SHARE:.0%} of the repeats"
        )
        return NotMeasured(reason=reason)
    rows = lane.rows[lane.first[begin + first] : lane.first[begin + beyond]]
    return StablePiece(
        first=int(lane.first[begin + first] - lane.first[begin]),
        operations=length,
        first_operation=str(operations["name"].iloc[int(rows[0])]),
        last_operation=str(operations["name"].iloc[int(rows[-1])]),
        repeat_share=share,
    )


def _longest_piece(sequences: list[UInt64], weights: Int64) -> tuple[int, int]:
    """First and beyond of the longest piece of the first sequence that enough of the others hold in one
    block; an empty one if there is none."""
    reach = np.stack([_reach(sequences[0], other) for other in sequences])
    order = np.argsort(-reach, axis=0, kind="stable")
    held = np.cumsum(weights[order], axis=0)
    enough = np.argmax(held >= STABLE_SHARE * weights.sum(), axis=0)
    ends = np.take_along_axis(np.take_along_axis(reach, order, axis=0), enough[None], axis=0)[0]
    first = int(np.argmax(ends - np.arange(len(ends))))
    return first, int(ends[first])


def _reach(ours: UInt64, theirs: UInt64) -> Int64:
    """For each place of ours, the end of the block around it that theirs has too; the place if none has."""
    reach = np.arange(len(ours), dtype=np.int64)
    for first, length in _blocks(ours, theirs):
        reach[first : first + length] = first + length
    return reach


def _blocks(ours: UInt64, theirs: UInt64) -> list[tuple[int, int]]:
    """Place and length in ours of the blocks that both have in the same order."""
    shorter = min(len(ours), len(theirs))
    head = _equal(ours[:shorter], theirs[:shorter])
    if head == len(ours):
        return [(0, head)]
    tail = _equal(ours[head:][::-1][: shorter - head], theirs[head:][::-1][: shorter - head])
    middle, other = ours[head : len(ours) - tail].tolist(), theirs[head : len(theirs) - tail].tolist()
    blocks = [(0, head), (len(ours) - tail, tail)]
    if max(len(middle), len(other)) <= MOST_MATCHED:
        matched = SequenceMatcher(None, middle, other, autojunk=False).get_matching_blocks()
        blocks += [(head + block.a, block.size) for block in matched]
    return [block for block in blocks if block[1]]


def _equal(ours: UInt64, theirs: UInt64) -> int:
    """How many values are equal from the start on."""
    differs = np.flatnonzero(ours != theirs)
    return int(differs[0]) if len(differs) else len(ours)


def _share_with(sequences: list[UInt64], weights: Int64, piece: UInt64) -> float:
    """Share of all repeats that hold the piece."""
    holding = [weight for sequence, weight in zip(sequences, weights, strict=True) if _holds(sequence, piece)]
    return float(sum(holding) / weights.sum())


def _holds(sequence: UInt64, piece: UInt64) -> bool:
    """Candidates are the places of the first codes; long pieces are compared whole at those alone."""
    size = min(len(piece), 8)
    if not size or len(piece) > len(sequence):
        return False
    starts = np.flatnonzero(grams(sequence.view(np.int64), size) == grams(piece[:size].view(np.int64), size))
    starts = starts[starts + len(piece) <= len(sequence)]
    return any(np.array_equal(sequence[start : start + len(piece)], piece) for start in starts)
