"""Comparisons in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cudagraph_gate.model import NotMeasured
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.comparing import Trajectory
from cudagraph_gate.pilot.correctness import Expectation
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.records import Comparison


def described(comparison: Comparison) -> str:
    """``request 1: output differs (error 2)``."""
    error = comparison.max_abs_error
    seen = error.reason if isinstance(error, NotMeasured) else f"error {error:.3g}"
    return f"request {comparison.request}: {comparison.detail or comparison.subject} differs ({seen})"


def first_difference(session: Session, expected: Expectation, step: Callable[[Inputs], Any]) -> str:
    """How the first request differs that ``step`` serves otherwise than the normal path did; empty: none."""
    return first_unequal(session, expected, correctness.follow(session, step, expected.start))


def first_unequal(session: Session, expected: Expectation, actual: Trajectory) -> str:
    """The same of a trajectory that was followed already."""
    found = correctness.compare_paths(session, expected, actual)
    return next((described(each) for each in found if not each.equal), "")
