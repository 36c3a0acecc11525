"""A timeline as a picture: Chrome JSON for ui.perfetto.dev, idle causes as a track of their own.

For each process and device: idle causes, queue depth, and each stream with its operations, the nodes of a
graph launch inside a slice of their own. For each process: requests, recorder overhead, and each host thread
with its ranges and calls. Arrows lead from a launch call to its operation, for a graph to its first node.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import pandas as pd

from cudagraph_gate.timeline.families import call_order, operation_order
from cudagraph_gate.timeline.perfetto_writer import Int64, Slices, TraceWriter, Track
from cudagraph_gate.timeline.table import GRAPH, REQUEST_DOMAIN, Timeline

IDLE_COLUMNS: Final[Mapping[str, str]] = {
    "process": "int32",
    "device": "int32",
    "cause": "category",
    "start_ns": "int64",
    "end_ns": "int64",
}
"""Pieces of idle time, each with its one cause."""

MOST_OPERATIONS: Final = 100_000
"""An operation with its calls, arrow and idle pieces takes 1 to 5 kB (one call each, or every runtime call);
a browser opens some hundred MB. Ten million operations would take tens of GB."""
GZIP_LEVEL: Final = 5
"""Half the time of the usual level for a few percent more bytes."""

LAUNCH: Final = ["process", "correlation"]
"""Columns that call and operations of one launch share."""

Window = tuple[int, int]


@dataclass(frozen=True)
class Written:
    """What a file holds of the window's operations; the first ones are kept."""

    operations: int
    left_out: int


def write_perfetto(
    timeline: Timeline,
    pieces: pd.DataFrame,
    path: Path,
    *,
    window: Window | None = None,
    limit: int = MOST_OPERATIONS,
) -> Written:
    """Write what shares time with ``window``, by default the timeline's; gzipped for a name in ``.gz``.

    ``pieces`` has ``IDLE_COLUMNS``. Of more than ``limit`` operations the first are kept, and nothing that
    starts after them: the file says so in ``otherData`` and beside each process name. Raises OSError.
    """
    window = window or timeline.window()
    scene, left_out = _scene(timeline, pieces, window, limit)
    label = (
        f"first {len(scene.operations)} of {len(scene.operations) + left_out} operations" if left_out else ""
    )
    with _opened(path) as file:
        writer = TraceWriter(file, _about(timeline, window, len(scene.operations), left_out))
        prefix = "SIMULATED " if timeline.meta.simulated else ""
        for process in scene.processes():
            _write_process(writer, scene.of(process), f"{prefix}process {process}", label)
        writer.close()
    return Written(len(scene.operations), left_out)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    with path.open("wb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        # Without name and time, so that equal timelines give equal files.
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=GZIP_LEVEL, mtime=0) as packed:
            yield packed


def _about(timeline: Timeline, window: Window, operations: int, left_out: int) -> dict[str, Any]:
    meta = timeline.meta
    return {
        "source": meta.source,
        "level": meta.level,
        "simulated": meta.simulated,
        "window_ns": window[1] - window[0],
        "dropped_records": meta.dropped_records,
        "problems": meta.problems,
        "operations": operations,
        "operations_left_out": left_out,
    }


@dataclass(frozen=True)
class _Scene:
    """Rows to show, with times from the start of the window; ``flow`` numbers a launch and its operation."""

    operations: pd.DataFrame
    calls: pd.DataFrame
    ranges: pd.DataFrame
    requests: pd.DataFrame
    overheads: pd.DataFrame
    pieces: pd.DataFrame

    def processes(self) -> list[int]:
        """Every process that has something to show."""
        return _numbers(*vars(self).values(), column="process")

    def of(self, process: int) -> _Scene:
        """The rows of one process."""
        return _Scene(*(_where(rows, "process", process) for rows in vars(self).values()))


