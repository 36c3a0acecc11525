"""Script mode: any Python script with its arguments under the recorder, however it ends.

The script runs as ``python script.py arguments`` would: as ``__main__``, in the main thread, with its folder
first on the path; its other threads and exit functions are waited for. The recording ends once: when the
script ends, after the time or the iterations that were asked for, at SIGTERM, or with ``os._exit``.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import runpy
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn, Protocol

import msgspec

from cudagraph_gate import fingerprint
from cudagraph_gate.device import Device, open_device
from cudagraph_gate.errors import DeviceError, WorkloadError
from cudagraph_gate.evidence import TIMELINE_FILE, Run
from cudagraph_gate.pilot.children import Children, merged
from cudagraph_gate.pilot.jobs import ScriptJob
from cudagraph_gate.pilot.marking import with_requests
from cudagraph_gate.pilot.trial_log import ProgressSink
from cudagraph_gate.timeline.recorder import Recorder, open_recorder
from cudagraph_gate.timeline.table import Timeline, save
from cudagraph_gate.workload import user_error

POLL_S: Final = 1.0
"""How often iterations are counted: CUPTI hands over what is complete, which takes it well below 1 ms."""
PROGRESS_S: Final = 5.0
"""How often records are collected only to show progress, and to tell a long script from a hung one."""
PAUSE_S: Final = 2.0
"""How long the main thread may take to reach a point where it can be held; a long C call takes longer."""
UNWIND_S: Final = 10.0
"""How long a script that is ended may take to clean up."""
CHILDREN_FOLDER: Final = "children"
MEGABYTE: Final = 1_000_000


class ScriptSink(ProgressSink, Protocol):
    """Where a script's progress goes."""

    def done(self) -> None:
        """The job is over, although user code still runs."""


class Ended(BaseException):
    """Raised in the script's main thread to end it; no ``except Exception`` keeps it."""


def record_script(job: ScriptJob, report: ScriptSink) -> None:
    """Run a script with its arguments under the recorder.

    Raises WorkloadError when the script fails; what it did until then is recorded all the same.
    """
    run = Run(Path(job.folder))
    device = open_device("cuda")
    recorder = open_recorder(device, "full", run.folder, job.range_name if job.iterations else "")
    run_recorded(job, report, device, recorder)


def run_recorded(job: ScriptJob, report: ScriptSink, device: Device, recorder: Recorder) -> None:
    """:func:`record_script` with a given device and recorder."""
    script = Path(job.script)
    report.progress(f"running {script.name}")
    recording = ScriptRecording(job, report, device, recorder)
    recording.begin()
    try:
        failure = _run_script(script, job.arguments)
        recording.end()
    except Ended:  # it came when the script was just over
        failure = None
    failure = failure or recording.failure
    if failure is not None:
        raise failure


