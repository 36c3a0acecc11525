"""Requests of both paths under the recorder: told apart by markers, counted, and never guessed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from opened_sessions import Opened, opened, opened_sample

from cudagraph_gate.errors import NoDeviceError, WorkloadError
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.pilot.graph_path import ready_graph
from cudagraph_gate.pilot.own_path import OwnPath
from cudagraph_gate.pilot.path_idle import (
    MARKER_BYTES,
    RECORDED_REQUESTS,
    WARM_UP_REQUESTS,
    PathOperations,
    path_idle,
    record_path,
    record_paths,
)
from cudagraph_gate.records import PathIdle
from cudagraph_gate.timeline.recorder import open_recorder
from cudagraph_gate.timeline.table import OPERATION_COLUMNS, Timeline, TimelineMeta, frame, frame_of

OPERATIONS = 5
"""Of one request of the base: a copy and four kernels."""


def recorded(workload: Opened, graph: Any) -> tuple[pd.DataFrame, PathIdle, PathIdle]:
    """One normal request's operations, and the record of each path."""
    session = workload.session
    one = record_paths(session, graph, session.input_sets(1), workload.log)
    assert isinstance(one, pd.DataFrame)
    normal, replayed = workload.of(PathIdle)
    return one, normal, replayed


def test_each_path_is_recorded_with_its_operations_and_launches(tmp_path: Path) -> None:
    workload = opened(tmp_path)
    one, normal, graph = recorded(workload, ready_graph(workload.session, workload.first))
    assert (normal.path, normal.requests, normal.operations) == ("normal", RECORDED_REQUESTS, 10 * OPERATIONS)
    assert normal.graph_launches == 0
    assert (graph.path, graph.requests, graph.operations) == (
        "graph",
        RECORDED_REQUESTS,
        10 * (OPERATIONS + 1),
    )
    assert graph.graph_launches == RECORDED_REQUESTS, "the copy of the input is in no graph"
    assert graph.graph_operations == graph.operations - RECORDED_REQUESTS
    assert one["kind"].tolist() == ["memcpy"] + ["kernel"] * 4
    assert one["name"].tolist() == ["DtoD"] + ["add"] * 4


def test_the_graph_path_is_idle_for_less(tmp_path: Path) -> None:
    workload = opened(tmp_path)
    _one, normal, graph = recorded(workload, ready_graph(workload.session, workload.first))
    kernels_ns = RECORDED_REQUESTS * 4 * 2_000
    for idle in (normal, graph):
        assert idle.busy_ns == pytest.approx(kernels_ns, rel=0.05)
        assert idle.busy_ns < idle.window_ns
    assert graph.window_ns - graph.busy_ns < (normal.window_ns - normal.busy_ns) / 2


def test_an_own_path_shows_its_launches_and_its_method(tmp_path: Path) -> None:
    workload = opened_sample("own_graph_chain", tmp_path, "simulated", method="own")
    path = OwnPath(workload.session)
    path.make(workload.first)
    one, normal, graph = recorded(workload, path)
    assert (normal.method, graph.method) == ("own", "own")
    assert (normal.graph_launches, graph.graph_launches) == (0, RECORDED_REQUESTS)
    assert len(one) == 65


def test_an_own_path_without_graphs_shows_none(tmp_path: Path) -> None:
    workload = opened(tmp_path, "def build_graphed(shape):\n    return step\n", method="own")
    path = OwnPath(workload.session)
    path.make(workload.first)
    _one, normal, graph = recorded(workload, path)
    assert (graph.graph_launches, graph.operations) == (0, normal.operations)


def test_without_a_graph_path_only_the_normal_one_is_recorded(tmp_path: Path) -> None:
    workload = opened(tmp_path)
    one = record_paths(workload.session, None, [workload.first], workload.log)
    assert isinstance(one, pd.DataFrame)
    assert [idle.path for idle in workload.of(PathIdle)] == ["normal"]


def test_an_error_of_the_step_is_blamed_and_the_recording_is_ended(tmp_path: Path) -> None:
    workload = opened(
        tmp_path,
        """
        calls = 0
        def step(x):
            global calls
            calls += 1
            if calls == 3:
                raise ValueError("third")
            return x
        """,
    )
    with pytest.raises(WorkloadError, match="raised ValueError: third") as caught:
        record_paths(workload.session, None, [workload.first], workload.log)
    assert caught.value.where == workload.place("raise ValueError")
    open_recorder(workload.session.device, "light").start()  # refused while another one records


# --- exact, from scripted recordings ------------------------------------------------------------------


