"""What every recorder promises, on the simulated device and on a GPU (there in a process of its own)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pandas as pd
import pytest
import recorded_programs
from gpu_script import run_script
from portable_kernel import COUNT
from recorded_programs import PROGRAMS, REPLAYS, REQUESTS

from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.timeline.recorder import Level
from cudagraph_gate.timeline.table import FAMILIES, KERNEL, Timeline, load

Recorded = Callable[[str, Level], list[Timeline]]
NBYTES = 4 * COUNT

both_levels = pytest.mark.parametrize("level", ["light", "full"])


@pytest.fixture(scope="module", params=["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The timelines of one of the programs at a level; each is recorded once."""

    def on_simulated(program: str, level: Level) -> list[Timeline]:
        return PROGRAMS[program](SimulatedDevice(), level)

    def on_gpu(program: str, level: Level) -> list[Timeline]:
        folder = tmp_path_factory.mktemp(f"{program}-{level}")
        paths = run_script(Path(recorded_programs.__file__), program, level, str(folder))
        return [load(Path(path)) for path in paths]

    return lru_cache(on_gpu if request.param == "cuda" else on_simulated)


def names(rows: pd.DataFrame) -> list[str]:
    return [str(name) for name in rows["name"]]


@both_levels
def test_operations_are_recorded_in_order_with_their_sizes(recorded: Recorded, level: Level) -> None:
    (timeline,) = recorded("requests", level)
    found = timeline.operations
    assert names(found) == ["HtoD", "memset", "scale", "scale", "DtoD"] * REQUESTS
    assert list(found["kind"]) == ["memcpy", "memset", "kernel", "kernel", "memcpy"] * REQUESTS
    assert found["bytes"].tolist() == [NBYTES, NBYTES, 0, 0, NBYTES] * REQUESTS
    assert (found["end_ns"] >= found["start_ns"]).all()
    assert found["start_ns"].is_monotonic_increasing
    assert found["stream"].nunique() == 1
    assert (found["graph"] == 0).all()
    assert timeline.meta.level == level
    assert (timeline.meta.dropped_records, timeline.meta.problems) == (0, ())


