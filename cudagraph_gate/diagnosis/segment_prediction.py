"""What replaying a segment as one graph would take, predicted from the timeline alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from cudagraph_gate.diagnosis.prediction import (
    GRAPH_LAUNCH_NS,
    NODE_GAP_HIGH_NS,
    NODE_GAP_LOW_NS,
    NODE_GAP_NS,
)
from cudagraph_gate.diagnosis.segment_calls import EVENT_RECORD, LaneCalls
from cudagraph_gate.diagnosis.segment_tokens import Lane
from cudagraph_gate.diagnosis.submission import ints
from cudagraph_gate.model import Measured, ReplayPrediction
from cudagraph_gate.timeline.intervals import Int64, int64, union


@dataclass(frozen=True)
class Repeat:
    """One repeat: its slice [first, beyond) of the lane's tokens, and its operations in the same order."""

    first: int
    beyond: int
    operations: pd.DataFrame
    token: Int64
    """The token of each operation, as a place in the lane."""
    calls: pd.DataFrame
    """Special calls between its first and last submission, in time order."""
    call_place: Int64

    @property
    def streams(self) -> Int64:
        """A number for each operation's stream."""
        named = ints(self.operations, "context") * (1 << 32) + ints(self.operations, "stream")
        return int64(np.unique(named, return_inverse=True)[1])


@dataclass(frozen=True)
class Path:
    """The critical path of a repeat, with its bounds."""

    length_ns: int
    low_ns: int
    high_ns: int
    said: str


def repeat_of(operations: pd.DataFrame, lane: Lane, calls: LaneCalls, first: int, beyond: int) -> Repeat:
    """The repeat that is the slice [first, beyond) of the lane."""
    rows = lane.rows[lane.first[first] : lane.first[beyond]]
    inside = (calls.special_place > first) & (calls.special_place < beyond)
    return Repeat(
        first=first,
        beyond=beyond,
        operations=operations.iloc[rows],
        token=np.repeat(np.arange(first, beyond), np.diff(lane.first[first : beyond + 1])),
        calls=calls.special[inside],
        call_place=calls.special_place[inside],
    )


def predict_replay(repeat: Repeat, upper_bound_ns: Measured, *, is_unit: bool) -> ReplayPrediction:
    """The prediction for one repeat; ``is_unit``: any number of repeats in a row can be captured."""
    path = critical_path(repeat)
    nodes = len(repeat.operations)
    said = ["GPU operations take as long in the graph as in the recording", path.said]
    said.append(f"a gap of {NODE_GAP_NS} ns follows each node ({NODE_GAP_LOW_NS} to {NODE_GAP_HIGH_NS} ns)")
    if is_unit:
        said.append("any number of units in a row can be captured: then the launch is shared among them")
    launch_low_ns = 0 if is_unit else GRAPH_LAUNCH_NS
    return ReplayPrediction(
        nodes=nodes,
        critical_path_ns=path.length_ns,
        replay_ns=path.length_ns + nodes * NODE_GAP_NS + GRAPH_LAUNCH_NS,
        replay_low_ns=path.low_ns + nodes * NODE_GAP_LOW_NS + launch_low_ns,
        replay_high_ns=path.high_ns + nodes * NODE_GAP_HIGH_NS + GRAPH_LAUNCH_NS,
        upper_bound_ns=upper_bound_ns,
        assumptions=tuple(said),
    )


def critical_path(repeat: Repeat) -> Path:
    """Operations of one stream run one after another, a stream that waits for an event after what the event
    follows. Where events are not known, the longest stream and the sum bound what was recorded."""
    starts, ends = ints(repeat.operations, "start_ns"), ints(repeat.operations, "end_ns")
    recorded_ns = union(starts, ends).length_ns
    streams = repeat.streams
    if not len(streams) or not streams.any():
        return Path(recorded_ns, recorded_ns, recorded_ns, "its operations follow one another on one stream")
    by_stream = np.zeros(int(np.max(streams)) + 1, dtype=np.int64)
    np.add.at(by_stream, streams, ends - starts)
    longest_ns = int(np.max(by_stream))
    if _knows_events(repeat):
        length_ns = max(_along_events(repeat, streams, ends - starts), longest_ns)
        return Path(
            length_ns, length_ns, length_ns, "streams depend on one another by the recorded events alone"
        )
    return Path(
        recorded_ns,
        longest_ns,
        int(by_stream.sum()),
        f"how {len(by_stream)} streams depend on one another is not recorded: they overlap as recorded",
    )


def _knows_events(repeat: Repeat) -> bool:
    waits = repeat.calls[~_is_record(repeat.calls)]
    waits = waits[waits["name"].astype(str).str.contains("StreamWaitEvent").to_numpy(dtype=np.bool_)]
    return len(waits) > 0 and bool((ints(waits, "event") != 0).all())


def _is_record(calls: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.array([bool(EVENT_RECORD.search(str(name))) for name in calls["name"]], dtype=np.bool_)


def _along_events(repeat: Repeat, streams: Int64, durations: Int64) -> int:
    """The longest chain of operations, ns."""
    numbers = dict(zip(ints(repeat.operations, "stream").tolist(), streams.tolist(), strict=True))
    finish = [0] * (int(np.max(streams)) + 1)
    at_event: dict[int, int] = {}
    steps = list(
        zip(
            repeat.call_place.tolist(),
            _is_record(repeat.calls).tolist(),
            ints(repeat.calls, "stream").tolist(),
            ints(repeat.calls, "event").tolist(),
            strict=True,
        )
    )[::-1]
    for token, stream, duration in zip(
        repeat.token.tolist(), streams.tolist(), durations.tolist(), strict=True
    ):
        while steps and steps[-1][0] <= token:
            _, is_record, name, event = steps.pop()
            number = numbers.get(name)
            if number is None or not event:
                continue
            if is_record:
                at_event[event] = finish[number]
            else:
                finish[number] = max(finish[number], at_event.get(event, 0))
        finish[stream] += duration
    return max(finish)
