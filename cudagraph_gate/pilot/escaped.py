"""Work of the step that capture did not see, because it runs on a stream that was not capturing.

Such kernels run once, while the step is captured, and in no replay. A pure function of one recorded request
of the normal path and of the graph's kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd

from cudagraph_gate.model import Reason
from cudagraph_gate.records import Finding, Method, Phase
from cudagraph_gate.timeline.table import KERNEL

LEGACY_STREAM: Final = 7
"""CUPTI's number of the legacy default stream of a process's primary context."""
NAMED: Final = 3
"""Kernels that a sentence names; symbols are long."""


@dataclass(frozen=True)
class EscapedStream:
    """A stream of the normal path none of whose kernels is in the graph."""

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


def escaped_streams(operations: pd.DataFrame, captured: Mapping[str, int]) -> tuple[EscapedStream, ...]:
    """The streams of one normal request (``operations``) whose kernels are all missing from the graph.

    ``captured`` counts the graph's kernels by name. Missing kernels of a stream that has others in the graph
    are none: there the library took another code path. The same is assumed where a graph holds kernels and
    no stream has any of them.
    """
    by_stream = _kernels_by_stream(operations)
    missing = sum(by_stream.values(), Counter[str]()) - Counter(captured)
    escaped = []
    for stream in sorted(by_stream, key=lambda number: (number != LEGACY_STREAM, number)):
        kernels = by_stream[stream]
        if kernels <= missing:
            missing -= kernels
            escaped.append(EscapedStream(stream, dict(kernels)))
    unexplained = len(escaped) == len(by_stream) and any(captured.values())
    return () if unexplained else tuple(escaped)


def _kernels_by_stream(operations: pd.DataFrame) -> dict[int, Counter[str]]:
    kernels = operations[operations["kind"].astype(str) == KERNEL]
    found: dict[int, Counter[str]] = {}
    for stream, name in zip(kernels["stream"], kernels["name"].astype(str), strict=True):
        found.setdefault(int(stream), Counter())[name] += 1
    return found


def escaped_findings(
    shape: str, operations: pd.DataFrame, captured: Mapping[str, int], method: Method = "capture"
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
        for found in escaped_streams(operations, captured)
    )
