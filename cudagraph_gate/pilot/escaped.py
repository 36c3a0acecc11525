"""Work of the step that capture did not see, because it runs on a stream that was not capturing.

Such kernels run once, while the step is captured, and in no replay. So the step is captured once more under
the recorder: what runs then, and is missing from the graph, has escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from cudagraph_gate.errors import NoDeviceError
from cudagraph_gate.model import NotMeasured, Reason
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.records import Finding, Method, Phase
from cudagraph_gate.timeline.recorder import open_recorder
from cudagraph_gate.timeline.table import KERNEL

LEGACY_STREAM: Final = 7
"""CUPTI's number of the legacy default stream of a process's primary context."""
CAPTURED_STEP: Final = "captured step"
"""Range around each call of the step while it is captured."""
NAMED: Final = 3
"""Kernels that a sentence names; symbols are long."""


@dataclass(frozen=True)
class EscapedStream:
    """A stream on which kernels ran that the graph lacks."""

    stream: int
    """As the recorder numbers it."""
    kernels: Mapping[str, int]
    """Kernel name to count, in the order in which they first ran."""

    @property
    def legacy(self) -> bool:
        """Whether it is the legacy default stream, where launches land that name no stream."""
        return self.stream == LEGACY_STREAM

    @property
    def message(self) -> str:
        """What was found, in one sentence."""
        count = sum(self.kernels.values())
        names = ", ".join([*self.kernels][:NAMED])
        more = f" and {len(self.kernels) - NAMED} others" if len(self.kernels) > NAMED else ""
        which = f"stream {self.stream}" + (", the legacy default stream" if self.legacy else "")
        kernels = "1 kernel" if count == 1 else f"{count} kernels"
        return f"{kernels} of a request ({names}{more}) on {which}, which the capture did not see"

    @property
    def advice(self) -> str:
        """What to do about it."""
        if self.legacy:
            return (
                "name the stream: launch on the framework's current one, such as "
                "kernel[grid, block, stream] in Numba, or with torch.cuda.current_stream().cuda_stream"
            )
        return (
            "launch it on the framework's current stream, or let its stream wait for an event of that one, "
            "and that one for an event of its end"
        )


def record_capture(session: Session, inputs: Inputs) -> pd.DataFrame | NotMeasured:
    """Operations that run while the step is captured; none should, so a graph holds them all.

    A recorder stays in the process: this comes after all timing. Raises what the step or the driver raises.
    """
    device, adapter = session.device, session.adapter
    static = tuple(adapter.static_like(value) for value in inputs)

    def marked(*values: Any) -> Any:  # an adapter may run the step before it captures it: the last one counts
        with device.annotate(CAPTURED_STEP):
            return session.step(*values)

    device.synchronize()
    try:
        recorder = open_recorder(device, "light")
        recorder.start()
    except NoDeviceError as error:
        return NotMeasured(reason=str(error))
    try:
        captured = adapter.capture(marked, static)
        device.synchronize()
    finally:
        timeline = recorder.stop()
    captured.graph.destroy()
    ranges = timeline.ranges[timeline.ranges["name"].astype(str) == CAPTURED_STEP]
    if timeline.meta.dropped_records or ranges.empty:
        return NotMeasured(reason="the capture was not recorded whole")
    operations: pd.DataFrame = timeline.operations
    later: pd.DataFrame = operations[operations["start_ns"] >= ranges["start_ns"].max()]
    return later


def escaped_streams(during: pd.DataFrame, missing: Mapping[str, int]) -> tuple[EscapedStream, ...]:
    """By stream the kernels that ran during a capture (``during``) and that the graph lacks (``missing``).

    What is missing and did not run either belongs to another code path, which a library takes while it
    captures.
    """
    by_stream = _kernels_by_stream(during)
    escaped = {
        stream: {name: count for name, count in kernels.items() if missing.get(name, 0) > 0}
        for stream, kernels in by_stream.items()
    }
    order = sorted(escaped, key=lambda number: (number != LEGACY_STREAM, number))
    return tuple(EscapedStream(stream, escaped[stream]) for stream in order if escaped[stream])


def _kernels_by_stream(operations: pd.DataFrame) -> dict[int, Counter[str]]:
    kernels = operations[operations["kind"].astype(str) == KERNEL]
    found: dict[int, Counter[str]] = {}
    for stream, name in zip(kernels["stream"], kernels["name"].astype(str), strict=True):
        found.setdefault(int(stream), Counter())[name] += 1
    return found


def escaped_findings(
    shape: str, during: pd.DataFrame, missing: Mapping[str, int], method: Method = "capture"
) -> tuple[Finding, ...]:
    """One blocking finding for each stream that capture does not see."""
    return tuple(
        Finding(
            shape=shape,
            method=method,
            phase=Phase.KERNELS,
            code=Reason.ESCAPED_WORK,
            message=found.message,
            call=next(iter(found.kernels)),
            advice=found.advice,
        )
        for found in escaped_streams(during, missing)
    )
