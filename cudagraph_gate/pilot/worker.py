"""The parent's side of a worker process: start it, watch it, name its end.

Everything that touches the device runs in such a process. However it ends, the parent gets a
:class:`~cudagraph_gate.records.WorkerEnd` with the reason, and goes on.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from msgspec import structs

from cudagraph_gate.errors import (
    CgateError,
    EvidenceError,
    ExitCode,
    NoDeviceError,
    UsageError,
    WorkloadError,
)
from cudagraph_gate.pilot.jobs import Answer, Done, Failure, Job, Progress, decode, encode_job
from cudagraph_gate.pilot.worker_process import KILL_LIMIT_S, PACKAGE_ROOT, WorkerProcess
from cudagraph_gate.records import WorkerEnd

PHASE_LIMIT_S: Final = 300.0
"""Longest time without a sign of progress: loading a large model takes minutes, a hang takes for ever."""
READ_BYTES: Final = 65_536
POLL_S: Final = 0.2
"""How late the end of a worker is noticed while a child of it still holds its pipe."""
INTERRUPT_GRACE_S: Final = 60.0
"""Time for an interrupted worker to write down what it recorded, which can be gigabytes."""
DUMP_GRACE_S: Final = 3.0
"""Time for a hung worker to write down where it hangs before it is killed."""

_ERRORS: Final[dict[int, type[CgateError]]] = {
    ExitCode.USAGE: UsageError,
    ExitCode.NO_DEVICE: NoDeviceError,
    ExitCode.WORKLOAD: WorkloadError,
    ExitCode.EVIDENCE: EvidenceError,
}


@dataclass(frozen=True)
class WorkerResult:
    """How a job ended: ``error`` is what the worker reported, ``answer`` what it sent back."""

    end: WorkerEnd
    answer: dict[str, Any]
    error: CgateError | None
    bug: str = ""
    """Traceback of a bug of ours in the worker."""
    interrupted: bool = False
    """The user ended it early, and it had time to save what it recorded."""


def run_worker(
    job: Job,
    *,
    stage: str,
    workload: Path | None = None,
    limit_s: float = PHASE_LIMIT_S,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    saves_when_interrupted: bool = False,
    process: WorkerProcess | None = None,
) -> WorkerResult:
    """Run ``job`` in a spawned process. ``workload`` tells which frames of a crash are the user's.

    ``process`` is one that has the job already; it is ended and closed like any other.

    An interrupt (Ctrl-C) ends the process at once, or with ``saves_when_interrupted`` by a SIGTERM that
    leaves it time to save; a second interrupt then ends it at once.
    """
    started = time.monotonic_ns()
    watch = _Watch(limit_s, on_progress)
    process = process or WorkerProcess.spawn(encode_job(job))
    interrupted = False
    try:
        watch.follow(process.popen, process.messages)
    except KeyboardInterrupt:
        if not saves_when_interrupted:
            raise
        interrupted = True
        process.popen.terminate()
        watch.follow(process.popen, process.messages, limit_s=INTERRUPT_GRACE_S)
    finally:
        process.kill()
        place = crash_place(process.dump(), workload)
        process.close()
    end = _end(stage, process.popen.returncode, watch, place)
    end = structs.replace(end, elapsed=time.monotonic_ns() - started)
    return WorkerResult(end, watch.answer, watch.error(), watch.bug, interrupted)


class _Watch:
    """Reads a worker's messages until it ends or shows no progress for too long."""

    def __init__(self, limit_s: float, on_progress: Callable[[Progress], None]) -> None:
        self._limit_s = limit_s
        self._usual_limit_s = limit_s
        self._on_progress = on_progress
        self._failure: Failure | None = None
        self._rest = b""
        self.answer: dict[str, Any] = {}
        self.phase = ""
        self.timed_out = False
        self.done = False

    @property
    def bug(self) -> str:
        return self._failure.traceback if self._failure else ""

    def error(self) -> CgateError | None:
        failure = self._failure
        if failure is None:
            return None
        kind = _ERRORS.get(failure.exit_code, CgateError)
        return kind(failure.what, where=failure.where, hint=failure.hint)

    def reason(self) -> str:
        return str(self.error() or "")

    def follow(
        self, process: subprocess.Popen[bytes], messages: IO[bytes], limit_s: float | None = None
    ) -> None:
        """Take messages until the worker ends, which a pipe that its children keep open does not tell."""
        self._usual_limit_s = self._usual_limit_s if limit_s is None else limit_s
        self._limit_s = self._usual_limit_s
        deadline = time.monotonic() + self._limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(messages, selectors.EVENT_READ)
            while True:
                if selector.select(POLL_S):
                    data = os.read(messages.fileno(), READ_BYTES)
                    if not data:
                        return
                    self._take(data)
                    deadline = time.monotonic() + self._limit_s
                elif process.poll() is not None:
                    return
                elif time.monotonic() > deadline:
                    self.timed_out = True
                    _stop_hung(process)
                    return

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = decode(line)
            if isinstance(message, Progress):
                self.phase = message.phase or self.phase
                self._limit_s = min(self._usual_limit_s, message.limit_s or self._usual_limit_s)
                self._on_progress(message)
            elif isinstance(message, Answer):
                self.answer |= message.values
            elif isinstance(message, Done):
                self.done = True
            else:
                self._failure = message


