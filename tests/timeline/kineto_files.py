"""Small Kineto files by hand: process and thread 100, device 0 and stream 7 unless a test says more."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, Final

from cudagraph_gate.timeline.kineto import read_kineto
from cudagraph_gate.timeline.table import Timeline

Row = dict[str, Any]
PROCESS: Final = 100


def event(cat: str, name: str, ts: float, dur: float, **more: Any) -> Row:
    return {"ph": "X", "cat": cat, "name": name, "pid": PROCESS, "tid": PROCESS, "ts": ts, "dur": dur} | more


def on_gpu(cat: str, name: str, ts: float, dur: float, correlation: int, **args: Any) -> Row:
    args = {"device": 0, "context": 1, "stream": 7, "correlation": correlation} | args
    return event(cat, name, ts, dur, pid=0, tid=7, args=args)


def kernel(ts: float, dur: float, correlation: int = 0, name: str = "k", **args: Any) -> Row:
    return on_gpu("kernel", name, ts, dur, correlation, **args)


def call(
    ts: float,
    dur: float,
    correlation: int = 0,
    name: str = "cudaLaunchKernel",
    cat: str = "cuda_runtime",
    **more: Any,
) -> Row:
    return event(cat, name, ts, dur, args={"cbid": 211, "correlation": correlation}, **more)


def pair(ts: float, correlation: int) -> list[Row]:
    """A launch at ``ts`` that takes 2 µs, and its kernel from 5 µs to 8 µs later."""
    return [call(ts, 2, correlation), kernel(ts + 5, 3, correlation)]


def text_of(events: list[Row], **top: Any) -> bytes:
    return json.dumps({"schemaVersion": 1} | top | {"traceEvents": events}, indent=1).encode()


def write(folder: Path, content: bytes, name: str = "trace.json", *, zipped: bool = False) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content) if zipped else content)
    return path


def read(folder: Path, events: list[Row], **top: Any) -> Timeline:
    return read_kineto(write(folder, text_of(events, **top)))


def starts(timeline: Timeline) -> list[int]:
    return [int(start) for start in timeline.operations["start_ns"]]
