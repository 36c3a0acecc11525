"""CUPTI activity buffers made with the record layouts that cupti-python publishes: no driver needed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from cupti import cupti as bindings

from cudagraph_gate.timeline.cupti_buffers import Bytes, Columns, collect
from cudagraph_gate.timeline.cupti_kinds import WANTED
from cudagraph_gate.timeline.cupti_rows import Decoder

STEMS: Final = {kind: wanted.stem for kind, wanted in WANTED.items()}
LAYOUTS: Final[Mapping[str, np.dtype[Any]]] = {
    name: getattr(bindings, name)
    for name in dir(bindings)
    if name.startswith("activity_") and name.endswith("_dtype")
}
PROCESS: Final = 77


def versions(stem: str) -> tuple[str, ...]:
    """The published versions of a record family, the smallest first: other ones with each cupti-python."""
    names = [name.removesuffix("_dtype") for name in LAYOUTS if re.fullmatch(rf"{stem}\d*_dtype", name)]
    return tuple(sorted(names, key=lambda name: LAYOUTS[f"{name}_dtype"].itemsize))


NEWEST: Final = {kind: versions(stem)[-1] for kind, stem in STEMS.items()}


def layout(name: str) -> np.dtype[Any]:
    return LAYOUTS[f"{name}_dtype"]


def record(kind: int, version: str | None = None, *, extra_bytes: int = 0, **fields: int) -> bytes:
    """One record; ``thread_id`` goes into a marker's object. ``extra_bytes`` are those of a newer CUPTI."""
    made = np.zeros(1, layout(version or NEWEST[kind]))
    made["kind"] = kind
    for field, value in fields.items():
        inside = made if field in (made.dtype.names or ()) else made["object_id"]["pt"]
        inside[field] = value
    return made.tobytes() + b"\xee" * extra_bytes


def buffer(*records: bytes, spare_bytes: int = 64) -> tuple[Bytes, int]:
    """An activity buffer that is not quite full, and its valid bytes."""
    content = b"".join(records)
    return np.frombuffer(bytearray(content + b"\xaa" * spare_bytes), np.uint8), len(content)


class SizeByKind:
    """CUPTI's iterator with given record sizes; remembers where it was asked."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self._sizes = sizes
        self.asked: list[tuple[int, int]] = []

    def __call__(self, memory: Bytes, valid_bytes: int, offset: int) -> int | None:
        kind = int(memory[offset : offset + 4].view(np.uint32)[0])
        self.asked.append((kind, offset))
        size = self._sizes[kind]
        return size if offset + size < valid_bytes else None


NEWEST_SIZES: Final = {kind: layout(name).itemsize for kind, name in NEWEST.items()}


def collected(*buffers: tuple[Bytes, int], sizes: Mapping[int, int] = NEWEST_SIZES) -> dict[int, Columns]:
    """Records by kind, where everything can be read."""
    records, problems = collect(buffers, LAYOUTS, WANTED, SizeByKind(sizes))
    assert problems == []
    return records


TEXTS: Final = {0: "", 100: "scale", 200: "add", 300: "request", 400: "cgate", 500: "loading"}
"""What lies at the addresses that records point to."""
CALLBACKS: Final = {
    (1, 1): "cuLaunchKernel",
    (1, 2): "cuStreamSynchronize",
    (1, 3): "cuMemcpyHtoDAsync",
    (1, 4): "cuStreamWaitEvent",
    (1, 5): "cuEventRecord",
    (1, 6): "cuLaunchKernel",
    (2, 1): "cudaLaunchKernel",
    (2, 2): "cudaMemcpy",
    (2, 3): "cudaMemcpyBatchAsync",
}


def decoded(records: Iterable[bytes], sites: Mapping[int, str] | None = None) -> Decoder:
    """The frames of one buffer's records."""
    return Decoder(
        collected(buffer(*records)),
        process=PROCESS,
        callback_name=lambda domain, number: CALLBACKS[domain, number],
        read_text=lambda pointer: TEXTS[pointer],
        sites=sites,
    )
