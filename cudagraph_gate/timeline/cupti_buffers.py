"""Raw CUPTI activity buffers: found by size at run time, gathered by NumPy, no Python object a record.

A buffer holds records of several kinds one after the other, each starting with its kind (uint32). The
size of a kind's record depends on the CUPTI library, so CUPTI's own iterator is asked once per kind; the
layout comes from the dtypes that cupti-python publishes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

WORD_BYTES: Final = 8
"""Records are aligned to and padded to 8 bytes (ACTIVITY_RECORD_ALIGNMENT in cupti_activity.h)."""

Bytes = npt.NDArray[np.uint8]
Records = npt.NDArray[Any]
SizeOf = Callable[[Bytes, int, int], int | None]
"""(buffer, valid bytes, offset) -> size in bytes of the record there; None if it is the last one."""


def collect(
    buffers: Iterable[tuple[Bytes, int]],
    layouts: Mapping[str, np.dtype[Any]],
    stems: Mapping[int, str],
    size_of: SizeOf,
) -> tuple[dict[int, Records], list[str]]:
    """The records of all buffers (with their valid bytes) by kind, and what could not be read.

    ``stems`` names the layout family of each kind that is wanted.
    """
    sizes: dict[int, int] = {}
    parts: defaultdict[int, list[Records]] = defaultdict(list)
    unread: Counter[int] = Counter()
    for buffer, valid_bytes in buffers:
        for kind, places in record_offsets(buffer, valid_bytes, sizes, size_of).items():
            layout = choose_layout(layouts, stems[kind], sizes.get(kind)) if kind in stems else None
            found = gather(buffer[:valid_bytes], places, layout) if layout is not None else None
            if found is not None:
                parts[kind].append(found)
            unread[kind] += len(places) - (len(found) if found is not None else 0)
    problems = [
        f"{count} records of CUPTI kind {kind} fit no known layout" for kind, count in unread.items() if count
    ]
    return {kind: _joined(arrays) for kind, arrays in parts.items()}, problems


def record_offsets(
    buffer: Bytes, valid_bytes: int, sizes: dict[int, int], size_of: SizeOf
) -> dict[int, list[int]]:
    """Offsets of the records in 8-byte words, by kind; ``sizes`` (kind to bytes) grows as kinds appear."""
    kinds = buffer[: valid_bytes // WORD_BYTES * WORD_BYTES].data.cast("I")
    words = {kind: size // WORD_BYTES for kind, size in sizes.items()}
    offsets: defaultdict[int, list[int]] = defaultdict(list)
    place, end = 0, valid_bytes // WORD_BYTES
    while place < end:
        kind = kinds[2 * place]
        size = words.get(kind)
        if size is None:
            size_bytes = size_of(buffer, valid_bytes, place * WORD_BYTES)
            if size_bytes is None:  # the buffer's last record, of a kind not seen before
                offsets[kind].append(place)
                break
            sizes[kind] = size_bytes
            size = words[kind] = size_bytes // WORD_BYTES
        offsets[kind].append(place)
        place += size
    return dict(offsets)


def gather(buffer: Bytes, offsets: list[int], layout: np.dtype[Any]) -> Records:
    """The records at ``offsets`` (in words) as one structured array of ``layout``."""
    words = layout.itemsize // WORD_BYTES
    source = buffer[: len(buffer) // WORD_BYTES * WORD_BYTES].view(np.uint64)
    starts = np.asarray(offsets, dtype=np.int64)
    fitting = starts[starts + words <= len(source)]
    records: Records = source[fitting[:, None] + np.arange(words)].view(layout).reshape(-1)
    return records


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


def _is_version(name: str, stem: str) -> bool:
    rest = name.removeprefix(stem).removesuffix("_dtype")
    return name.startswith(stem) and (rest == "" or rest.isdigit())


def _joined(arrays: list[Records]) -> Records:
    # Layouts of one recording differ only where a kind was first seen as the last record of a buffer.
    # Joined as bytes: NumPy would copy field by field, into a packed layout of its own.
    smallest = min((array.dtype for array in arrays), key=lambda layout: layout.itemsize)
    rows = [array.view(np.uint8).reshape(len(array), array.dtype.itemsize) for array in arrays]
    whole = np.concatenate([row[:, : smallest.itemsize] for row in rows])
    joined: Records = np.ascontiguousarray(whole).view(smallest).reshape(-1)
    return joined
