"""A child process of a recorded script records itself, and leaves its timeline for the parent to merge."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from cudagraph_gate.errors import CgateError
from cudagraph_gate.timeline.recorder import Recorder
from cudagraph_gate.timeline.table import save

STARTED: Final = ".started"
"""Suffix of the file that says that a child records, with its :func:`start_time`; gone when that is over."""
TIMELINE: Final = ".parquet"
REFUSED: Final = ".refused"
"""Suffix of the file with the reason why a child can't be recorded."""


class ChildRecording:
    """The recording of this process; it ends once, however the process ends."""

    def __init__(self, folder: Path, recorder: Recorder, detach: Callable[[], None] = lambda: None) -> None:
        self._detach = detach
        self._folder = folder
        self._recorder = recorder
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._ended = False
        self._leave = os._exit

    def begin(self) -> None:
        """Start recording, and be told of every way out of the process that Python code can take."""
        self._recorder.start()
        self._path(STARTED).write_text(start_time(self._process))
        atexit.register(self.end)
        os._exit = self._exit  # multiprocessing ends its forked children this way
        if threading.current_thread() is threading.main_thread() and _dies_of(signal.SIGTERM):
            signal.signal(signal.SIGTERM, self._terminated)

    def end(self) -> None:
        """Write the timeline; nothing in a process that was forked off this one."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._ended:
                return
            self._ended = True
            _synchronize()
            partial = self._path(".partial")
            save(self._recorder.stop(), partial)
            partial.replace(self._path(TIMELINE))
            self._path(STARTED).unlink()
            self._detach()

    def _path(self, suffix: str) -> Path:
        return self._folder / f"{self._process}{suffix}"

    def _exit(self, status: int) -> NoReturn:
        with suppress(Exception):
            self.end()
        self._leave(status)

    def _terminated(self, number: int, frame: FrameType | None) -> NoReturn:
        del number, frame
        sys.exit(128 + signal.SIGTERM)


def record_this_process(folder: str) -> None:
    """Record this process from now on, into ``folder``. Never raises: the program comes first."""
    try:
        from cudagraph_gate.timeline.cupti import CuptiRecorder

        recorder = CuptiRecorder("full", Path(folder))
        ChildRecording(Path(folder), recorder, recorder.detach).begin()
    except Exception as error:  # noqa: BLE001  (whatever keeps it from being recorded is said by the parent)
        what = error.what if isinstance(error, CgateError) else f"{type(error).__name__}: {error}"
        with suppress(OSError):
            (Path(folder) / f"{os.getpid()}{REFUSED}").write_text(what)


def start_time(process: int) -> str:
    """When a process began, in the kernel's unit; empty if there is none. Its number alone is used again."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _dies_of(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_DFL


def _synchronize() -> None:
    """Let the device finish what this thread's context has queued, if it has one."""
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1").cuCtxSynchronize()
