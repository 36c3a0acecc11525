"""Raw CUPTI activity buffers: found by size at run time, gathered by NumPy, no Python object a record.

A buffer holds records of several kinds one after the other, each starting with its kind (uint32). The
size of a kind's record depends on the CUPTI library, so CUPTI's own iterator is asked once per kind; the
layout comes from the dtypes that cupti-python publishes.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

WORD_BYTES: Final = 8
"""Records are aligned to and padded to 8 bytes (ACTIVITY_RECORD_ALIGNMENT in cupti_activity.h)."""
KINDS: Final = 256
"""Kinds are numbered far below this (about 60 in CUPTI 13), so that their low byte tells them apart."""
SLABS: Final = (64, 4096)
"""Fewest and most records walked one by one before a leap is tried: a leap that fails costs about 100."""
KEYS: Final = (256, 16)
"""Kinds in a row by which a loop's turn is known again."""
LONGEST_GUESS: Final = 32_768
"""Records guessed in one step: bounds the memory of a guess to one MiB."""

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Columns = dict[str, npt.NDArray[Any]]
"""Records of one kind, field by field; a field of a nested structure is named by its path."""
SizeOf = Callable[[Bytes, int, int], int | None]
"""(buffer, valid bytes, offset) -> size in bytes of the record there; None if it is the last one."""


@dataclass(frozen=True)
class Wanted:
    """A kind of record to read: the family of its published layouts, and the fields that are needed."""

    stem: str
    fields: tuple[str, ...]


def collect(
    buffers: Iterable[tuple[Bytes, int]],
    layouts: Mapping[str, np.dtype[Any]],
    wanted: Mapping[int, Wanted],
    size_of: SizeOf,
) -> tuple[dict[int, Columns], list[str]]:
    """The wanted records of all buffers (with their valid bytes) by kind, and what could not be read.

    Each buffer is let go before the next one is taken, so that only the needed fields stay in memory.
    """
    sizes: dict[int, int] = {}
    chosen = LayoutChoice(layouts)
    parts: defaultdict[int, list[Columns]] = defaultdict(list)
    unread: Counter[int] = Counter()
    for buffer, valid_bytes in buffers:
        for kind, places in record_offsets(buffer, valid_bytes, sizes, size_of).items():
            unread[kind] += len(places)
            want = wanted.get(kind)
            layout = chosen(want.stem, sizes.get(kind)) if want else None
            if want is not None and layout is not None:
                found, count = gather(buffer[:valid_bytes], places, layout, want.fields)
                parts[kind].append(found)
                unread[kind] -= count
    problems = [
        f"{count} records of CUPTI kind {kind} fit no known layout" for kind, count in unread.items() if count
    ]
    return {kind: _joined(arrays) for kind, arrays in parts.items()}, problems


