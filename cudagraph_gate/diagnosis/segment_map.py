"""Who runs after whom in one repeat of a segment, and what of it can be captured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec
import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.segment_calls import BLOCKING_RULE, EVENT_RECORD, CallRule, rule_of
from cudagraph_gate.diagnosis.segment_prediction import Repeat
from cudagraph_gate.diagnosis.segment_tokens import Lane
from cudagraph_gate.diagnosis.submission import ints
from cudagraph_gate.model import Capturability, MapEdge, MapNode, MapRole, SegmentMap
from cudagraph_gate.timeline.intervals import Int64, int64, union
from cudagraph_gate.timeline.kernel_libraries import library_of
from cudagraph_gate.timeline.kernel_names import kernel_name
from cudagraph_gate.timeline.table import KERNEL

MOST_NODES: Final = 200
"""Nodes of a map: more no person reads and no picture holds; the rest is one last node."""
LONGEST_LABEL: Final = 80
"""Characters of a label: some kernel names have thousands."""
HOST_SOURCE: Final = "each replay copies from the same host address: the source must stay there"
HOST_TARGET: Final = "each replay copies to the same host address: the target must stay there"
CHILD_GRAPH: Final = "a graph already; in a capture its launch becomes a child graph"
ALL_RANKS: Final = "every rank must capture and replay it together"
OUTER_EVENT: Final = (
    "waits for work before the segment: capture refuses that, an explicit event wait node can"
)
UNKNOWN_EVENT: Final = "which event it waits for is not recorded"

EdgeKind = Literal["stream", "event", "host"]
WORK, INPUT, OUTPUT, GRAPH = range(4)
ROLES: Final = (MapRole.WORK, MapRole.INPUT, MapRole.OUTPUT, MapRole.GRAPH)


@dataclass(frozen=True)
class _Group:
    """Neighbouring operations of one stream, library and role, as places in the repeat."""

    members: Int64
    role: int
    library: str
    stream: int


@dataclass(frozen=True)
class _Later:
    """The parts beyond those that a map can hold."""

    members: Int64
    parts: int


def map_of(repeat: Repeat, lane: Lane, blocking: pd.DataFrame) -> SegmentMap:
    """The map of one repeat; ``blocking`` are the blocking calls that end it."""
    builder = _Builder(repeat)
    groups, later = _groups(repeat, lane)
    steps = [(int(repeat.token[group.members[0]]), 1, place) for place, group in enumerate(groups)]
    steps += [(int(place), 0, row) for row, place in enumerate(repeat.call_place)]
    rest = []
    for _, is_group, place in sorted(steps):
        if is_group and len(builder.nodes) >= MOST_NODES - 1:
            rest.append(groups[place])
        elif is_group:
            builder.add_group(groups[place])
        elif not rest:
            builder.add_call(repeat.calls.iloc[place])
    if rest or later.parts:
        builder.add_rest(rest, later)
    for name in dict.fromkeys(blocking["name"].astype(str)):
        builder.add_blocking(name)
    return SegmentMap(nodes=tuple(builder.nodes), edges=tuple(builder.edges))


class _Builder:
    """Nodes in order of submission, and the edges that each brings."""

    def __init__(self, repeat: Repeat) -> None:
        self._repeat = repeat
        self._names = repeat.operations["name"].astype(str).to_numpy()
        self._starts = ints(repeat.operations, "start_ns")
        self._ends = ints(repeat.operations, "end_ns")
        self._last: dict[int, int] = {}
        """Last node of each stream."""
        self._recorded: dict[int, int | None] = {}
        """Node that each recorded event follows; None where its stream had none yet."""
        self._prohibited: dict[str, tuple[int, int]] = {}
        """Node and count of each prohibited function's calls: one node stands for all, at the first."""
        self.nodes: list[MapNode] = []
        self.edges: list[MapEdge] = []

    def add_group(self, group: _Group) -> None:
        reason = {INPUT: HOST_SOURCE, OUTPUT: HOST_TARGET, GRAPH: CHILD_GRAPH}.get(group.role, "")
        if not reason and group.library in ("NCCL", "RCCL"):
            reason = ALL_RANKS
        self._add_work(group.members, ROLES[group.role], group.library, group.stream, reason)

    def add_rest(self, groups: list[_Group], later: _Later) -> None:
        members = np.concatenate([*(group.members for group in groups), later.members])
        before = sorted(set(self._last.values()))
        self._add_work(members, MapRole.WORK, "", 0, "", f"{len(groups) + later.parts} further parts")
        for source in before:
            self._edge(source, len(self.nodes) - 1, "stream")

    def add_call(self, call: pd.Series) -> None:
        name, stream, event = str(call["name"]), int(call["stream"]), int(call["event"])
        rule = rule_of(name)
        if rule is None:
            if EVENT_RECORD.search(name) and event:
                self._recorded[event] = self._last.get(stream)
        elif rule.role is MapRole.PROHIBITED:
            self._add_prohibited(rule, name)
        elif rule.role is MapRole.WAIT:
            self._add_wait(rule, name, stream, event)
        else:
            self._on_stream(self._add_host(rule, name, stream), stream)

    def add_blocking(self, name: str) -> None:
        waited_for = sorted(set(self._last.values()))
        number = self._add_host(BLOCKING_RULE, name)
        for source in waited_for:
            self._edge(source, number, "host")

    def _add_prohibited(self, rule: CallRule, name: str) -> None:
        number, calls = self._prohibited.get(name, (len(self.nodes), 0))
        self._prohibited[name] = (number, calls + 1)
        if not calls:
            self._add_host(rule, name)
            if number:
                self._edge(number - 1, number, "host")
        else:
            label = f"{name} ({calls + 1} calls)"
            self.nodes[number] = msgspec.structs.replace(self.nodes[number], label=label)

    def _add_wait(self, rule: CallRule, name: str, stream: int, event: int) -> None:
        number = self._add_host(rule, name, stream)
        changes: dict[str, object] = {}
        if not event:
            changes = {"reason": UNKNOWN_EVENT}
        elif event not in self._recorded:
            changes = {"reason": OUTER_EVENT, "capturable": Capturability.EXPLICIT_ONLY}
        self.nodes[number] = msgspec.structs.replace(self.nodes[number], **changes)
        source = self._recorded.get(event)
        if source is not None:
            self._edge(source, number, "event")
        self._on_stream(number, stream)

    def _add_host(self, rule: CallRule, name: str, stream: int = 0) -> int:
        number = len(self.nodes)
        node = MapNode(
            number=number,
            role=rule.role,
            label=name,
            library="",
            stream=stream,
            operations=0,
            busy_ns=0,
            capturable=rule.capturable,
            reason=rule.reason,
        )
        self.nodes.append(node)
        return number

    def _add_work(
        self, members: Int64, role: MapRole, library: str, stream: int, reason: str, label: str = ""
    ) -> None:
        number = len(self.nodes)
        node = MapNode(
            number=number,
            role=role,
            label=label or _label(self._names[members]),
            library=library,
            stream=stream,
            operations=len(members),
            busy_ns=union(self._starts[members], self._ends[members]).length_ns,
            capturable=Capturability.CAPTURABLE,
            reason=reason,
        )
        self.nodes.append(node)
        self._on_stream(number, stream)

    def _on_stream(self, number: int, stream: int) -> None:
        """Stream order, from the last node of the stream."""
        before = self._last.get(stream)
        if before is not None:
            self._edge(before, number, "stream")
        self._last[stream] = number

    def _edge(self, source: int, target: int, kind: EdgeKind) -> None:
        self.edges.append(MapEdge(source=source, target=target, kind=kind))


