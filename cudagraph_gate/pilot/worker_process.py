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
MOST_SPARES: Final = 4
CPUS_EACH: Final = 4
"""One spare on a small machine: what imports takes a CPU from what is measured, and memory of the host."""
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
        """Start one; ``argument`` is its job, or with ``waits`` :data:`WAITS_FOR_JOB`."""
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
        with self._ear() as pipe:
            pipe.write(encode_job(job).encode() + b"\n")

    def say(self, imports: str) -> None:
        """Tell one that waits what to import; where it is gone, that shows when it is given its job."""
        pipe = self._ear()
        with suppress(OSError):
            pipe.write(imports.encode() + b"\n")
            pipe.flush()

    def _ear(self) -> IO[bytes]:
        pipe = self.popen.stdin
        if pipe is None:
            raise ValueError("this worker was spawned with its job")
        return pipe

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
    """Workers that wait with ``imports`` done, each taken by one of the next jobs; none is left behind.

    Importing a framework takes seconds, as long as many a job, so that one spare would be late again and
    again. Nothing of the user's runs in those that wait.
    """

    def __init__(self, imports: Sequence[str], most: int | None = None) -> None:
        self._imports = imports
        self._most = most or max(1, min(MOST_SPARES, len(os.sched_getaffinity(0)) // CPUS_EACH))
        self._waiting: list[WorkerProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._waiting:
            _drop(self._waiting.pop())

    def prepare(self, wanted: int = 1) -> None:
        """Start some, until so many wait for the ``wanted`` jobs to come as this machine has room for."""
        while len(self._waiting) < min(wanted, self._most):
            waiting = WorkerProcess.spawn(WAITS_FOR_JOB, waits=True)
            self._waiting.append(waiting)
            waiting.say(",".join(self._imports))

    def take(self, job: Job) -> WorkerProcess:
        """The one that waits longest, with this job, or a new one."""
        if not self._waiting:
            return WorkerProcess.spawn(encode_job(job))
        waiting = self._waiting.pop(0)
        try:
            waiting.give(job)
        except OSError:  # it has died while it waited
            _drop(waiting)
            return WorkerProcess.spawn(encode_job(job))
        return waiting


def _drop(waiting: WorkerProcess) -> None:
    waiting.kill()
    waiting.close()
