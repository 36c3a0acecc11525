"""Host calls in and around a segment that decide what of it can be captured.

Rules are those of the CUDA programming guide on stream capture ("Prohibited and unhandled operations") and
of the API reference of each call; ROCm's calls follow the same rules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.segment_boundaries import (
    Repeats,
    blocking_calls,
    blocking_places,
    of_thread,
)
from cudagraph_gate.diagnosis.segment_tokens import Lane
from cudagraph_gate.diagnosis.submission import ints, outermost
from cudagraph_gate.model import CallSite, CallSummary, Capturability, MapRole
from cudagraph_gate.timeline.intervals import Bools, Int64, int64
from cudagraph_gate.timeline.table import Timeline

MOST_SITES: Final = 3
"""Call sites named with each function: those with the most time."""
EVENT_RECORD: Final = re.compile(r"EventRecord")


@dataclass(frozen=True)
class CallRule:
    """What capture makes of the calls whose name matches."""

    pattern: re.Pattern[str]
    role: MapRole
    capturable: Capturability
    reason: str


def _prohibited(pattern: str, reason: str) -> CallRule:
    return CallRule(re.compile(pattern), MapRole.PROHIBITED, Capturability.NOT_CAPTURABLE, reason)


RULES: Final = (
    _prohibited(
        r"^(cuda|hip)Malloc(?!Async|FromPoolAsync|Host)|^cuMemAlloc(?!Async|FromPoolAsync|Host)",
        "allocates outside any stream: capture in the default mode refuses it",
    ),
    _prohibited(
        r"^(cuda|hip)(Free|FreeHost|HostFree)(_|$)|^cuMemFree(?!Async)",
        "frees memory and may wait for the device: capture in the default mode refuses it",
    ),
    _prohibited(
        r"^(cuda|hip)(HostAlloc|MallocHost|HostMalloc|HostRegister|HostUnregister)|^cuMem(AllocHost|Host(Alloc|R|U))",
        "pins host memory and may wait for the device",
    ),
    _prohibited(
        r"^cu(Module|Library)(Load|Unload)|^cudaLibrary(Load|Unload)|^hipModule(Load|Unload)",
        "loads or unloads code and may wait for the device",
    ),
    _prohibited(
        r"^(cuda|hip|cu)(Event|Stream)Query",
        "asks how far a stream is, which fails while it is captured (PyTorch's allocator does not ask then)",
    ),
    _prohibited(r"Stream(Begin|End)Capture", "a graph is being captured here already"),
    _prohibited(
        r"^(cuda|hip)Memset(?!.*Async)|^cuMemsetD(?!.*Async)",
        "uses the legacy default stream, which can't be captured",
    ),
    CallRule(
        re.compile(r"^(cuda|hip|cu)StreamAddCallback"),
        MapRole.HOST_CALLBACK,
        Capturability.EXPLICIT_ONLY,
        "capture refuses a stream callback; a host function node does the same",
    ),
    CallRule(
        re.compile(r"^(cuda|hip|cu)LaunchHostFunc"),
        MapRole.HOST_CALLBACK,
        Capturability.CAPTURABLE,
        "each replay calls the same function with the same data pointer",
    ),
    CallRule(re.compile(r"StreamWaitEvent"), MapRole.WAIT, Capturability.CAPTURABLE, ""),
)
"""The first rule that fits counts; other calls are left to capture."""
BLOCKING_RULE: Final = CallRule(
    re.compile(r""),
    MapRole.BLOCKING,
    Capturability.NOT_CAPTURABLE,
    "the host waits for the device, which does not run while a stream is captured",
)


@dataclass(frozen=True)
class LaneCalls:
    """The calls of a lane's thread that matter here; ``place`` is the token that comes after each."""

    blocking: pd.DataFrame
    blocking_place: Int64
    special: pd.DataFrame
    """Calls with a rule and event records, in time order."""
    special_place: Int64

    def around(self, repeats: Repeats) -> pd.DataFrame:
        """Blocking calls inside a repeat or between it and the next token."""
        owner = np.searchsorted(repeats.first, self.blocking_place, side="left") - 1
        return self.blocking[(owner >= 0) & (self.blocking_place <= repeats.beyond[np.maximum(owner, 0)])]

    def prohibited_in(self, repeats: Repeats) -> pd.DataFrame:
        """Prohibited calls between the first and the last submission of a repeat."""
        owner = np.searchsorted(repeats.first, self.special_place, side="left") - 1
        inside = (owner >= 0) & (self.special_place < repeats.beyond[np.maximum(owner, 0)])
        names = {str(name) for name in self.special["name"].cat.categories}
        wanted = [name for name in names if (rule := rule_of(name)) and rule.role is MapRole.PROHIBITED]
        return self.special[inside & self.special["name"].isin(wanted).to_numpy()]


def lane_calls(lane: Lane, timeline: Timeline) -> LaneCalls:
    """The blocking and special calls of the lane's thread."""
    blocking = blocking_calls(lane, timeline)
    blocking = outermost(blocking).sort_values("start_ns", kind="stable")
    categories = [str(name) for name in timeline.calls["name"].cat.categories]
    wanted = np.array([bool(rule_of(name) or EVENT_RECORD.search(name)) for name in categories] + [False])
    chosen: Bools = wanted[timeline.calls["name"].cat.codes.to_numpy()]
    special = of_thread(timeline.calls[chosen & ~timeline.calls["blocking"].to_numpy()], lane)
    special = outermost(special).sort_values("start_ns", kind="stable")
    place = np.searchsorted(lane.moment_ns, ints(special, "start_ns"), side="left")
    return LaneCalls(blocking, blocking_places(lane, blocking), special, int64(place))


def rule_of(name: str) -> CallRule | None:
    """What capture makes of a call of this name; None where nothing speaks against it."""
    return next((rule for rule in RULES if rule.pattern.search(name)), None)


def summaries_of(calls: pd.DataFrame) -> tuple[CallSummary, ...]:
    """Calls by name, most time first, with their sites."""
    time_ns = ints(calls, "end_ns") - ints(calls, "start_ns")
    rows = pd.DataFrame(
        {"name": calls["name"].astype(str).to_numpy(), "site": calls["site"].astype(str).to_numpy()}
    ).assign(time_ns=time_ns)
    found = [
        CallSummary(name=str(name), count=len(own), total_ns=int(own["time_ns"].sum()), sites=_sites(own))
        for name, own in rows.groupby("name", sort=True)
    ]
    return tuple(sorted(found, key=lambda one: (-one.total_ns, one.name)))


def _sites(rows: pd.DataFrame) -> tuple[CallSite, ...]:
    known = rows[rows["site"] != ""]
    found = [
        CallSite(where=str(where), count=len(own), total_ns=int(own["time_ns"].sum()))
        for where, own in known.groupby("site", sort=True)
    ]
    return tuple(sorted(found, key=lambda one: (-one.total_ns, one.where))[:MOST_SITES])