def _scene(timeline: Timeline, pieces: pd.DataFrame, window: Window, limit: int) -> tuple[_Scene, int]:
    operations = _ordered(timeline.operations, operation_order)
    touching = _rows_near(operations, window)
    left_out = max(len(touching) - limit, 0)
    until = int(operations["start_ns"].iloc[touching[limit]]) if left_out else window[1]
    ranges = timeline.ranges.assign(
        end_thread=timeline.ranges["end_thread"].where(
            timeline.ranges["end_thread"] != timeline.ranges["thread"], 0
        )
    )
    requests = timeline.requests()
    frames = [
        operations.take(touching[:limit]).reset_index(drop=True),
        _near(_ordered(timeline.calls, call_order), (window[0], until)),
        _near(ranges[ranges["domain"] != REQUEST_DOMAIN], (window[0], until)),
        _near(requests, (window[0], until)),
        _near(timeline.overheads, (window[0], until)),
        _near(pieces, (window[0], until)),
    ]
    shown = [_relative(rows, window[0]) for rows in frames]
    return _Scene(*_with_flows(shown[0], shown[1]), *shown[2:]), left_out


def _ordered(rows: pd.DataFrame, order_of: Callable[[pd.DataFrame], Int64 | None]) -> pd.DataFrame:
    order = order_of(rows)
    return rows if order is None else rows.take(order)


def _near(rows: pd.DataFrame, window: Window) -> pd.DataFrame:
    return rows.take(_rows_near(rows, window)).reset_index(drop=True)


def _rows_near(rows: pd.DataFrame, window: Window) -> Int64:
    """Positions of the rows that share time with the window or touch it; reversed intervals do not."""
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    return np.flatnonzero((starts <= window[1]) & (ends >= window[0]) & (starts <= ends))


def _relative(rows: pd.DataFrame, origin: int) -> pd.DataFrame:
    """Times from the window's start; what begins before it is cut there, by how much is ``before_ns``."""
    starts = rows["start_ns"].to_numpy() - origin
    cut = np.maximum(starts, 0)
    stamps = {name: rows[name].to_numpy() - origin for name in ("queued_ns",) if name in rows}
    ends = rows["end_ns"].to_numpy() - origin
    return rows.assign(start_ns=cut, end_ns=ends, before_ns=cut - starts, **stamps)


