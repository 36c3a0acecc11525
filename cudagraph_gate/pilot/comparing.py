"""Comparing two trajectories: pure functions of what was read.

The tolerance of each value is what the normal path differs by from itself, run again from the same state:
where that is nothing, the graph must agree bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from cudagraph_gate.device.port import HostArray
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.records import Comparison

BRIEF: Final = 60
"""Characters of a value in a sentence."""
TOLERANCE_FACTOR: Final = 4.0
"""Two repetitions show only a sample of how far the normal path strays from itself."""
REPEAT_LIMIT: Final = 0.01
"""Share of a value's largest magnitude: a normal path that strays further can't be a yardstick."""

Leaf = Any
"""A host array, or a plain Python value that the step returned."""
Subject = Literal["outputs", "state", "normal_again", "normal_repeat"]


@dataclass(frozen=True)
class Moment:
    """Outputs after one request, and the state entries that the normal path changes."""

    outputs: Mapping[str, Leaf]
    state: Mapping[str, Leaf]
    returned: Any = None
    """What the step returned, its arrays copied; kept only where the workload brings its own check."""

    def values(self) -> dict[str, Leaf]:
        """Outputs and state under names that can't clash."""
        return {f"output {name}": leaf for name, leaf in self.outputs.items()} | {
            f"state {name}": leaf for name, leaf in self.state.items()
        }


@dataclass(frozen=True)
class Trajectory:
    """Consecutive requests, and the digests of all state at the end."""

    moments: tuple[Moment, ...]
    final_state: Mapping[str, str]


@dataclass(frozen=True)
class Difference:
    """Largest absolute difference; infinite, with the reason, where values can't be subtracted."""

    error: float
    why_infinite: str = ""


def difference(expected: Leaf, actual: Leaf) -> Difference:
    """How far one value is from the expected one. Equal NaN and equal infinities count as equal."""
    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray):
        if _same_value(expected, actual):
            return Difference(0.0)
        return Difference(float("inf"), f"{_brief(actual)} for {_brief(expected)}")
    if (expected.shape, expected.dtype) != (actual.shape, actual.dtype):
        given, wanted = f"{actual.dtype}{actual.shape}", f"{expected.dtype}{expected.shape}"
        return Difference(float("inf"), f"{given} for {wanted}")
    if expected.dtype == np.bool_:  # NumPy takes every byte but 0 for the same True, poison too
        expected, actual = expected.view(np.uint8), actual.view(np.uint8)
    if np.array_equal(expected, actual, equal_nan=expected.dtype.kind in "fc"):
        return Difference(0.0)
    if expected.dtype.kind not in "iufc":
        return Difference(float("inf"), f"other values of type {expected.dtype}")
    error = _largest(expected, actual)
    return Difference(error, "" if np.isfinite(error) else "NaN or infinity where the other is a number")


