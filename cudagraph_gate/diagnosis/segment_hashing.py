"""64-bit hashes of operations and of their sequences, equal where what was recorded is equal.

Names enter by their text, so equal sequences of two recordings have equal hashes.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from cudagraph_gate.timeline.intervals import BLOCK, Int64, blocks, expand

UInt64 = npt.NDArray[np.uint64]

ODD: Final = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio's odd 64-bit fraction (as in splitmix64): multiples of it spread over all bits."""
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_SPARSE: Final = 4
"""Copying slices costs about as much as hashing four times as many values in place."""
SHAPE_COLUMNS: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
SIZE_COLUMNS: Final = ("bytes",)
TEXT_COLUMNS: Final = ("name", "kind")
STREAM_COLUMNS: Final = ("context", "stream")
ALL_COLUMNS: Final = (*SHAPE_COLUMNS, *SIZE_COLUMNS, *STREAM_COLUMNS)


def mixed(values: UInt64) -> UInt64:
    """Each value spread over all 64 bits (splitmix64's finaliser); works in place."""
    for part in blocks(len(values)):
        some = values[part]
        some ^= some >> np.uint64(30)
        some *= _FIRST
        some ^= some >> np.uint64(27)
        some *= _SECOND
        some ^= some >> np.uint64(31)
    return values


def operation_hashes(operations: pd.DataFrame, rows: Int64, columns: tuple[str, ...]) -> UInt64:
    """For each row, a hash of kind, name and ``columns``."""
    texts = [(_text_hashes(operations[name]), operations[name].cat.codes.to_numpy()) for name in TEXT_COLUMNS]
    numbers = [operations[column].to_numpy() for column in columns]
    # Most columns hold one value: adding that is the same and looks up nothing.
    constant = [len(values) > 0 and bool((values == values[0]).all()) for values in numbers]
    hashes = np.zeros(len(rows), dtype=np.uint64)
    for part in blocks(len(rows)):
        own, some = hashes[part], rows[part]
        for table, codes in texts:
            own *= ODD
            own += table[codes[some]]
        for values, is_constant in zip(numbers, constant, strict=True):
            own *= ODD
            own += (values[:1] if is_constant else values[some]).astype(np.uint64)
    return mixed(hashes)


def grouped(hashes: UInt64, first: Int64) -> UInt64:
    """One hash for each group of neighbours, whatever their order; ``first`` ends with the total."""
    if len(first) - 1 == len(hashes):
        return hashes
    return mixed(np.asarray(np.add.reduceat(hashes, first[:-1]), dtype=np.uint64))


def sequence_hashes(hashes: UInt64, first: Int64, beyond: Int64) -> UInt64:
    """One hash for each slice [first, beyond) of the sequence; slices are in order and disjoint."""
    if not len(first):
        return np.zeros(0, dtype=np.uint64)
    # A block of tokens, or one longer slice, at a time.
    starts = np.unique(np.searchsorted(first, np.arange(first[0], first[-1] + 1, BLOCK)))
    return np.concatenate(
        [_hashed(hashes, first[some:end], beyond[some:end]) for some, end in pairwise([*starts, len(first)])]
    )


def _hashed(hashes: UInt64, first: Int64, beyond: Int64) -> UInt64:
    low, high = int(first[0]), int(beyond[-1])
    lengths = beyond - first
    if lengths.sum() * _SPARSE < high - low:
        # A few slices of a long sequence: only they are looked at.
        _, places = expand(first, lengths)
        ends = np.cumsum(lengths)
        return _hashed(hashes[places], ends - lengths, ends)
    places = np.arange(low, high, dtype=np.int64)
    origin = np.repeat(first, np.diff(np.append(first, high)))
    places -= origin
    terms = places.view(np.uint64)
    terms *= ODD
    terms += hashes[low:high]
    return reduced(np.add, mixed(terms), first - low, beyond - low)


def reduced(ufunc: Any, values: npt.NDArray[Any], first: Int64, beyond: Int64) -> npt.NDArray[Any]:
    """``ufunc`` over each non-empty slice [first, beyond) of ``values``; slices are in order and disjoint."""
    borders = np.stack([first, beyond], axis=1).ravel()
    if len(borders) and borders[-1] == len(values):
        borders = borders[:-1]
    result: npt.NDArray[Any] = ufunc.reduceat(values, borders)[::2] if len(borders) else values[:0]
    return result


def _text_hashes(column: pd.Series) -> UInt64:
    """The hash of each category."""
    texts = [str(text).encode() for text in column.cat.categories]
    known = [int.from_bytes(blake2b(text, digest_size=8).digest(), "little") for text in texts]
    # A missing category has code -1 and takes the last place.
    return np.array([*known, 0], dtype=np.uint64)
