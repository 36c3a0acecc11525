"""The Chrome JSON trace format that ui.perfetto.dev opens, written as a stream.

Slices of one track must nest, so a track has lanes: a slice that would cross another one goes to the next
lane. Times are µs with three decimals of ns, counted from the start of the window.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

EVENTS_AT_ONCE: Final = 4096
"""Events encoded together: enough to make the call cheap, and little memory."""

Int64 = npt.NDArray[np.int64]
Event = dict[str, Any]


@dataclass(frozen=True)
class Slices:
    """What a track shows; times in ns from the start of the window."""

    name: Callable[[int], str]
    """Text of a row."""
    starts: Int64
    ends: Int64
    args: Callable[[int], Mapping[str, Any]]
    """Details of a row."""
    flows: Int64
    """Number of the flow that begins (host) or ends (device) with a row; 0 for none."""


def microseconds(times_ns: Int64) -> list[float]:
    """Times in µs that give the same ns back to readers that round and to readers that cut off.

    Trace processors multiply by 1000 and cut off: 1.001 µs would become 1000 ns, and slices that touch would
    overlap. Where it would, the next larger float is taken.
    """
    times = times_ns / 1000
    short = np.trunc(times * 1000).astype(np.int64) < times_ns
    return [float(time) for time in np.where(short, np.nextafter(times, np.inf), times)]


class TraceWriter:
    """Writes events one after the other; ``close`` completes the JSON."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, other: Mapping[str, Any]) -> None:
        self._file = file
        self._events: list[Event] = []
        self._separator = b"\n"
        self._processes = 0
        self._threads = 0
        head = msgspec.json.encode({"displayTimeUnit": "ns", "otherData": other})
        file.write(head[:-1] + b',"traceEvents":[')

    def event(self, event: Event) -> None:
        """Add one event."""
        self._events.append(event)
        if len(self._events) >= EVENTS_AT_ONCE:
            self._flush()

    def process(self, name: str, label: str) -> int:
        """A new group of tracks, shown in the order of these calls; its number."""
        self._processes += 1
        pid = self._processes
        self._metadata(pid, 0, "process_name", {"name": name})
        self._metadata(pid, 0, "process_sort_index", {"sort_index": pid})
        if label:
            self._metadata(pid, 0, "process_labels", {"labels": label})
        return pid

    def thread(self, pid: int, name: str) -> int:
        """A new lane, shown in the order of these calls; its number."""
        self._threads += 1
        self._metadata(pid, self._threads, "thread_name", {"name": name})
        self._metadata(pid, self._threads, "thread_sort_index", {"sort_index": self._threads})
        return self._threads

    def counter(self, pid: int, name: str, times_ns: Int64, values: Int64) -> None:
        """A line over time."""
        for time, value in zip(microseconds(times_ns), values.tolist(), strict=True):
            self.event({"ph": "C", "pid": pid, "name": name, "ts": time, "args": {"value": value}})

    def close(self) -> None:
        """Write what is left and the end."""
        self._flush()
        self._file.write(b"\n]}\n")

    def _metadata(self, pid: int, tid: int, name: str, args: Mapping[str, Any]) -> None:
        self.event({"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args})

    def _flush(self) -> None:
        if self._events:
            encoded = b",\n".join(msgspec.json.encode(event) for event in self._events)
            self._file.write(self._separator + encoded)
            self._separator = b",\n"
            self._events.clear()


@dataclass
class _Lane:
    tid: int
    open_ends: list[int] = field(default_factory=list)

    def takes(self, start: int, end: int) -> bool:
        """Whether the slice lies apart from or inside what is open; if so it is open from now on."""
        while self.open_ends and self.open_ends[-1] <= start:
            self.open_ends.pop()
        if self.open_ends and self.open_ends[-1] < end:
            return False
        self.open_ends.append(end)
        return True


class Track:
    """One row of the picture, in as many lanes as its slices need."""

    def __init__(self, writer: TraceWriter, pid: int, name: str, flow_phase: str = "") -> None:
        """``flow_phase``: ``s`` where the flows of the slices begin, ``f`` where they end."""
        self._writer = writer
        self._pid = pid
        self._name = name
        self._flow_phase = flow_phase
        self._lanes: list[_Lane] = []

    def write(self, slices: Slices) -> None:
        """Write slices, which may come in any order; of equal ones the first given is the outer one."""
        order = np.lexsort((-slices.ends, slices.starts))
        starts, ends, flows = slices.starts[order], slices.ends[order], slices.flows[order]
        times, durations = microseconds(starts), microseconds(ends - starts)
        whole = zip(
            order.tolist(), starts.tolist(), ends.tolist(), times, durations, flows.tolist(), strict=True
        )
        for row, start, end, time, duration, flow in whole:
            place = {"pid": self._pid, "tid": self._lane(start, end).tid, "ts": time}
            text, args = slices.name(row), slices.args(row)
            self._writer.event({"ph": "X", "name": text, **place, "dur": duration, "args": args})
            if flow:
                end_binding = {"bp": "e"} if self._flow_phase == "f" else {}
                flow_event = {"ph": self._flow_phase, "name": "launch", "cat": "launch", "id": flow}
                self._writer.event({**flow_event, **place, **end_binding})

    def _lane(self, start: int, end: int) -> _Lane:
        for lane in self._lanes:
            if lane.takes(start, end):
                return lane
        number = len(self._lanes) + 1
        name = self._name if number == 1 else f"{self._name} ({number})"
        lane = _Lane(self._writer.thread(self._pid, name), [end])
        self._lanes.append(lane)
        return lane
