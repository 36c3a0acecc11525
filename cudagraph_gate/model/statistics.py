"""Counts and samples in short."""

from __future__ import annotations

from cudagraph_gate.model.base import Value


class Counts(Value, frozen=True, kw_only=True, tag="counts"):
    """How often each name occurs."""

    by_name: dict[str, int]


class Distribution(Value, frozen=True, kw_only=True, tag="distribution"):
    """Percentiles of a sample, in ns."""

    count: int
    p50: int
    p95: int
    p99: int
    minimum: int
    maximum: int


class Histogram(Value, frozen=True, kw_only=True, tag="histogram"):
    """How many values of a sample lie in each bucket."""

    lower_ns: tuple[int, ...]
    """Inclusive lower end of each bucket; it reaches to the next one's, the last one is open."""
    counts: tuple[int, ...]