def _stop_hung(process: subprocess.Popen[bytes]) -> None:
    """Abort, which makes the worker's fault handler write its stacks down; then kill."""
    process.send_signal(signal.SIGABRT)
    try:
        process.wait(DUMP_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _end(stage: str, code: int | None, watch: _Watch, place: str) -> WorkerEnd:
    name = signal.Signals(-code).name if code is not None and code < 0 else ""
    at = f", last in {place}" if place else ""
    if code is None:
        outcome, reason = "timed_out", f"killed, but not gone after {KILL_LIMIT_S:g} s{at}"
    elif watch.timed_out:
        outcome, reason = "timed_out", f"no progress for {watch._limit_s:g} s{at}"
    elif code == 0 and watch.done:
        outcome, reason = "finished", ""
    elif code >= 0:
        outcome, reason = "failed", watch.reason() or f"exit code {code}{at}"
    elif name in ("SIGKILL", "SIGTERM", "SIGINT"):
        outcome, reason = "killed", f"{name}: killed from outside, or by the kernel for want of host memory"
    else:
        outcome, reason = "crashed", f"{name}{at}"
    return WorkerEnd(
        stage=stage,
        outcome=outcome,  # type: ignore[arg-type]
        exit_code=code if code is not None and code >= 0 else None,
        signal=name,
        reason=reason,
        phase=watch.phase if outcome != "finished" else "",
    )


_FRAME: Final = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
_DRIVER_CALLS: Final = str(Path(PACKAGE_ROOT) / "cudagraph_gate" / "device" / "cuda_status.py")
"""Every driver call of ours passes through this file: its caller tells more."""
_CURRENT: Final = re.compile(r"^Current thread .*\n(?P<frames>(?:  .*\n?)*)", re.MULTILINE)


def crash_place(dump: str, workload: Path | None) -> str:
    """``file.py:LINE (function)`` of the innermost user frame in a fault handler's dump, or empty.

    The thread that crashed goes before all others; without a frame in the workload's folder, it is the
    innermost frame of all.
    """
    crashed = _CURRENT.search(dump)
    frames = [*_FRAME.finditer(crashed["frames"] if crashed else ""), *_FRAME.finditer(dump)]
    if not frames:
        return ""
    folder = str(workload.resolve().parent) if workload else None
    inside = [frame for frame in frames if folder and _lies_in(frame["file"], folder)]
    chosen = next((frame for frame in inside or frames if frame["file"] != _DRIVER_CALLS), frames[0])
    return f"{Path(chosen['file']).name}:{chosen['line']} ({chosen['function']})"


def _lies_in(file: str, folder: str) -> bool:
    path = Path(file)
    return path.is_relative_to(folder) and "site-packages" not in path.parts
