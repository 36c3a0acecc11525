"""Standard output for results, standard error for everything else: progress, notes, errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from cudagraph_gate.pilot import jobs

ProgressHandler = Callable[[jobs.Progress], None]


def stdout() -> Console:
    """Where results go."""
    return Console(highlight=False)


def say(text: str) -> None:
    """A note beside the result, on one line however wide the terminal is."""
    sys.stderr.write(f"{text}\n")


@contextmanager
def progress() -> Iterator[ProgressHandler]:
    """A progress bar on standard error; where that is no terminal, one line for each phase."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _PhaseLines()
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(20))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show(step: jobs.Progress) -> None:
            bar.update(task, description=step.text, completed=step.done, total=step.total or None)

        yield show


class _PhaseLines:
    """Says each phase once."""

    def __init__(self) -> None:
        self._last = ("", -1)

    def __call__(self, step: jobs.Progress) -> None:
        now = (step.phase or step.text, step.done)
        if now != self._last:
            say(step.text)
        self._last = now
