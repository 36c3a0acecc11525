"""Entry point of a worker process; its arguments are the job and three file descriptors."""

from __future__ import annotations

import faulthandler
import gc
import importlib
import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from cudagraph_gate.errors import CgateError, ExitCode
from cudagraph_gate.pilot.jobs import (
    WAITS_FOR_JOB,
    Answer,
    Done,
    Failure,
    Job,
    Message,
    ProfileJob,
    Progress,
    RungJob,
    ScenarioJob,
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

    def progress(
        self, text: str, phase: str = "", done: int = 0, total: int = 0, *, limit_s: float | None = None
    ) -> None:
        """Say what begins now, how much of the job is over, and when it hangs if not by the usual limit."""
        self._send(Progress(text=text, phase=phase, done=done, total=total, limit_s=limit_s))

    def answer(self, **values: Any) -> None:
        """Send results back."""
        self._send(Answer(values=values))

    def done(self) -> None:
        """The job is over, although user code still runs: the process ends right after this."""
        self._send(Done())


def run_job(job: Job, report: Reporter) -> None:
    """Do what the job says; results go to its run folder and to ``report``."""
    run = _entry(job)
    # What was imported until now stays: garbage collections, of which the trial makes one before each timed
    # block, need not look through it. So those of the workload take as long as they take without us.
    gc.freeze()
    run(job, report)


def _entry(job: Job) -> Callable[[Any, Reporter], None]:
    """The function of this kind of job, with all that it imports."""
    if isinstance(job, ProfileJob):
        from cudagraph_gate.pilot.recording import record_workload

        return record_workload
    if isinstance(job, ScriptJob):
        from cudagraph_gate.pilot.script import record_script

        return record_script
    if isinstance(job, TrialJob):
        from cudagraph_gate.pilot.ladder import try_shape

        return try_shape
    if isinstance(job, RungJob):
        from cudagraph_gate.pilot.rungs import try_rung

        return try_rung
    if isinstance(job, ScenarioJob):
        from cudagraph_gate.pilot.scenarios.running import try_scenario

        return try_scenario
    from cudagraph_gate.pilot.probing import probe

    return probe


def main(arguments: list[str]) -> int:
    """Run one job; returns the process's exit code."""
    text, messages, liveness, crash = arguments[0], *map(int, arguments[1:4])
    faulthandler.enable(crash)
    threading.Thread(target=_leave_with_parent, name="cgate-liveness", args=(liveness,), daemon=True).start()

    if text == WAITS_FOR_JOB:
        text = _waited_for()
        if not text:
            return ORPHANED

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


def _waited_for() -> str:
    """The job that comes on standard input, behind a line of modules to import first; empty if none comes."""
    for name in filter(None, sys.stdin.readline().strip().split(",")):
        with suppress(Exception):  # the workload's own import says what is wrong
            importlib.import_module(name)
    text = sys.stdin.readline()
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    return text.strip()


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
