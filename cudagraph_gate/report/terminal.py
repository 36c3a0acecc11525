"""Standard output for results, standard error for everything else: progress, notes, errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from cudagraph_gate.errors import UsageError
from cudagraph_gate.pilot import jobs

ProgressHandler = Callable[[jobs.Progress], None]


@contextmanager
def result() -> Iterator[Console]:
    """Where a result is printed. Raises UsageError where standard output can't take it.

    A reader that leaves early, as ``| head`` does, has what it wanted: that is no failure.
    """
    try:
        yield _ResultConsole(highlight=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    except OSError as error:
        _drop_output()
        raise UsageError(f"can't write the result ({error.strerror})", where="standard output") from error


class _ResultConsole(Console):
    def on_broken_pipe(self) -> None:
        self.quiet = True
        _drop_output()


def _drop_output() -> None:
    """What is still buffered goes nowhere; else the interpreter fails again when it flushes at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_json(value: Any) -> None:
    """The result for programs, indented. Raises UsageError where standard output can't take it."""
    with result():
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def say(text: str) -> None:
    """A note beside the result, on one line however wide the terminal is.

    A standard error that takes none is no reason to give up what is measured.
    """
    with suppress(OSError):
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
