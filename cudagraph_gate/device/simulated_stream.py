"""Streams and events of the simulated device."""

from __future__ import annotations

from cudagraph_gate.device.port import Event
from cudagraph_gate.device.simulated_capture import Capture, Tips
from cudagraph_gate.device.simulated_engine import Engine
from cudagraph_gate.device.simulated_trace import LEGACY_STREAM
from cudagraph_gate.errors import device_error


class SimulatedEvent:
    """A point in a stream's work: a time, or a place in a capture."""

    def __init__(self, engine: Engine, done_ns: int, capture: Capture | None = None, tips: Tips = ()) -> None:
        self._engine = engine
        self.number = next(engine.event_numbers)
        self.done_ns = done_ns
        self.capture = capture
        self.tips = tips

    def synchronize(self) -> None:
        """Block until it has happened. Raises CUDA_ERROR_CAPTURED_EVENT when it was captured."""
        engine = self._engine
        with engine.call("cuEventSynchronize", engine.spec.sync_call_ns, blocking=True) as call:
            call.event = self.number
            self._require_uncaptured(call.name)
            engine.captures.forbid_unsafe(call.name, engine.thread())
            engine.thread().wait_until(self.done_ns)

    def elapsed_ns(self, since: Event) -> int:
        """Device time since another event. Raises CUDA_ERROR_NOT_READY before both have happened."""
        if not isinstance(since, SimulatedEvent):
            raise TypeError("an event of this device is needed")
        engine = self._engine
        with engine.call("cuEventElapsedTime", engine.spec.event_call_ns) as call:
            self._require_uncaptured(call.name)
            since._require_uncaptured(call.name)
            if max(self.done_ns, since.done_ns) > engine.thread().clock_ns:
                raise device_error("CUDA_ERROR_NOT_READY", call.name)
            return self.done_ns - since.done_ns

    def _require_uncaptured(self, call: str) -> None:
        if self.capture is not None:
            # The driver does not know an event of an ended capture any more.
            code = "CUDA_ERROR_INVALID_VALUE" if self.capture.ended else "CUDA_ERROR_CAPTURED_EVENT"
            self._engine.captures.violate(code, call, self.capture)


class SimulatedStream:
    """An in-order queue on the virtual clock."""

    def __init__(self, engine: Engine, *, blocking: bool, legacy: bool = False) -> None:
        self.engine = engine
        self.number = LEGACY_STREAM if legacy else next(engine.stream_numbers)
        self.legacy = legacy
        self.ready_ns = 0
        self.capture: Capture | None = None
        self._blocking = blocking

    @property
    def blocking(self) -> bool:
        """Whether it synchronises with the legacy stream."""
        return self._blocking

    @property
    def is_capturing(self) -> bool:
        """Whether it captures, or its capture was invalidated and not ended yet."""
        with self.engine.call("cuStreamIsCapturing", 0):
            return self.capture is not None

    def synchronize(self) -> None:
        """Block until its work is done."""
        engine = self.engine
        with engine.call("cuStreamSynchronize", engine.spec.sync_call_ns, blocking=True) as call:
            call.stream = self.number
            if self.capture is not None:
                self.capture.require_valid(call.name)
                engine.captures.violate("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", call.name, self.capture)
            engine.captures.forbid_unsafe(call.name, engine.thread())
            engine.captures.forbid_implicit(call.name, self)
            engine.thread().wait_until(engine.ready_ns(self))

    def record(self) -> Event:
        """An event after the work enqueued so far."""
        engine = self.engine
        with engine.call("cuEventRecord", engine.spec.event_call_ns) as call:
            engine.captures.forbid_implicit(call.name, self)
            if self.capture is not None:
                self.capture.require_valid(call.name)
                event = SimulatedEvent(engine, 0, self.capture, self.capture.tips[self])
            else:
                engine.delay(self, engine.earliest_start_ns(self))
                event = SimulatedEvent(engine, self.ready_ns)
            call.stream, call.event = self.number, event.number
            return event

    def wait(self, event: Event) -> None:
        """Later work waits for ``event``; a captured event takes this stream into its capture."""
        if not isinstance(event, SimulatedEvent):
            raise TypeError("an event of this device is needed")
        engine = self.engine
        with engine.call("cuStreamWaitEvent", engine.spec.event_call_ns) as call:
            call.stream, call.event = self.number, event.number
            engine.captures.forbid_implicit(call.name, self)
            if self.capture is not None:
                self.capture.require_valid(call.name)
            if event.capture is not None and not event.capture.ended:
                self._wait_captured(event.capture, event.tips, call.name)
            elif self.capture is not None:
                engine.captures.violate("CUDA_ERROR_STREAM_CAPTURE_ISOLATION", call.name, self.capture)
            elif event.capture is not None:
                raise device_error("CUDA_ERROR_INVALID_VALUE", call.name, detail="of an ended capture")
            else:
                engine.delay(self, event.done_ns)

    def _wait_captured(self, capture: Capture, tips: Tips, call: str) -> None:
        rules = self.engine.captures
        if self.capture is not None and self.capture is not capture:
            rules.violate("CUDA_ERROR_STREAM_CAPTURE_MERGE", call, self.capture, capture)
        if self.legacy:
            rules.violate("CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", call, capture)
        capture.join(self, tips)


def simulated_stream(stream: object) -> SimulatedStream:
    """Check that a stream is one of the simulated device. Raises TypeError."""
    if not isinstance(stream, SimulatedStream):
        raise TypeError("a stream of this device is needed")
    return stream
