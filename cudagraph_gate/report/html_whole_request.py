"""Whole business requests by both paths, in the HTML report."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.gates.whole_request import view_whole_request
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.report.console_whole_request import (
    WHOLE_REQUEST_HEAD,
    whole_request_notes,
    whole_request_rows,
)
from cudagraph_gate.report.html_pieces import escaped, table_of


def whole_request_parts(shape: ShapeTrial) -> Iterable[str]:
    """Both paths from end to end, and what a graph can touch of it; nothing where none were timed."""
    view = view_whole_request(shape)
    if view is None:
        return
    yield f"<h2>Whole request, shape {escape(shape.shape)}</h2>"
    if isinstance(view, NotMeasured):
        yield f"<p>{escape(view.reason)}</p>"
        return
    yield table_of(WHOLE_REQUEST_HEAD, map(escaped, whole_request_rows(view)))
    yield from (f"<p>{escape(note)}</p>" for note in whole_request_notes(view))