class ScriptRecording:
    """One recording of this process and its children; :meth:`end` writes it into the run folder."""

    def __init__(self, job: ScriptJob, report: ScriptSink, device: Device, recorder: Recorder) -> None:
        self._job = job
        self._report = report
        self._device = device
        self._recorder = recorder
        self._run = Run(Path(job.folder))
        self._children = Children(self._run.folder / CHILDREN_FOLDER if job.trace_children else None)
        self._lock = threading.RLock()
        self._ending = False
        self._over = threading.Event()
        self._attached = threading.Event()
        self._leave = os._exit
        self._note = ""
        self._shown_bytes = 0
        self._held: list[Any] = []
        """Calls that the interpreter may still make; they must outlive the watching thread's function."""
        self.failure: WorkloadError | None = None
        """Why the device was lost, if it was."""

    def begin(self) -> None:
        """Start recording; the calling thread is the script's main thread."""
        self._main = threading.get_ident()
        # Python would warn of the recorder's threads, which stops a script that makes warnings errors.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        self._children.watch()
        os._exit = self._exit
        os.register_at_fork(after_in_child=self._forked)
        with suppress(ValueError):  # not the interpreter's main thread
            signal.signal(signal.SIGTERM, self._terminated)
        with self._lock:  # the watching thread waits for it before it touches the recorder
            threading.Thread(target=self._watch, name="cgate-script", daemon=True).start()
            self._attached.wait()  # its calls are none of the script's
            self._recorder.start()

    def end(self, note: str = "") -> None:
        """Stop recording and write what there is, once; ``note`` says why it ended before the script did."""
        with self._lock:
            if self._ending:
                return
            self._ending, self._note = True, note
            try:
                self._device.synchronize()
            except DeviceError as error:
                self.failure = WorkloadError(
                    f"the script failed on the device: {error}", where=Path(self._job.script).name
                )
            timeline = self._recorder.stop()
            self._report.progress("writing the timeline")
            self._write(self._complete(timeline, note))
            self._over.set()

    def _complete(self, timeline: Timeline, note: str) -> Timeline:
        self._children.end()
        others, unrecorded = self._children.timelines()
        timeline = merged(timeline, others)
        if self._job.range_name:
            timeline = with_requests(timeline, self._job.range_name, self._job.iterations)
        problems = (*timeline.meta.problems, *unrecorded, *([note] if note else []))
        return replace(timeline, meta=msgspec.structs.replace(timeline.meta, problems=problems))

    def _write(self, timeline: Timeline) -> None:
        with self._run.replacing(TIMELINE_FILE) as path:
            save(timeline, path)
        simulated = self._device.simulated
        self._run.write(fingerprint.collect(simulated=simulated, device_name=self._device.name))

    # --- ways to end --------------------------------------------------------------------------------
    def _watch(self) -> None:
        """In a thread of its own: collect records now and then, and end the script when it is time."""
        try:
            if not self._device.simulated:
                type(self._device)()  # makes the device's context this thread's, so that it can synchronise
        finally:
            self._attached.set()
        job, started = self._job, time.monotonic()
        collected, period_s = started, POLL_S if job.iterations else PROGRESS_S
        while not self._over.wait(self._next_look_s(started)):
            now = time.monotonic()
            if job.duration_s is not None and now - started >= job.duration_s:
                self._end_script(f"the script was ended after {job.duration_s:g} s, as asked")
                return
            if now - collected < period_s:
                continue
            collected = now
            with self._lock:
                if self._ending:
                    return
                self._recorder.flush()
            self._show_progress()
            if job.iterations and self._recorder.ended_ranges >= job.iterations:
                self._end_script(f"the script was ended after {job.iterations} {job.range_name}, as asked")
                return

    def _next_look_s(self, started: float) -> float:
        if self._job.duration_s is None:
            return POLL_S
        return max(0.0, min(POLL_S, started + self._job.duration_s - time.monotonic()))

    def _show_progress(self) -> None:
        size = self._recorder.recorded_bytes
        if size != self._shown_bytes:  # a script that records nothing new may hang
            self._shown_bytes = size
            text = f"running {Path(self._job.script).name}: {size / MEGABYTE:,.0f} MB of records"
            self._report.progress(text, phase="running")

    def _end_script(self, note: str) -> None:
        """End the recording with the main thread held still, then the script, then the process.

        Returns only if the script ended by itself meanwhile.
        """
        self._held.append(_MAIN_CALL(lambda _: self._end_held(note)))
        ctypes.pythonapi.Py_AddPendingCall(self._held[-1], None)
        if not self._over.wait(PAUSE_S):
            self.end(note)
        if self._note != note:
            return
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._main), ctypes.py_object(Ended))
        time.sleep(UNWIND_S)  # the process ends meanwhile, if the script lets it
        self._report.done()
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError, OSError):
                stream.flush()
        self._leave(0)

    def _end_held(self, note: str) -> int:
        self.end(note)
        return 0

    def _exit(self, status: int) -> NoReturn:
        """The script's ``os._exit``; that of the worker itself is left alone."""
        caller = str(sys._getframe(1).f_globals.get("__name__"))
        if not caller.startswith("cudagraph_gate."):
            self.end(f"the script ended with os._exit({status})")
            if status == 0:
                self._report.done()
        self._leave(status)

    def _forked(self) -> None:
        """In a process that was forked off the script: it has nothing to save."""
        os._exit = self._leave
        if signal.getsignal(signal.SIGTERM) == self._terminated:
            with suppress(ValueError):
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if not self._ending:
            self.end("the script was ended by a signal")
            raise Ended


_MAIN_CALL: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def _run_script(script: Path, arguments: Sequence[str]) -> WorkloadError | None:
    """Run it as ``python script.py arguments``; returns its failure, if it failed."""
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        failure = _ran(script)
        _wind_up()
    except Ended:
        return None
    except KeyboardInterrupt:
        return WorkloadError("the script was interrupted", where=script.name)
    return failure


def _ran(script: Path) -> WorkloadError | None:
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code in (None, 0):
            return None
        return WorkloadError(f"the script ended with exit code {end.code}", where=script.name)
    except (Ended, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001  (any failure of the user's script is the answer)
        return user_error(error, script.resolve().parent, "the script")
    return None


def _wind_up() -> None:
    """What Python does when a script ends: end thread pools, wait for threads, call exit functions."""
    for end_pool in reversed(getattr(threading, "_threading_atexits", ())):
        end_pool()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    exit_functions: Any = atexit
    exit_functions._run_exitfuncs()
