"""Runs ``cgate`` in forks of a process that has imported what it imports: most of a short command's time.

Each line of standard input is a command, as JSON; each line of standard output the exit code of one.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import signal
import sys
from typing import Any

from cudagraph_gate.cli import main

IMPORTED = (
    "cudagraph_gate.diagnosis.hta",
    "cudagraph_gate.diagnosis.segment_dot",
    "cudagraph_gate.pipeline",
    "cudagraph_gate.report",
    "cudagraph_gate.report.terminal",
    "cudagraph_gate.timeline.importing",
    "cudagraph_gate.timeline.kineto",
    "cudagraph_gate.timeline.nsys",
    "cudagraph_gate.timeline.perfetto",
    "pyarrow.parquet",
    "rich.progress",
    "typer._adapters",
    "typer._coercion",
)
"""What the commands import when they need it; other versions of typer lack some."""
LIMIT_S = 120


def become(command: dict[str, Any]) -> None:
    """Make this process what ``python -m cudagraph_gate`` would be in the command's folder."""
    signal.alarm(LIMIT_S)
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["environment"])
    files = [os.open(os.devnull, os.O_RDONLY), *(os.open(path, os.O_WRONLY) for path in command["files"])]
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.argv = ["cgate", *command["arguments"]]
    sys.path[0] = command["folder"]


def serve() -> None:
    """Run commands until there are no more."""
    for name in filter(importlib.util.find_spec, IMPORTED):
        importlib.import_module(name)
    gc.freeze()
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            become(json.loads(line))
            main()
            return
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
