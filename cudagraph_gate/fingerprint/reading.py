"""Reading many small facts, each of which may be unreadable for its own reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cudagraph_gate.model import FieldValue

Readers = Mapping[str, Callable[[], FieldValue]]
"""Field name to the function that reads it."""


class UnreadableError(Exception):
    """A field can't be read; its text is the reason that ``missing`` gives."""


@dataclass(frozen=True)
class Readings:
    """Fields that were read, and the reason for each that was not."""

    identity: Mapping[str, FieldValue] = field(default_factory=dict)
    conditions: Mapping[str, FieldValue] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, other: Readings) -> Readings:
        return Readings(
            {**self.identity, **other.identity},
            {**self.conditions, **other.conditions},
            {**self.missing, **other.missing},
        )


def read(
    identity: Readers, conditions: Readers | None = None, *, failures: tuple[type[Exception], ...] = ()
) -> Readings:
    """Call every reader; UnreadableError, OSError and ``failures`` become a reason in ``missing``."""
    missing: dict[str, str] = {}
    caught: tuple[type[Exception], ...] = (UnreadableError, OSError, *failures)

    def values(readers: Readers) -> dict[str, FieldValue]:
        found: dict[str, FieldValue] = {}
        for name, reader in readers.items():
            try:
                found[name] = reader()
            except caught as error:
                missing[name] = _reason(error)
        return found

    return Readings(values(identity), values(conditions or {}), missing)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split()) or type(error).__name__
