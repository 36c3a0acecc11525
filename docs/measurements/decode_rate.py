"""How many CUPTI records a second become a timeline: ``python docs/measurements/decode_rate.py``.

Needs no GPU. The buffers have the layouts that cupti-python publishes and hold what an eager loop leaves: for
each launch a runtime call, the driver call under it and the kernel; every 64 launches a copy, a marked range
and a synchronisation. Prints JSON.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudagraph_gate.timeline.cupti_buffers import Bytes, collect
from cudagraph_gate.timeline.cupti_kinds import WANTED
from cudagraph_gate.timeline.cupti_library import published_layouts
from cudagraph_gate.timeline.cupti_rows import Decoder
from cudagraph_gate.timeline.cupti_spool import BUFFER_BYTES

LAUNCHES: Final = 64
REPEATS: Final = 9
BUFFERS: Final = 8
TICK_NS: Final = 10_000
KERNELS: Final = 12
"""Different kernels in the loop."""

Item = tuple[int, dict[str, int]]
"""A record's kind and the fields that do not depend on when it was made."""


def newest(kind: int) -> np.dtype[Any]:
    """The largest published layout of a kind."""
    stem = WANTED[kind].stem
    named = {name.removesuffix("_dtype"): layout for name, layout in published_layouts().items()}
    return max(
        (layout for name, layout in named.items() if name.rstrip("0123456789") == stem),
        key=lambda layout: layout.itemsize,
    )


def iteration() -> list[Item]:
    """One turn of the loop."""
    items: list[Item] = [(12, {"flags_": 2, "id": 1, "name": 900}), (1, {"copy_kind": 1, "bytes": 4096})]
    for number in range(LAUNCHES):
        items += [(5, {"cbid": 211}), (4, {"cbid": 307}), (10, {"name": number % KERNELS + 1})]
    return [*items, (38, {"type": 3}), (5, {"cbid": 131}), (12, {"flags_": 4, "id": 1})]


class Loop:
    """Buffers of the loop; every turn has its own times, correlations and range."""

    def __init__(self) -> None:
        self.items = iteration()
        self.layouts = [newest(kind) for kind, _ in self.items]
        self.places = np.cumsum([0, *(layout.itemsize for layout in self.layouts)])
        self.turns = BUFFER_BYTES // int(self.places[-1])

    @property
    def records(self) -> int:
        """In one buffer."""
        return self.turns * len(self.items)

    def buffer(self, number: int) -> Bytes:
        """One full buffer, the ``number``-th of the recording."""
        rows = np.zeros((self.turns, int(self.places[-1])), np.uint8)
        turns = number * self.turns + np.arange(self.turns, dtype=np.int64)
        for index, (kind, fields) in enumerate(self.items):
            layout, place = self.layouts[index], int(self.places[index])
            records = np.zeros(self.turns, layout)
            records["kind"] = kind
            for name, value in fields.items():
                records[name] = value + (turns if name == "id" else 0)
            self._stamp(records, turns * len(self.items) + index)
            rows[:, place : place + layout.itemsize] = records.view(np.uint8).reshape(self.turns, -1)
        return rows.reshape(-1)

    def _stamp(self, records: np.ndarray[Any, Any], order: np.ndarray[Any, Any]) -> None:
        names = records.dtype.names or ()
        for name, value in (
            ("correlation_id", order // 3),
            ("start", order * TICK_NS + 1),
            ("end", order * TICK_NS + TICK_NS // 2),
            ("timestamp", order * TICK_NS + 1),
        ):
            if name in names:
                records[name] = value


def timed(work: Callable[[], object]) -> list[float]:
    """Seconds of each repeat, after one that warms up."""
    work()
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def rate(records: int, seconds: list[float]) -> dict[str, int]:
    """Records a second: median, slowest and fastest repeat."""
    return {
        "median": round(records / statistics.median(seconds)),
        "slowest": round(records / max(seconds)),
        "fastest": round(records / min(seconds)),
    }


def cpu_model() -> str:
    """As Linux names it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def main() -> None:
    """Measure, and print the result."""
    loop = Loop()
    buffers = [loop.buffer(number) for number in range(BUFFERS)]
    sizes = {kind: layout.itemsize for (kind, _), layout in zip(loop.items, loop.layouts, strict=True)}

    def size_of(memory: Bytes, valid: int, place: int) -> int:
        return sizes[int(memory[place : place + 4].view(np.uint32)[0])]

    def gathered() -> Any:
        layouts = published_layouts()
        return collect(((one, len(one)) for one in buffers), layouts, WANTED, size_of)[0]

    def decoded() -> Decoder:
        return Decoder(
            gathered(),
            process=1,
            callback_name=lambda domain, number: f"{'cu' if domain == 1 else 'cuda'}Call{number}",
            read_text=lambda pointer: f"text {pointer}",
        )

    records, found = loop.records * BUFFERS, decoded()
    assert len(found.operations) == loop.turns * BUFFERS * (LAUNCHES + 1), found.problems
    result = {
        "records": records,
        "operations": len(found.operations),
        "calls": len(found.calls),
        "repeats": REPEATS,
        "records_per_second": {
            "found and gathered": rate(records, timed(gathered)),
            "whole timeline": rate(records, timed(decoded)),
        },
        "cpu": cpu_model(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "pandas", "cupti-python")},
    }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
