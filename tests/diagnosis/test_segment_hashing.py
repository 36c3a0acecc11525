"""Hashes of sequences, whatever they are cut into on the way."""

from __future__ import annotations

import numpy as np

from cudagraph_gate.diagnosis.segment_hashing import mixed, sequence_hashes
from cudagraph_gate.timeline.intervals import BLOCK, int64


def test_equal_slices_have_equal_hashes_wherever_they_lie() -> None:
    slices = BLOCK // 3 + 1
    hashes = np.tile(np.array([5, 6, 7, 8], dtype=np.uint64), slices)
    first = np.arange(slices, dtype=np.int64) * 4
    assert len(np.unique(sequence_hashes(hashes, first, first + 4))) == 1
    assert len(np.unique(sequence_hashes(hashes, first, first + 3))) == 1


def test_a_slice_longer_than_a_block_counts_as_one() -> None:
    hashes = np.arange(3 * BLOCK, dtype=np.uint64)
    first, beyond = int64([0, 10, 3 * BLOCK - 5]), int64([10, 3 * BLOCK - 5, 3 * BLOCK])
    whole = sequence_hashes(hashes, first, beyond)
    alone = [sequence_hashes(hashes, first[row:][:1], beyond[row:][:1])[0] for row in range(3)]
    assert whole.tolist() == alone


def test_order_matters_and_no_slices_have_no_hashes() -> None:
    hashes = np.array([1, 2, 2, 1], dtype=np.uint64)
    one, other = sequence_hashes(hashes, int64([0, 2]), int64([2, 4])).tolist()
    assert one != other
    assert sequence_hashes(hashes, int64([]), int64([])).tolist() == []


def test_mixing_works_in_place_and_the_same_in_every_block() -> None:
    values = np.full(BLOCK + 1, 3, dtype=np.uint64)
    assert mixed(values) is values
    assert len(np.unique(values)) == 1
    assert values[0] != 3