@both_levels
def test_kernels_have_their_launch_shape(recorded: Recorded, level: Level) -> None:
    (timeline,) = recorded("requests", level)
    kernels = timeline.operations[timeline.operations["kind"] == KERNEL]
    shapes = kernels[["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]]
    assert shapes.drop_duplicates().values.tolist() == [[1, 1, 1, COUNT, 1, 1]]


@both_levels
def test_requests_are_marked_and_hold_their_operations(recorded: Recorded, level: Level) -> None:
    (timeline,) = recorded("requests", level)
    marked = timeline.requests()
    assert len(marked) == REQUESTS
    assert (marked["thread"] == marked["end_thread"]).all()
    starts = timeline.operations["start_ns"]
    held = [
        int(((starts >= begin) & (starts <= end)).sum())
        for begin, end in zip(marked["start_ns"], marked["end_ns"], strict=True)
    ]
    assert held == [5] * REQUESTS


@both_levels
def test_ranges_of_other_domains_keep_their_domain(recorded: Recorded, level: Level) -> None:
    (timeline,) = recorded("requests", level)
    pairs = sorted(zip(timeline.ranges["domain"], timeline.ranges["name"], strict=True))
    assert pairs == [("application", "inner")] * REQUESTS + [("cgate", "request")] * REQUESTS


def test_full_has_the_call_behind_every_operation(recorded: Recorded) -> None:
    (timeline,) = recorded("requests", "full")
    joined = timeline.operations.merge(timeline.calls, on="correlation", suffixes=("", "_call"))
    assert [str(name) for name in joined["name_call"]] == [
        "cuMemcpyHtoDAsync",
        "cuMemsetD8Async",
        "cuLaunchKernel",
        "cuLaunchKernel",
        "cuMemcpyDtoDAsync",
    ] * REQUESTS
    assert (joined["start_ns_call"] <= joined["start_ns"]).all()
    assert (joined["status"] == 0).all()
    assert joined["thread"].nunique() == 1


def test_full_stamps_kernels_between_their_call_and_their_start(recorded: Recorded) -> None:
    (timeline,) = recorded("requests", "full")
    joined = timeline.operations.merge(timeline.calls, on="correlation", suffixes=("", "_call"))
    kernels = joined[joined["kind"] == KERNEL]
    assert (kernels["queued_ns"] >= kernels["start_ns_call"]).all()
    assert (kernels["submitted_ns"] >= kernels["queued_ns"]).all()
    assert (kernels["submitted_ns"] <= kernels["start_ns"]).all()


@both_levels
def test_waiting_is_recorded_as_blocking_calls(recorded: Recorded, level: Level) -> None:
    (timeline,) = recorded("requests", level)
    blocking = names(timeline.calls[timeline.calls["blocking"]])
    assert blocking.count("cuStreamSynchronize") == REQUESTS
    assert blocking.count("cuCtxSynchronize") == 1


def test_light_records_no_submissions(recorded: Recorded) -> None:
    (timeline,) = recorded("requests", "light")
    assert timeline.calls["blocking"].all()
    assert not set(names(timeline.calls)) & {"cuLaunchKernel", "cuMemsetD8Async"}


@both_levels
def test_a_replays_operations_carry_their_graph_and_node(recorded: Recorded, level: Level) -> None:
    (timeline,) = recorded("graph", level)
    found = timeline.operations
    assert names(found) == ["memset", "scale", "scale", "scale"] * REPLAYS + ["scale"]
    inside, outside = found[:-1], found[-1:]
    assert (inside["graph"] > 0).all()
    assert inside["graph"].nunique() == 1
    assert outside[["graph", "node"]].values.tolist() == [[0, 0]]
    first, second = inside["node"].tolist()[:4], inside["node"].tolist()[4:]
    assert first == second
    assert len(set(first)) == 4


def test_a_replays_operations_belong_to_one_graph_launch(recorded: Recorded) -> None:
    (timeline,) = recorded("graph", "full")
    per_call = timeline.operations.groupby("correlation", sort=False).size()
    assert per_call.tolist() == [4] * REPLAYS + [1]
    calls = timeline.calls.set_index("correlation")["name"].astype(str)
    assert [calls[number] for number in per_call.index] == ["cuGraphLaunch"] * REPLAYS + ["cuLaunchKernel"]


@both_levels
def test_recordings_one_after_the_other_do_not_mix(recorded: Recorded, level: Level) -> None:
    first, second = recorded("twice", level)
    assert (names(first.operations), names(second.operations)) == (["scale"] * 2, ["scale"] * 3)
    assert (names(first.ranges), names(second.ranges)) == (["part"], ["part"])
    assert first.operations["end_ns"].max() < second.operations["start_ns"].min()
    assert not set(first.operations["correlation"]) & set(second.operations["correlation"])


@both_levels
def test_a_recording_of_nothing_is_empty_and_typed(recorded: Recorded, level: Level) -> None:
    (timeline,) = recorded("nothing", level)
    assert (len(timeline.operations), len(timeline.ranges)) == (0, 0)
    for family, columns in FAMILIES.items():
        assert dict(getattr(timeline, family).dtypes.astype(str)) == dict(columns)


@pytest.mark.gpu
def test_kernels_of_a_replay_have_no_queue_stamps(tmp_path: Path) -> None:
    (path,) = run_script(Path(recorded_programs.__file__), "graph", "full", str(tmp_path))
    found = load(Path(path)).operations
    assert (found.loc[found["graph"] > 0, ["queued_ns", "submitted_ns"]] == 0).all(axis=None)
    assert (found.loc[found["graph"] == 0, "submitted_ns"] > 0).all()


def test_the_simulated_recorder_says_that_it_is_one() -> None:
    (timeline,) = PROGRAMS["requests"](SimulatedDevice(), "light")
    assert timeline.meta.simulated
    assert timeline.meta.source == "simulated device"


def test_the_simulated_recorder_costs_no_time() -> None:
    device, untouched = SimulatedDevice(), SimulatedDevice()
    PROGRAMS["twice"](device, "full")
    source, out = recorded_programs.arrays(untouched)
    for count in (2, 5, 3, 0):
        recorded_programs.scaled(untouched, out, source, count)
        untouched.synchronize()
    assert device.clock_ns() == untouched.clock_ns()
