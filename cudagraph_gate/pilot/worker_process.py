"""Worker processes: spawned with their job, or beforehand, with what the next job needs imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from cudagraph_gate.pilot.jobs import WAITS_FOR_JOB, Job, encode_job

PACKAGE_ROOT: Final = str(Path(__file__).resolve().parents[2])
WORKER_CODE: Final = (
    "import sys; root = sys.argv.pop(1); root in sys.path or sys.path.insert(0, root); "
    "from cudagraph_gate.pilot.worker_main import start; start()"
)
"""Runs this very package whatever lies in the working folder, which ``-m`` would search first."""
KILL_LIMIT_S: Final = 60.0
"""A process that the driver holds in the kernel may take so long to go."""


@dataclass
class WorkerProcess:
    """One worker with the pipes that tie it to this process."""

    popen: subprocess.Popen[bytes]
    messages: IO[bytes]
    """What it says."""
    alive: int
    """The end of a pipe whose closing tells it that this process is gone."""
    crash: IO[str]
    """Where its fault handler writes."""

    @classmethod
    def spawn(cls, argument: str, *, waits: bool = False) -> WorkerProcess:
        """Start one; ``argument`` is its job, or with ``waits`` what it does until it is given one."""
        crash = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the process)
        read_end, write_end = os.pipe()
        liveness_read, liveness_write = os.pipe()
        descriptors = (write_end, liveness_read, crash.fileno())
        command = [sys.executable, "-P", "-c", WORKER_CODE, PACKAGE_ROOT, argument]
        try:
            popen = subprocess.Popen(
                [*command, *map(str, descriptors)],
                stdin=subprocess.PIPE if waits else subprocess.DEVNULL,
                stdout=sys.__stderr__.fileno() if sys.__stderr__ else subprocess.DEVNULL,
                pass_fds=descriptors,
                start_new_session=True,
            )
        finally:
            os.close(write_end)
            os.close(liveness_read)
        return cls(popen, os.fdopen(read_end, "rb", buffering=0), liveness_write, crash)

    def give(self, job: Job) -> None:
        """Hand the job to one that waits. Raises OSError where it is gone."""
        pipe = self.popen.stdin
        if pipe is None:
            raise ValueError("this worker was spawned with its job")
        with pipe:
            pipe.write(encode_job(job).encode() + b"\n")

    def kill(self) -> None:
        """End the worker, if it still runs, and every process that the user's code started in its session."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # then there is no exit code, which its end tells
            self.popen.wait(KILL_LIMIT_S)

    def dump(self) -> str:
        """What its fault handler wrote."""
        self.crash.seek(0)
        return self.crash.read()

    def close(self) -> None:
        """Close all that ties it to this process."""
        if self.popen.stdin is not None:
            with suppress(OSError):
                self.popen.stdin.close()
        self.messages.close()
        os.close(self.alive)
        self.crash.close()


class Spares:
    """One worker that waits with ``imports`` done, taken by the next job; none is left behind.

    Importing a framework takes seconds, as long as many a job. Nothing of the user's runs in one that waits.
    """

    def __init__(self, imports: Sequence[str]) -> None:
        self._argument = WAITS_FOR_JOB + ",".join(imports)
        self._waiting: WorkerProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drop()

    def prepare(self) -> None:
        """Start one that waits, unless one does."""
        if self._waiting is None:
            self._waiting = WorkerProcess.spawn(self._argument, waits=True)

    def take(self, job: Job) -> WorkerProcess:
        """The one that waits, with this job, or a new one."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return WorkerProcess.spawn(encode_job(job))
        try:
            waiting.give(job)
        except OSError:  # it has died while it waited
            self._waiting = waiting
            self._drop()
            return WorkerProcess.spawn(encode_job(job))
        return waiting

    def _drop(self) -> None:
        if self._waiting is not None:
            self._waiting.kill()
            self._waiting.close()
            self._waiting = None