class Scripted:
    """A recorder whose recording is given."""

    recorded_bytes = 0
    ended_ranges = 0

    def __init__(self, timeline: Timeline, *, refusal: str = "") -> None:
        self._timeline = timeline
        self._refusal = refusal

    def start(self) -> None:
        if self._refusal:
            raise NoDeviceError(self._refusal)

    def stop(self) -> Timeline:
        return self._timeline

    def flush(self) -> None:
        """Nothing to bring in."""


def row(start_ns: int, end_ns: int, **more: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": "gemm", "start_ns": start_ns, "end_ns": end_ns} | more


def marker(start_ns: int) -> dict[str, Any]:
    return row(start_ns, start_ns + 1, kind="memset", name="memset", bytes=MARKER_BYTES)


ROWS = [row(0, 50), marker(60), row(70, 80), row(90, 95), marker(100)]
SEVERAL = [row(200, 300, graph=1, correlation=4), row(250, 260, graph=1, correlation=4), row(400, 500)]


def timeline(rows: list[dict[str, Any]], **meta: Any) -> Timeline:
    operations = frame_of(OPERATION_COLUMNS, rows) if rows else frame(OPERATION_COLUMNS)
    return Timeline(meta=TimelineMeta(source="script", level="light", **meta), operations=operations)


def parted(folder: Path, given: Timeline, *, refusal: str = "") -> tuple[PathOperations | NotMeasured, int]:
    """What a recording is parted into, and how many requests were run for it."""
    workload, ran = opened(folder), 0

    def request(_inputs: Any) -> None:
        nonlocal ran
        ran += 1

    found = record_path(
        workload.session, Scripted(given, refusal=refusal), request, workload.session.input_sets(1)
    )
    return found, ran


def test_warm_up_single_request_and_series_are_parted_by_the_markers(tmp_path: Path) -> None:
    found, ran = parted(tmp_path, timeline([*ROWS, *SEVERAL]))
    assert isinstance(found, PathOperations)
    assert ran == WARM_UP_REQUESTS + 1 + RECORDED_REQUESTS
    assert found.one["start_ns"].tolist() == [70, 90]
    assert found.several["start_ns"].tolist() == [200, 250, 400]


def test_the_record_holds_window_union_and_launches(tmp_path: Path) -> None:
    log = opened(tmp_path, method="own").log
    several = frame_of(OPERATION_COLUMNS, SEVERAL)
    assert path_idle(log, "graph", PathOperations(several, several)) == PathIdle(
        shape="default",
        method="own",
        path="graph",
        requests=RECORDED_REQUESTS,
        window_ns=300,
        busy_ns=200,
        operations=3,
        graph_launches=1,
        graph_operations=2,
    )


@pytest.mark.parametrize(
    ("meta", "rows", "why"),
    [
        ({"dropped_records": 9}, [*ROWS, *SEVERAL], "the recorder lost 9 records"),
        (
            {"problems": ("2 records fit no known layout",)},
            [*ROWS, *SEVERAL],
            "2 records fit no known layout",
        ),
        ({}, [], f"0 memsets of {MARKER_BYTES} bytes are recorded instead of 2"),
        ({}, [*ROWS, marker(700)], f"3 memsets of {MARKER_BYTES} bytes are recorded instead of 2"),
    ],
    ids=["lost", "unread", "no marker", "the step's own"],
)
def test_a_recording_with_holes_is_not_measured(
    tmp_path: Path, meta: dict[str, Any], rows: list[dict[str, Any]], why: str
) -> None:
    found, _ran = parted(tmp_path, timeline(rows, **meta))
    assert isinstance(found, NotMeasured)
    assert found.reason.endswith(why)
    idle = path_idle(opened(tmp_path).log, "normal", found)
    assert (idle.busy_ns, idle.graph_launches, idle.requests) == (found, found, 0)


def test_an_open_range_is_no_hole(tmp_path: Path) -> None:
    harmless = timeline([*ROWS, *SEVERAL], problems=("1 ranges were open when the recording ended",))
    assert isinstance(parted(tmp_path, harmless)[0], PathOperations)


def test_a_recorder_that_may_not_record_is_the_reason(tmp_path: Path) -> None:
    found, ran = parted(tmp_path, timeline([]), refusal="CUPTI is not permitted")
    assert (found, ran) == (NotMeasured(reason="CUPTI is not permitted"), 0)


def test_no_recorder_is_the_reason_too(tmp_path: Path) -> None:
    nobody: Callable[[Any], None] = pytest.fail
    missing = NotMeasured(reason="no CUPTI")
    assert record_path(opened(tmp_path).session, missing, nobody, []) is missing
