"""Stream capture on the simulated device: what is recorded, and the driver's rules against the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudagraph_gate.device.port import CaptureMode
from cudagraph_gate.device.simulated_work import Work
from cudagraph_gate.errors import device_error

if TYPE_CHECKING:
    from cudagraph_gate.device.simulated_stream import SimulatedStream

Tips = tuple[int, ...]
"""Indices of the nodes that a stream's next captured operation depends on."""


class Capture:
    """One capture in progress, over its origin stream and the streams that were forked from it."""

    def __init__(self, origin: SimulatedStream, mode: CaptureMode, thread: object) -> None:
        self.origin = origin
        self.mode = mode
        self.thread = thread
        self.nodes: list[Work] = []
        self.edges: list[tuple[int, int]] = []
        self.tips: dict[SimulatedStream, Tips] = {origin: ()}
        self.invalid = False
        self.ended = False
        origin.capture = self

    def require_valid(self, call: str) -> None:
        """Raise CUDA_ERROR_STREAM_CAPTURE_INVALIDATED after a violation."""
        if self.invalid:
            raise device_error("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", call)

    def add(self, stream: SimulatedStream, work: Work, call: str) -> None:
        """Record an operation after what its stream depends on."""
        self.require_valid(call)
        index = len(self.nodes)
        self.nodes.append(work)
        self.edges.extend((tip, index) for tip in self.tips[stream])
        self.tips[stream] = (index,)

    def join(self, stream: SimulatedStream, tips: Tips) -> None:
        """Make ``stream`` depend on ``tips``; a stream from outside becomes part of the capture (fork)."""
        self.require_valid("cuStreamWaitEvent")
        stream.capture = self
        self.tips[stream] = tuple(sorted({*self.tips.get(stream, ()), *tips}))

    def unjoined(self) -> list[SimulatedStream]:
        """Forked streams with work that the origin stream does not wait for."""
        reached = self._ancestors(self.tips[self.origin])
        return [stream for stream, tips in self.tips.items() if not reached.issuperset(tips)]

    def _ancestors(self, tips: Tips) -> set[int]:
        reached = set(tips)
        # Edges are stored by ascending target, and lead to later nodes: one pass back is enough.
        for source, target in reversed(self.edges):
            if target in reached:
                reached.add(source)
        return reached

    def finish(self) -> None:
        """Whatever happened, none of its streams captures any more."""
        self.ended = True
        for stream in self.tips:
            stream.capture = None


class CaptureRules:
    """All captures in progress and the calls that they prohibit. The caller holds the device's lock."""

    def __init__(self) -> None:
        self._active: list[Capture] = []

    def begin(self, stream: SimulatedStream, mode: CaptureMode, thread: object) -> None:
        """Start a capture."""
        call = "cuStreamBeginCapture"
        if stream.legacy:
            raise device_error("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", call, detail="the legacy stream")
        if stream.capture is not None:
            raise device_error("CUDA_ERROR_ILLEGAL_STATE", call, detail="the stream captures already")
        self._active.append(Capture(stream, mode, thread))

    def end(self, stream: SimulatedStream, thread: object) -> Capture:
        """End the stream's capture, also when this raises."""
        capture = stream.capture
        if capture is None:
            detail = "the stream does not capture"
            raise device_error("CUDA_ERROR_ILLEGAL_STATE", "cuStreamEndCapture", detail=detail)
        self._active.remove(capture)
        try:
            _require_complete(capture, stream, thread)
        finally:
            capture.finish()
        return capture

    def forbid_unsafe(self, call: str, thread: object, *, device_wide: bool = False) -> None:
        """Refuse an allocation or synchronisation, whatever stream it is for, and invalidate the captures.

        A thread-local capture prohibits it to its own thread, a global one to every thread;
        ``device_wide`` calls would wait for the capturing streams themselves, so every capture does.
        """
        hit = [c for c in self._active if device_wide or c.mode == "global" or c.thread is thread]
        self._refuse("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", call, hit)

    def forbid_implicit(self, call: str, stream: SimulatedStream) -> None:
        """Refuse legacy-stream work while a blocking stream captures: it would depend on uncaptured work."""
        if stream.legacy:
            hit = [c for c in self._active if any(member.blocking for member in c.tips)]
            self._refuse("CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", call, hit)

    def violate(self, code: str, call: str, *captures: Capture | None) -> None:
        """Invalidate the given captures and raise ``code``."""
        for capture in captures:
            if capture is not None:
                capture.invalid = True
        raise device_error(code, call)

    def _refuse(self, code: str, call: str, captures: list[Capture]) -> None:
        if captures:
            self.violate(code, call, *captures)


def _require_complete(capture: Capture, stream: SimulatedStream, thread: object) -> None:
    call = "cuStreamEndCapture"
    if capture.thread is not thread:
        raise device_error("CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", call)
    if capture.origin is not stream:
        raise device_error("CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", call, detail="begun on another stream")
    capture.require_valid(call)
    forks = capture.unjoined()
    if forks:
        names = ", ".join(str(fork.number) for fork in forks)
        raise device_error("CUDA_ERROR_STREAM_CAPTURE_UNJOINED", call, detail=f"stream {names}")