def _with_flows(operations: pd.DataFrame, calls: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One number for each launch: on its first, outermost call and on its first operation.

    ``begin_ns`` of an operation is the start of its call, else its ``queued`` stamp, else its own start.
    """
    first_calls = calls[calls["correlation"] != 0].drop_duplicates(LAUNCH)[LAUNCH]
    joined = operations[LAUNCH].merge(first_calls.reset_index(names="call"), on=LAUNCH, how="left")
    called = joined["call"].notna().to_numpy()
    call = joined["call"][called].to_numpy(dtype=np.int64)
    first = ~joined[called].duplicated(LAUNCH).to_numpy()
    on_operations, on_calls = np.zeros(len(operations), dtype=np.int64), np.zeros(len(calls), dtype=np.int64)
    on_calls[call[first]] = np.arange(1, int(first.sum()) + 1)
    on_operations[np.flatnonzero(called)[first]] = on_calls[call[first]]
    begins = np.where(operations["queued_ns"] > 0, operations["queued_ns"], operations["start_ns"])
    begins[called] = calls["start_ns"].to_numpy()[call]
    return operations.assign(flow=on_operations, begin_ns=begins), calls.assign(flow=on_calls)


def _where(rows: pd.DataFrame, column: str, value: int) -> pd.DataFrame:
    kept: pd.DataFrame = rows[rows[column].to_numpy() == value]
    return kept.reset_index(drop=True)


def _numbers(*frames: pd.DataFrame, column: str) -> list[int]:
    found = np.unique(np.concatenate([rows[column].to_numpy(dtype=np.int64) for rows in frames]))
    return [int(number) for number in found]


def _write_process(writer: TraceWriter, scene: _Scene, name: str, label: str) -> None:
    for device in _numbers(scene.operations, column="device"):
        pid = writer.process(f"{name}, GPU {device}", label)
        own, pieces = (_where(rows, "device", device) for rows in (scene.operations, scene.pieces))
        Track(writer, pid, "idle causes").write(_slices(pieces, "cause", ()))
        writer.counter(pid, "queue depth", *_queue_depth(own))
        contexts = _numbers(own, column="context")
        for context in contexts:
            in_context = _where(own, "context", context)
            for stream in _numbers(in_context, column="stream"):
                where = f"context {context}, stream {stream}" if len(contexts) > 1 else f"stream {stream}"
                rows = _with_launches(_where(in_context, "stream", stream))
                Track(writer, pid, where, "f").write(_slices(rows, "name", OPERATION_DETAILS))
    pid = writer.process(f"{name}, host", label)
    Track(writer, pid, "requests").write(_slices(scene.requests, "name", ()))
    Track(writer, pid, "recorder overhead").write(_slices(scene.overheads, "name", ()))
    for thread in _numbers(scene.calls, scene.ranges, column="thread"):
        own_ranges, own_calls = (_where(rows, "thread", thread) for rows in (scene.ranges, scene.calls))
        track = Track(writer, pid, f"thread {thread}" if thread else "unknown thread", "s")
        track.write(_slices(_stacked(own_ranges, own_calls), "name", CALL_DETAILS))


OPERATION_DETAILS: Final = ("kind", "correlation", "graph", "node", "bytes", "grid", "block")
CALL_DETAILS: Final = ("domain", "correlation", "blocking", "status", "site", "stream", "event", "end_thread")
"""Columns shown with a slice, where they are not zero or empty."""


def _slices(rows: pd.DataFrame, name: str, details: Sequence[str]) -> Slices:
    """Rows of a frame as slices; columns that a row lacks, or that are zero or empty, are not shown."""
    shown = {column: rows[column].tolist() for column in (*details, "before_ns") if column in rows}
    names = rows[name].astype(str).tolist()
    flows = rows["flow"].to_numpy(dtype=np.int64) if "flow" in rows else np.zeros(len(rows), dtype=np.int64)
    return Slices(
        name=names.__getitem__,
        starts=rows["start_ns"].to_numpy(dtype=np.int64),
        ends=rows["end_ns"].to_numpy(dtype=np.int64),
        args=lambda row: {column: values[row] for column, values in shown.items() if values[row]},
        flows=flows,
    )


def _texts(rows: pd.DataFrame) -> pd.DataFrame:
    """Categories as plain text: frames with others can then be joined."""
    return rows.astype({name: "str" for name in rows if isinstance(rows[name].dtype, pd.CategoricalDtype)})


def _with_launches(rows: pd.DataFrame) -> pd.DataFrame:
    """The operations of a stream, and before them a slice around the nodes of each graph launch."""
    rows = _texts(rows)
    for name in ("grid", "block"):
        sides = [rows[f"{name}_{axis}"].astype(str) for axis in "xyz"]
        rows[name] = np.where(rows[f"{name}_x"] != 0, sides[0] + "×" + sides[1] + "×" + sides[2], "")
    nodes = rows[(rows["graph"] != 0) & (rows["correlation"] != 0) & (rows["kind"] != GRAPH)]
    launches = nodes.groupby("correlation", sort=False).agg(
        start_ns=("start_ns", "min"),
        end_ns=("end_ns", "max"),
        graph=("graph", "first"),
        nodes=("node", "size"),
    )
    launches = launches.reset_index()
    unit = np.where(launches["nodes"] == 1, " node)", " nodes)")
    launches["name"] = "graph launch " + launches["correlation"].astype(str)
    launches["name"] += " (" + launches["nodes"].astype(str) + unit
    return _stacked(launches.drop(columns="nodes"), rows)


def _stacked(*frames: pd.DataFrame) -> pd.DataFrame:
    """Rows of several frames below each other; 0, which is not shown, where a frame lacks a column."""
    columns = list(dict.fromkeys(name for rows in frames for name in rows))
    filled = [_texts(rows).reindex(columns=columns, fill_value=0) for rows in frames if len(rows)]
    return pd.concat(filled, ignore_index=True) if filled else frames[0]


def _queue_depth(rows: pd.DataFrame) -> tuple[Int64, Int64]:
    """Moments and the number of launches that were submitted and had not ended; a graph launch is one."""
    launch = np.where(rows["correlation"] != 0, rows["correlation"], -1 - np.arange(len(rows)))
    ends = rows.groupby(launch)["end_ns"].max().to_numpy(dtype=np.int64)
    begins = np.maximum(rows.groupby(launch)["begin_ns"].min().to_numpy(dtype=np.int64), 0)
    moments = np.concatenate([begins, ends])
    order = np.argsort(moments, kind="stable")
    depth = np.cumsum(np.repeat(np.array([1, -1]), len(begins))[order])
    moments = moments[order]
    last = np.append(moments[1:] != moments[:-1], True)[: len(moments)]
    return moments[last], depth[last]
