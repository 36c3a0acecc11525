"""Which slices of a token sequence are repeats of one another, also where some operations differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cudagraph_gate.diagnosis.segment_hashing import mixed, sequence_hashes
from cudagraph_gate.timeline.intervals import Int64, expand, int64

ALIKE: Final = 0.5
"""Slices that have at least half of all their tokens in common are variants of one segment."""
MOST_LEADERS: Final = 32
"""Kinds of slices told apart, the most frequent ones first: ten segments are reported."""
MOST_COMPARED: Final = 1_000_000
"""Tokens of distinct slices that are compared, the most frequent first: bounds the cost. Slices beyond are no
repeats of any other kind."""


@dataclass(frozen=True)
class Alike:
    """Indices of slices that are alike, and the share of them that are the commonest kind."""

    members: Int64
    common_share: float


def groups_of_alike(codes: Int64, first: Int64, beyond: Int64) -> list[Alike]:
    """The groups of the slices [first, beyond), the one with the most frequent kind first.

    Two slices are alike when their tokens, whatever the order, agree by ``ALIKE`` (multiset Jaccard). The
    slices are in order and disjoint.
    """
    if not len(first):
        return []
    hashes = sequence_hashes(mixed(codes.astype(np.uint64)), first, beyond)
    _, example, kind, count = np.unique(hashes, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((example, -count))
    lengths = (beyond - first)[example]
    compared = order[np.cumsum(lengths[order]) <= MOST_COMPARED]
    if len(compared):
        group = np.full(len(order), MOST_LEADERS, dtype=np.int64)
        group[compared] = _led(codes, first[example[compared]], lengths[compared])
    else:
        group = np.argsort(order, kind="stable")
    found = []
    for number in np.unique(group[group < MOST_LEADERS]):
        members = np.flatnonzero(group[kind] == number)
        found.append(Alike(int64(members), float(np.max(count[group == number]) / len(members))))
    return found


def _led(codes: Int64, first: Int64, lengths: Int64) -> Int64:
    """Group of each distinct slice; the first ungrouped one leads the next group."""
    group = np.full(len(first), -1, dtype=np.int64)
    owner, place = expand(first, lengths)
    token = int64(np.unique(codes[place], return_inverse=True)[1])
    tokens = int(np.max(token)) + 1
    pair, number = np.unique(owner * tokens + token, return_counts=True)
    owner, token = pair // tokens, pair % tokens
    for leader in range(MOST_LEADERS):
        free = np.flatnonzero(group < 0)
        if not len(free):
            break
        wanted = np.zeros(tokens, dtype=np.int64)
        own = owner == free[0]
        wanted[token[own]] = number[own]
        common = np.bincount(owner, np.minimum(number, wanted[token]), minlength=len(first))
        together = lengths + lengths[free[0]] - common
        group[(group < 0) & (common >= ALIKE * together)] = leader
    group[group < 0] = MOST_LEADERS
    return group
