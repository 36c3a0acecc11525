"""What is good enough: the limits that the gates judge by, and where they are read from."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from cudagraph_gate.errors import UsageError
from cudagraph_gate.model import Value

MIN_GAIN: Final = 0.05
"""Smaller gains don't pay for a second execution path that has to be kept right."""
MAX_TAIL_REGRESSION: Final = 0.05
"""A better median must not be bought with a tail that users notice."""
MAX_CPU_REGRESSION: Final = 0.10
"""Replay should free the CPU; a tenth allows for the copy of the inputs."""
MAX_MEMORY_BYTES: Final = 1 << 30
"""Per shape, device-wide: a service with ten shapes then stays within 10 GiB."""
MAX_SHAPES_MEMORY_BYTES: Final = 8 << 30
"""For the graphs of all shapes together: a tenth of a large GPU, which needs the rest for the model."""
MAX_REBUILD_SHARE: Final = 0.05
"""A rebuild costs tens to hundreds of requests: at one in twenty it eats every gain."""
MAX_BREAK_EVEN_CALLS: Final = 10_000
"""What a service sees in minutes; a graph that pays later than that mostly doesn't live long enough."""

PYPROJECT: Final = "pyproject.toml"


class Policy(Value, frozen=True, kw_only=True):
    """Limits of the gates. Shares are of the normal path: 0.05 is 5 %."""

    min_gain: float = MIN_GAIN
    max_tail_regression: float = MAX_TAIL_REGRESSION
    max_cpu_regression: float = MAX_CPU_REGRESSION
    max_memory_bytes: int = MAX_MEMORY_BYTES
    max_shapes_memory_bytes: int = MAX_SHAPES_MEMORY_BYTES
    max_rebuild_share: float = MAX_REBUILD_SHARE
    max_break_even_calls: int = MAX_BREAK_EVEN_CALLS


_RANGES: Final[dict[str, tuple[float, float]]] = {
    "min_gain": (0, 1),
    "max_tail_regression": (0, 10),
    "max_cpu_regression": (0, 10),
    "max_memory_bytes": (0, 1 << 50),
    "max_shapes_memory_bytes": (0, 1 << 50),
    "max_rebuild_share": (0, 1),
    "max_break_even_calls": (1, 10**12),
}
"""Smallest and largest value that makes sense, both included."""


def load_policy(path: Path | None, start: Path) -> Policy:
    """The policy in the TOML file ``path``, else in the nearest ``pyproject.toml`` upward from ``start``.

    A file holds the keys in ``[tool.cgate]``; one named by ``path`` may hold them at its top level. Raises
    UsageError, with the file, for what can't be read, unknown keys, wrong types and values out of range.
    """
    if path is not None:
        document = _read(path)
        return _policy(document.get("tool", {}).get("cgate", document), path)
    folder = start.resolve()
    for candidate in (place / PYPROJECT for place in (folder, *folder.parents)):
        if candidate.is_file():
            return _policy(_read(candidate).get("tool", {}).get("cgate", {}), candidate)
    return Policy()


def _read(path: Path) -> dict[str, Any]:
    try:
        # With a line end after it, a fault at the end of the text is reported with its line too.
        document = tomllib.loads(path.read_text(encoding="utf-8") + "\n")
    except OSError as error:
        raise UsageError(f"can't read the policy ({error.strerror})", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise UsageError("the policy is not UTF-8 text", where=str(path)) from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"not valid TOML: {error}", where=str(path)) from error
    if not isinstance(document.get("tool", {}), dict):
        raise UsageError("[tool] is not a table", where=str(path))
    return document


def _policy(table: Any, path: Path) -> Policy:
    if not isinstance(table, dict):
        raise UsageError("[tool.cgate] is not a table", where=str(path))
    checked: dict[str, Any] = {key: _checked(key, value, path) for key, value in table.items()}
    return Policy(**checked)


def _checked(key: str, value: Any, path: Path) -> int | float:
    kinds = {field.name: field.type for field in msgspec.structs.fields(Policy)}
    if key not in kinds:
        near = difflib.get_close_matches(key, kinds, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(kinds)}"
        raise UsageError(f"unknown policy key {key!r}", where=str(path), hint=hint)
    whole = kinds[key] is int
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        wanted = "a whole number" if whole else "a number"
        raise UsageError(f"{key} must be {wanted}, not {value!r}", where=str(path))
    low, high = _RANGES[key]
    if not low <= value <= high:  # also refuses nan
        raise UsageError(f"{key} must be between {low:g} and {high:g}, not {value!r}", where=str(path))
    return int(value) if whole else float(value)
