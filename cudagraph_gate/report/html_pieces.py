"""Tables of an HTML report, and the size of its pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

WIDTH: Final = 720
"""Width of the pictures, in SVG units."""


def rows_of(rows: Iterable[tuple[str, str]], head: tuple[str, str] = ("what", "value")) -> str:
    """A table of two columns of text."""
    return table_of(head, [[escape(what), escape(value)] for what, value in rows])


def escaped(cells: Iterable[str]) -> list[str]:
    """Cells of text as HTML."""
    return [escape(cell) for cell in cells]


def table_of(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    header = "".join(f"<th>{name}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"
