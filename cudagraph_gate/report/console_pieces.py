"""Lines and tables for a terminal: 80 columns are enough, and no colour where there is no terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cudagraph_gate.gates.wording import duration
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.timeline.kernel_names import kernel_name

SIMULATED_LINE: Final = "SIMULATED DEVICE: virtual times, a rehearsal, never a GO"
_CONTROLS: Final = dict.fromkeys((*range(32), 127, *range(128, 160)), "\N{REPLACEMENT CHARACTER}")
NAME_LENGTH: Final = 40
"""Characters of a kernel's name in a table: template arguments would fill the screen."""


def printable(text: str) -> str:
    """Without control characters: a name from somebody's file must not command the terminal."""
    return text.translate(_CONTROLS)


def simulated_line(console: Console, simulated: bool) -> None:
    """Says that times are virtual, if they are."""
    if simulated:
        line(console, SIMULATED_LINE, "bold magenta")


def line(console: Console, text: str, style: str = "") -> None:
    """One line of text."""
    # As Text: a name with square brackets is no markup, and paths or numbers get no colour of their own.
    console.print(Text(printable(text), style=style, overflow="fold"))


def table_of(title: str, columns: Iterable[str], right: tuple[int, ...] = ()) -> Table:
    """An empty table; ``right`` are the columns to align right."""
    table = Table(title=Text(title) if title else None, title_justify="left")
    for index, name in enumerate(columns):
        table.add_column(Text(name), justify="right" if index in right else "left", overflow="fold")
    return table


def print_rows(
    console: Console, title: str, rows: Iterable[tuple[str, str]], head: tuple[str, str] = ("what", "value")
) -> None:
    """A table of two columns."""
    table = table_of(title, head, right=(1,))
    for row in rows:
        add_row(table, *row)
    console.print(table)


def add_row(table: Table, *cells: str | Text) -> None:
    """A row of plain cells."""
    plain = (Text(printable(cell), overflow="fold") if isinstance(cell, str) else cell for cell in cells)
    table.add_row(*plain)


def name_cell(name: str) -> Text:
    """A name on one line, cut where the column ends: a few of them must not fill the screen."""
    return Text(printable(name), overflow="ellipsis", no_wrap=True)


def shortened(symbol: str) -> str:
    """A kernel's name without its arguments, short enough for a table."""
    name = kernel_name(symbol).rpartition("::")[2]
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…"


def or_reason(value: int | NotMeasured) -> str:
    """A duration, or why there is none."""
    return f"not measured: {value.reason}" if isinstance(value, NotMeasured) else duration(value)
