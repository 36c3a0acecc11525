"""Numbers as a person reads them in a gate's reason and in the reports."""

from __future__ import annotations

from typing import Final

_TIME_UNITS: Final = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_SIZE_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def duration(ns: float) -> str:
    """A time in ns with three digits and its unit: ``1.92 ms``."""
    return _scaled(ns, _TIME_UNITS, "ns")


def size(nbytes: float) -> str:
    """A size in bytes with three digits and its unit: ``1.50 GiB``."""
    return _scaled(nbytes, _SIZE_UNITS, "B")


def percent(share: float) -> str:
    """A share as a percentage: ``12.5 %``."""
    return f"{round(100 * share, 1) + 0.0:.1f} %"  # + 0.0: no minus before a zero


def one_line(text: str) -> str:
    """The text without line breaks and repeated blanks."""
    return " ".join(text.split())


def listed(names: list[str], limit: int) -> str:
    """The first ``limit`` names, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _scaled(value: float, units: tuple[tuple[int, str], ...], smallest: str) -> str:
    for factor, unit in units:
        scaled = value / factor
        if abs(scaled) >= 0.9995:  # what rounds to 1000 of the smaller unit is 1 of this one
            digits = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
            return f"{scaled:.{digits}f} {unit}"
    return f"{value:.0f} {smallest}"