def _brief(value: Leaf) -> str:
    """A value in a few words: whole arrays would fill the report."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}"
    text = repr(value)
    return text if len(text) <= BRIEF else f"{text[: BRIEF - 1]}…"


def _same_value(expected: Leaf, actual: Leaf) -> bool:
    if type(expected) is not type(actual):
        return False
    both_nan = isinstance(expected, float) and math.isnan(expected) and math.isnan(actual)
    try:
        return both_nan or bool(expected == actual)
    except Exception:  # noqa: BLE001  (a user's type that can't be compared is not known to be the same)
        return False


def _largest(expected: HostArray, actual: HostArray) -> float:
    if expected.dtype.kind in "iu":  # float64 can't tell neighbours beyond 2**53 apart
        unsigned = np.dtype(f"u{expected.dtype.itemsize}")
        low, high = np.minimum(expected, actual), np.maximum(expected, actual)
        return float(np.max(high.astype(unsigned) - low.astype(unsigned)))
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    left, right = expected.astype(wide), actual.astype(wide)
    with np.errstate(all="ignore"):
        error = np.abs(left - right)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    error = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
    return float(np.max(error))


def uninformative(normal: Trajectory, *, inputs_vary: bool) -> str:
    """Why agreeing with this trajectory would show nothing, or empty.

    ``inputs_vary`` says whether the requests may differ in their inputs.
    """
    outputs = [(name, leaf) for moment in normal.moments for name, leaf in moment.outputs.items()]
    arrays = [(name, leaf) for name, leaf in outputs if isinstance(leaf, np.ndarray)]
    if not any(leaf.size for _name, leaf in arrays):
        return "no output holds a value"
    nothing = {name for name, leaf in arrays if leaf.size and _all_nan(leaf)}
    nothing -= {name for name, leaf in arrays if not _all_nan(leaf)}
    if nothing:
        return f"output {min(nothing)} is NaN throughout, which looks like one that was never written"
    first, *others = (moment.values() for moment in normal.moments)
    if inputs_vary and all(_same_values(first, other) for other in others):
        return "all requests give the same outputs, so a graph that ignores its inputs would look right"
    return ""


def _all_nan(leaf: HostArray) -> bool:
    return leaf.dtype.kind in "fc" and bool(np.isnan(leaf).all())


def _same_values(one: Mapping[str, Leaf], other: Mapping[str, Leaf]) -> bool:
    return one.keys() == other.keys() and all(
        difference(leaf, other[name]).error == 0 for name, leaf in one.items()
    )


def repeat_tolerances(one: Trajectory, other: Trajectory) -> dict[str, float]:
    """Tolerance by value name, from two trajectories of the normal path."""
    found: dict[str, float] = {}
    for left, right in zip(one.moments, other.moments, strict=True):
        again = right.values()
        for name, leaf in left.values().items():
            error = difference(leaf, again.get(name)).error
            # What can't be compared even with itself gives no leave: its own comparison reports it.
            finite = error if math.isfinite(error) else 0.0
            found[name] = max(found.get(name, 0.0), TOLERANCE_FACTOR * finite)
    return found


def compare_values(
    shape: str,
    request: int,
    subject: Subject,
    expected: Mapping[str, Leaf],
    actual: Mapping[str, Leaf],
    tolerances: Mapping[str, float],
) -> Comparison:
    """One record for all ``expected`` values, each within the tolerance of its own name.

    Its detail names the value that is furthest beyond its tolerance, or else the one that is furthest off.
    """
    found = [
        (difference(leaf, actual.get(name)), tolerances.get(name, 0.0), name)
        for name, leaf in expected.items()
    ]
    worst, limit, name = max(found, key=_badness, default=(Difference(0.0), 0.0, ""))
    return Comparison(
        shape=shape,
        request=request,
        subject=subject,
        equal=worst.error <= limit,
        exact=all(each.error == 0 for each, _limit, _name in found),
        max_abs_error=_recordable(worst),
        tolerance=limit,
        detail="" if worst.error == 0 else name,
    )


def _badness(found: tuple[Difference, float, str]) -> tuple[bool, float]:
    """What is beyond its tolerance is worse than anything within, however noisy another value may be."""
    worst, limit, _name = found
    beyond = worst.error > limit
    return beyond, worst.error - limit if beyond else worst.error


def _recordable(found: Difference) -> float | NotMeasured:
    return found.error if math.isfinite(found.error) else NotMeasured(reason=found.why_infinite)


def compare_repeats(shape: str, one: Trajectory, other: Trajectory) -> Iterator[Comparison]:
    """Whether the normal path repeats itself closely enough to be compared with."""
    for request, (left, right) in enumerate(zip(one.moments, other.moments, strict=True)):
        values = left.values()
        limits = {name: REPEAT_LIMIT * _magnitude(leaf) for name, leaf in values.items()}
        yield compare_values(shape, request, "normal_repeat", values, right.values(), limits)


def _magnitude(leaf: Leaf) -> float:
    if not isinstance(leaf, np.ndarray) or not leaf.size or leaf.dtype.kind not in "iufc":
        return 0.0
    finite = np.abs(leaf[np.isfinite(leaf)].astype(np.complex128 if leaf.dtype.kind == "c" else np.float64))
    return float(finite.max()) if finite.size else 0.0


def compare_final_state(
    shape: str, request: int, expected: Mapping[str, str], actual: Mapping[str, str]
) -> Comparison:
    """All state after the last request by digest, entries that the normal path never changes included."""
    different = sorted(name for name in {*expected, *actual} if expected.get(name) != actual.get(name))
    named = ", ".join(different[:3]) + (f" and {len(different) - 3} more" if len(different) > 3 else "")
    return Comparison(
        shape=shape,
        request=request,
        subject="state",
        equal=not different,
        exact=not different,
        max_abs_error=NotMeasured(reason="digests differ") if different else 0.0,
        tolerance=0.0,
        detail=f"state after the last request: {named}" if different else "",
    )
