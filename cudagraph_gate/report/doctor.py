"""What ``cgate doctor`` found, as text."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cudagraph_gate.pipeline import Examination
from cudagraph_gate.report.console import print_fingerprint
from cudagraph_gate.report.console_pieces import SIMULATED_LINE


def print_examination(console: Console, found: Examination) -> None:
    """Features with what was seen, advice, and the environment."""
    console.print(Text(found.device, style="bold"))
    if found.simulated:
        console.print(Text(SIMULATED_LINE, style="bold magenta"))
    table = Table(title=Text("features"), title_justify="left")
    for name in ("feature", "works", "detail"):
        table.add_column(name, overflow="fold")
    for feature in found.features:
        works = Text("yes", style="green") if feature["works"] else Text("no", style="bold red")
        table.add_row(Text(feature["name"]), works, Text(feature["detail"], overflow="fold"))
    console.print(table)
    for advice in found.advice:
        console.print(Text(advice, style="yellow"))
    print_fingerprint(console, found.fingerprint, said_simulated=found.simulated)
