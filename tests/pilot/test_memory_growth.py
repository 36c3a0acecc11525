"""What more memory is taken from one reading to the next."""

from __future__ import annotations

import pytest

from cudagraph_gate.model import NotMeasured
from cudagraph_gate.pilot.memory import Growth, MemoryReading

UNTOLD = NotMeasured(reason="it does not tell")


def reading(device: int, allocator: int | None = None, occupied: int | None = None) -> MemoryReading:
    return MemoryReading(
        device_used_bytes=device,
        allocator_bytes=UNTOLD if allocator is None else allocator,
        occupied_bytes=UNTOLD if occupied is None else occupied,
        host_rss_bytes=0,
    )


@pytest.mark.parametrize(
    ("then", "now", "growth", "arrays", "most"),
    [
        (reading(10), reading(17), Growth(None, 7), 7, 7),
        (reading(10, 5, 4), reading(17, 9, 5), Growth(1, 3), 1, 3),
        (reading(10, 5, 4), reading(14, 9, 8), Growth(4, 0), 4, 4),
        (reading(10, 5, 4), reading(14, 9, 4), Growth(0, 0), 0, 0),
        (reading(10, 9, 4), reading(12, 5, 4), Growth(0, 6), 0, 6),
        (reading(10, 5, None), reading(14, 9, None), Growth(None, 4), 4, 4),
    ],
)
def test_growth_is_told_by_place(
    then: MemoryReading, now: MemoryReading, growth: Growth, arrays: int, most: int
) -> None:
    assert Growth.between(then, now) == growth
    assert (growth.arrays, growth.most) == (arrays, most)
