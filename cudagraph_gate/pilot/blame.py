"""From an exception to a finding: reason code, call to blame, the user's file and line, advice."""

from __future__ import annotations

import gc
import linecache
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cudagraph_gate.errors import CaptureError, DeviceError, DeviceMemoryError, StickyError, WorkloadError
from cudagraph_gate.model import Reason
from cudagraph_gate.records import Finding, Phase
from cudagraph_gate.workload import user_frame

_BY_CODE: Final[Mapping[str, Reason]] = {
    "CUDA_ERROR_STREAM_CAPTURE_UNJOINED": Reason.UNJOINED_STREAM,
    "CUDA_ERROR_STREAM_CAPTURE_ISOLATION": Reason.UNJOINED_STREAM,
    "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD": Reason.CAPTURE_INTERFERENCE,
}
_BY_TEXT: Final[Mapping[str, Reason]] = {
    "out of memory": Reason.MEMORY,
    "unjoined": Reason.UNJOINED_STREAM,
    "illegal memory access": Reason.CRASH,
    "misaligned address": Reason.CRASH,
    "illegal address": Reason.CRASH,
    "device-side assert": Reason.CRASH,
    "unspecified launch failure": Reason.CRASH,
}
"""Words of the runtime's error texts, which frameworks pass on without the error's name."""
_ADVICE: Final[Mapping[Reason, str]] = {
    Reason.CAPTURE_ILLEGAL: "move it out of the step, or keep its result on the device",
    Reason.UNJOINED_STREAM: "let the step's stream wait for an event of every stream that it forked",
    Reason.MEMORY: "free memory or use a smaller shape: a graph keeps its buffers for as long as it lives",
    Reason.CRASH: "run the normal path under compute-sanitizer",
    Reason.CAPTURE_INTERFERENCE: "capture thread-locally, or while no other thread uses CUDA",
}
_OWN_ERROR: Final = "it is raised while the graph is made, by the code itself: mend what it says"
INVALIDATED: Final = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
OWN_THREADS: Final = "cgate"
"""Begins the names of the trial's own threads, which leave captures alone."""
_CAPTURE_PHASES: Final = (Phase.CAPTURE, Phase.INSTANTIATE, Phase.UPLOAD)


def blame(error: Exception | SystemExit, shape: str, phase: Phase, folder: Path) -> Finding:
    """The finding for what was raised in ``phase``; ``folder`` holds the user's code."""
    code = reason_code(error, phase)
    where = user_frame(error, folder) or getattr(error, "where", None) or ""
    return Finding(
        shape=shape,
        phase=phase,
        code=code,
        message=_first_line(error),
        call=_call(error, where, folder),
        where=where,
        advice=_OWN_ERROR if code is Reason.CAPTURE_ILLEGAL and _of_its_own(error) else _ADVICE.get(code, ""),
    )


def reason_code(error: Exception | SystemExit, phase: Phase) -> Reason:
    """What kind of failure it is, by the driver's name for it, else by its text, else by the phase."""
    if isinstance(error, DeviceMemoryError) or type(error).__name__ == "OutOfMemoryError":
        return Reason.MEMORY
    if isinstance(error, StickyError):
        return Reason.CRASH
    if isinstance(error, WorkloadError):
        return Reason.WORKLOAD
    if isinstance(error, DeviceError) and error.code in _BY_CODE:
        return _BY_CODE[error.code]
    if isinstance(error, CaptureError):
        return _of_capture(error)
    text = _first_line(error).lower()  # further lines are advice, which names other errors
    known = next((reason for words, reason in _BY_TEXT.items() if words in text), None)
    if known is not None:
        return known
    return Reason.CAPTURE_ILLEGAL if phase in _CAPTURE_PHASES else Reason.WORKLOAD


def _of_its_own(error: BaseException) -> bool:
    """Whether nothing of the driver's or of a framework's was refused."""
    text = str(error).lower()
    device = isinstance(error, DeviceError) or type(error).__name__ == "AcceleratorError"
    return not device and not any(word in text for word in ("captur", "cuda", "cublas", "stream"))


def _of_capture(error: CaptureError) -> Reason:
    """A capture that was invalidated without any refused call of this thread: another one's call did it."""
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, CaptureError) and chain.code != INVALIDATED:
            return Reason.CAPTURE_ILLEGAL
        chain = chain.__cause__ or chain.__context__
    return Reason.CAPTURE_INTERFERENCE if _other_threads() else Reason.CAPTURE_ILLEGAL


def _other_threads() -> bool:
    """Whether the workload has, or had, threads of its own: the error may have ended them meanwhile."""
    made = (each for each in gc.get_objects() if issubclass(type(each), threading.Thread))
    main = threading.main_thread()
    return any(thread is not main and not thread.name.startswith(OWN_THREADS) for thread in made)


def _call(error: Exception | SystemExit, where: str, folder: Path) -> str:
    """The driver call that failed; where a framework hides it, the user's line that made it."""
    if isinstance(error, DeviceError):
        return error.call
    file, _, line = where.rpartition(":")
    return linecache.getline(str(folder / file), int(line)).strip() if file and line.isdigit() else ""


def _first_line(error: Exception | SystemExit) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
