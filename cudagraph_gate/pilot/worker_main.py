"""Entry point of a worker process; its arguments are the job and three file descriptors."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from cudagraph_gate.errors import CgateError, ExitCode
from cudagraph_gate.pilot.jobs import (
    Answer,
    Done,
    Failure,
    Job,
    Message,
    ProbeJob,
    ProfileJob,
    Progress,
    RungJob,
    ScriptJob,
    TrialJob,
    decode_job,
    encode,
)

ORPHANED = 3
"""Exit code of a worker whose parent is gone: nobody reads it."""


class Reporter:
    """Sends messages to the parent."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send

    def progress(self, text: str, phase: str = "", done: int = 0, total: int = 0) -> None:
        """Say what begins now, and how much of the job is over."""
        self._send(Progress(text=text, phase=phase, done=done, total=total))

    def answer(self, **values: Any) -> None:
        """Send results back."""
        self._send(Answer(values=values))

    def done(self) -> None:
        """The job is over, although user code still runs: the process ends right after this."""
        self._send(Done())


def run_job(job: Job, report: Reporter) -> None:
    """Do what the job says; results go to its run folder and to ``report``."""
    if isinstance(job, ProfileJob):
        from cudagraph_gate.pilot.recording import record_workload

        record_workload(job, report)
    elif isinstance(job, ScriptJob):
        from cudagraph_gate.pilot.script import record_script

        record_script(job, report)
    elif isinstance(job, TrialJob):
        from cudagraph_gate.pilot.ladder import try_shape

        try_shape(job, report)
    elif isinstance(job, RungJob):
        from cudagraph_gate.pilot.rungs import try_rung

        try_rung(job, report)
    elif isinstance(job, ProbeJob):
        from cudagraph_gate.pilot.probing import probe

        probe(job, report)


def main(arguments: list[str]) -> int:
    """Run one job; returns the process's exit code."""
    text, messages, liveness, crash = arguments[0], *map(int, arguments[1:4])
    faulthandler.enable(crash)
    threading.Thread(target=_leave_with_parent, args=(liveness,), daemon=True).start()

    def send(message: Message) -> None:
        os.write(messages, encode(message))

    try:
        run_job(decode_job(text), Reporter(send))
    except CgateError as error:
        send(Failure(exit_code=error.exit_code, what=error.what, where=error.where, hint=error.hint))
        return int(error.exit_code)
    except Exception as error:  # noqa: BLE001  (a bug of ours must reach the parent's report)
        what = f"internal error ({type(error).__name__}: {error})"
        send(Failure(exit_code=ExitCode.BUG, what=what, traceback=traceback.format_exc()))
        return int(ExitCode.BUG)
    except BaseException as error:  # noqa: BLE001  (no signal reaches a worker: only user code raises these)
        what = f"the workload raised {type(error).__name__}"
        send(Failure(exit_code=ExitCode.WORKLOAD, what=what, hint="raise an Exception instead"))
        return int(ExitCode.WORKLOAD)
    send(Done())
    return 0


def _leave_with_parent(liveness: int) -> None:
    while os.read(liveness, 1):
        pass
    os._exit(ORPHANED)


def start() -> NoReturn:
    """Run the job of the command line and leave the process."""
    code = main(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError, OSError):  # the workload may have closed it
            stream.flush()
    # Not sys.exit: finalizers of a lost CUDA context may crash after the work is done and reported.
    os._exit(code)