def _groups(repeat: Repeat, lane: Lane) -> tuple[list[_Group], _Later]:
    """Runs of equal library and role on one stream, cut at calls that matter, in order of submission.

    Only so many as a map may hold are told apart: a repeat may have tens of thousands.
    """
    operations = repeat.operations
    names = operations["name"].cat
    libraries = [library_of(str(name)) for name in names.categories[np.unique(names.codes)]]
    library = np.searchsorted(np.unique(names.codes), names.codes)
    texts = np.array(libraries, dtype=object)[library]
    library = int64(pd.factorize(texts)[0])
    role = _roles(operations, lane.is_graph[repeat.token])
    stream = _streams(repeat, role)
    cuts = repeat.call_place[[not _is_prohibited(str(name)) for name in repeat.calls["name"]]]
    epoch = np.searchsorted(cuts, repeat.token, side="right")
    launch = np.where(role == GRAPH, repeat.token, 0)
    library = np.where(role == GRAPH, 0, library)
    key = np.stack([stream, epoch, role, library, launch])
    order = np.argsort(stream, kind="stable")
    changes = np.flatnonzero((key[:, order[1:]] != key[:, order[:-1]]).any(axis=0)) + 1
    first, beyond = np.append(0, changes), np.append(changes, len(order))
    in_order = np.argsort(order[first], kind="stable")
    found = [
        _Group(
            int64(run),
            int(role[run[0]]),
            "" if role[run[0]] == GRAPH else str(texts[run[0]]),
            int(stream[run[0]]),
        )
        for run in (order[first[place] : beyond[place]] for place in in_order[:MOST_NODES])
    ]
    is_later = np.zeros(len(first), dtype=np.bool_)
    is_later[in_order[MOST_NODES:]] = True
    members = order[np.repeat(is_later, beyond - first)]
    return found, _Later(int64(members), int(is_later.sum()))


def _is_prohibited(name: str) -> bool:
    rule = rule_of(name)
    return rule is not None and rule.role is MapRole.PROHIBITED


def _roles(operations: pd.DataFrame, is_graph: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Int64:
    names = operations["name"].astype(str).to_numpy()
    copies = operations["kind"].astype(str).to_numpy() != KERNEL
    role = np.full(len(names), WORK, dtype=np.int64)
    role[copies & np.isin(names, ("HtoD", "HtoA"))] = INPUT
    role[copies & np.isin(names, ("DtoH", "AtoH"))] = OUTPUT
    role[is_graph] = GRAPH
    return role


def _streams(repeat: Repeat, role: Int64) -> Int64:
    """The stream of each operation; a graph launch stands on that of its first operation."""
    streams = ints(repeat.operations, "stream")
    _, first, token = np.unique(repeat.token, return_index=True, return_inverse=True)
    return np.where(role == GRAPH, streams[first][token], streams)


def _label(names: np.ndarray[tuple[int], np.dtype[np.object_]]) -> str:
    """The first name, and how many others there are."""
    distinct = dict.fromkeys(map(kernel_name, names.tolist()))
    first = next(iter(distinct))
    if len(first) > LONGEST_LABEL:
        first = f"{first[: LONGEST_LABEL - 1]}…"
    others = len(distinct) - 1
    return f"{first} and {others} other{'s' * (others > 1)}" if others else first
