"""One comparison in words."""

from __future__ import annotations

from cudagraph_gate.model import NotMeasured
from cudagraph_gate.records import Comparison


def described(comparison: Comparison) -> str:
    """``request 1: output differs (error 2)``."""
    error = comparison.max_abs_error
    seen = error.reason if isinstance(error, NotMeasured) else f"error {error:.3g}"
    return f"request {comparison.request}: {comparison.detail or comparison.subject} differs ({seen})"