def record_offsets(
    buffer: Bytes, valid_bytes: int, sizes: dict[int, int], size_of: SizeOf
) -> dict[int, Places]:
    """Offsets of the records in 8-byte words, by kind; ``sizes`` (kind to bytes) grows as kinds appear.

    Walking stops at a record of a number that is no kind: what follows it can't be told apart.
    """
    whole = buffer[: valid_bytes // WORD_BYTES * WORD_BYTES]
    places = _walk(whole, valid_bytes, sizes, size_of)
    kinds = whole.view(np.uint32)[2 * places]
    strange = np.flatnonzero(kinds >= KINDS)[:1]
    found = {int(kinds[at]): places[at : at + 1] for at in strange}
    if len(strange):
        kinds, places = kinds[: strange[0]], places[: strange[0]]
    for kind in np.flatnonzero(np.bincount(kinds.astype(np.uint8))).tolist():
        found[kind] = places[kinds == kind]
    return found


def _walk(buffer: Bytes, valid_bytes: int, sizes: dict[int, int], size_of: SizeOf) -> Places:
    """Places of all records in order. CUPTI is asked for the size of a kind that is new."""
    low = buffer[::WORD_BYTES].tobytes()
    kinds = np.frombuffer(low, np.uint8)
    steps = np.zeros(KINDS, np.int64)
    for kind, size in sizes.items():
        steps[kind % KINDS] = size // WORD_BYTES
    parts: list[Places] = []
    seen = bytearray()
    place, end, slab = 0, len(low), SLABS[0]
    while place < end:
        walked, place = _slab(low, steps.tolist(), place, slab)
        parts.append(walked)
        seen += kinds[walked].tobytes()
        if place < end and not steps[low[place]]:
            size_bytes = size_of(buffer, valid_bytes, place * WORD_BYTES)
            if not size_bytes:  # the buffer's last record, of a kind not seen before
                return np.concatenate([*parts, np.array([place], np.int64)])
            kind = int(buffer[place * WORD_BYTES :][:4].view(np.uint32)[0])
            sizes[kind] = size_bytes
            steps[kind % KINDS] = size_bytes // WORD_BYTES
            continue
        before = len(seen)
        place = _leap(kinds, steps, place, seen, parts)
        slab = SLABS[0] if len(seen) - before > slab else min(2 * slab, SLABS[1])
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _slab(low: bytes, steps: list[int], place: int, most: int) -> tuple[Places, int]:
    """The next records, ``most`` at most, up to one of unknown size; and the place after them."""
    slab = array("q")
    append, end = slab.append, len(low)
    for _ in range(most):
        if place >= end:
            break
        step = steps[low[place]]
        if not step:
            break
        append(place)
        place += step
    return np.frombuffer(slab, np.int64), place


def _leap(kinds: Bytes, steps: Places, place: int, seen: bytearray, parts: list[Places]) -> int:
    """Walk on as long as kinds repeat as before: a guess of many records is checked in one step.

    ``seen`` (kinds) and ``parts`` (places) grow by the records that were guessed right; returns the place
    after them.
    """
    period, length = _period(seen), SLABS[0]
    while period and place < len(kinds):
        expected = np.frombuffer((period * (length // len(period) + 1))[:length], np.uint8)
        ends = place + np.cumsum(steps[expected])
        starts = ends - steps[expected]
        right = (starts < len(kinds)) & (kinds[np.minimum(starts, len(kinds) - 1)] == expected)
        count = len(right) if right.all() else int(np.argmin(right))
        if count:
            parts.append(starts[:count])
            seen += expected[:count].tobytes()
            place = int(ends[count - 1])
        if count < len(right):
            break
        turn = length % len(period)
        period, length = period[turn:] + period[:turn], min(4 * length, LONGEST_GUESS)
    return place


def _period(seen: bytearray) -> bytes:
    """The kinds that follow, over and over, if what followed the last ones before follows again.

    Many kinds in a row are looked for first: few of them are found inside a loop's body, too.
    """
    recent = bytes(seen[-LONGEST_GUESS:])
    for key in KEYS:
        before = recent.rfind(recent[-key:], 0, len(recent) - 1)
        if len(recent) > key and before >= 0:
            return recent[before + key :]
    return b""


def gather(
    buffer: Bytes, places: Places, layout: np.dtype[Any], fields: Iterable[str]
) -> tuple[Columns, int]:
    """The ``fields`` of the records at ``places`` (in words), and how many records lie whole in the buffer.

    A field that the layout lacks is zero.
    """
    words = layout.itemsize // WORD_BYTES
    starts = max(0, len(buffer) // WORD_BYTES - words + 1)
    whole = places[places < starts]
    # One overlapping record a word: picking a field of it by place needs no arithmetic a record.
    every: npt.NDArray[Any] = np.ndarray((starts,), layout, buffer.data, strides=(WORD_BYTES,))
    return {name: _picked(every, name, whole) for name in fields}, len(whole)


def _picked(every: npt.NDArray[Any], path: str, places: Places) -> npt.NDArray[Any]:
    for name in path.split("."):
        if name not in (every.dtype.names or ()):
            return np.zeros(len(places), np.int64)
        every = every[name]
    picked: npt.NDArray[Any] = every[places]
    return picked


def choose_layout(
    published: Mapping[str, np.dtype[Any]], stem: str, size: int | None
) -> np.dtype[Any] | None:
    """The newest published layout of a record family that fits records of ``size`` bytes.

    CUPTI appends fields from version to version, so where no layout has that very size the largest smaller
    one reads the front of each record. None if even the smallest is larger.
    """
    versions = sorted(
        (layout for name, layout in published.items() if _is_version(name, stem)), key=lambda d: d.itemsize
    )
    if size is None:
        return versions[0] if versions else None
    fitting = [layout for layout in versions if layout.itemsize <= size]
    return fitting[-1] if fitting else None


class LayoutChoice:
    """:func:`choose_layout` among the same layouts again and again."""

    def __init__(self, published: Mapping[str, np.dtype[Any]]) -> None:
        self._published = published
        self._known: dict[tuple[str, int | None], np.dtype[Any] | None] = {}

    def __call__(self, stem: str, size: int | None) -> np.dtype[Any] | None:
        """The layout for a record family and size."""
        key = (stem, size)
        if key not in self._known:
            self._known[key] = choose_layout(self._published, stem, size)
        return self._known[key]


def _is_version(name: str, stem: str) -> bool:
    rest = name.removeprefix(stem).removesuffix("_dtype")
    return name.startswith(stem) and (rest == "" or rest.isdigit())


def _joined(parts: list[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
