"""Real recordings of an H200, made by our own recorder: what each must hold is known from its script."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.model import Diagnosis, LaunchPhases, MapRole, NotMeasured, Segment
from cudagraph_gate.timeline.table import KERNEL, MEMCPY, Timeline, load

FOLDER = Path(__file__).parent / "golden" / "h200"
NAMES = ("eager", "graph", "two_streams", "nvtx_threads")


def timeline_of(name: str) -> Timeline:
    return load(FOLDER / f"{name}.parquet")


def diagnosis_of(name: str) -> Diagnosis:
    return diagnose(timeline_of(name), NotMeasured(reason="a script is not timed"))


def segments_of(name: str) -> tuple[Segment, ...]:
    segments = diagnosis_of(name).segments
    assert not isinstance(segments, NotMeasured)
    return segments


@pytest.mark.parametrize("name", NAMES)
def test_nothing_was_lost_and_busy_and_causes_are_the_whole_window(name: str) -> None:
    found = diagnosis_of(name)
    assert found.problems == ()
    (device,) = found.devices
    assert device.busy_ns + sum(device.causes.values()) == device.window_ns


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_was_launched_before_it_ran(name: str) -> None:
    timeline = timeline_of(name)
    calls = timeline.calls.set_index("correlation")["start_ns"]
    kernels = timeline.operations[timeline.operations["kind"] == KERNEL]
    assert (kernels["correlation"].map(calls) < kernels["start_ns"]).all()


# --- eager ----------------------------------------------------------------------------------------


def test_the_rounds_are_one_segment_that_repeats_twelve_times() -> None:
    best = segments_of("eager")[0]
    assert (best.operations, best.repeats) == (18, 12)
    assert sum(best.kernels.values()) == 17, "eight products, eight ReLUs, one sum"
    assert best.variation.operation_count == pytest.approx(1 / 12), "the first one also makes its weights"
    assert [call.name for call in best.blocking_calls] == ["cudaStreamSynchronize", "cuCtxSynchronize"]


def test_the_wait_is_found_at_the_line_of_item() -> None:
    (waits,) = diagnosis_of("eager").launches.blocking_calls
    assert (waits.name, waits.count) == ("cudaStreamSynchronize", 11), "the twelfth lies after the window"
    (site,) = waits.sites
    assert site.where == "eager.py:14 request"
    assert timeline_of("eager").operations["kind"].eq(MEMCPY).sum() == 12


# --- graph ----------------------------------------------------------------------------------------


def test_ten_launches_of_sixteen_nodes() -> None:
    nodes = timeline_of("graph").operations.query("graph != 0")
    assert len(nodes) == 160
    assert nodes["graph"].nunique() == 1
    assert nodes.groupby("correlation")["node"].nunique().tolist() == [16] * 10
    assert diagnosis_of("graph").launches.graph_launches == 10


def test_a_graph_launch_is_charged_once() -> None:
    launches = diagnosis_of("graph").launches
    assert isinstance(launches.phases, LaunchPhases)
    assert launches.phases.launches == 53 + 10, "53 kernels outside the graph, and each replay once"
    assert launches.submissions == 53 + 10


def test_the_replays_are_a_segment_that_is_a_graph_already() -> None:
    replays = next(one for one in segments_of("graph") if one.graph_launches)
    assert (replays.operations, replays.graph_launches, replays.repeats) == (16, 1, 9)
    assert [node.role for node in replays.map.nodes if node.operations] == [MapRole.GRAPH]


# --- two streams --------------------------------------------------------------------------------------


def test_event_records_and_waits_name_both_streams() -> None:
    calls = timeline_of("two_streams").calls
    about = calls[calls["event"] != 0]
    records = about[about["name"].str.contains("EventRecord")].set_index("event")["stream"]
    waits = about[about["name"].str.contains("StreamWaitEvent")].set_index("event")["stream"]
    assert len(waits) == 20
    assert {(records[event], stream) for event, stream in waits.items()} == {(15, 19), (19, 15)}


def test_the_map_has_the_waits_between_the_streams() -> None:
    best = segments_of("two_streams")[0]
    assert (best.operations, best.repeats, best.streams) == (6, 10, 2)
    assert {edge.kind for edge in best.map.edges} >= {"stream", "event"}


# --- NVTX -------------------------------------------------------------------------------------------


def inside(ranges: pd.DataFrame, outer: pd.Series) -> pd.DataFrame:
    own = ranges[(ranges["thread"] == outer["thread"]) & (ranges["name"] == "inner")]
    return own[(own["start_ns"] > outer["start_ns"]) & (own["end_ns"] < outer["end_ns"])]


def test_ranges_of_both_packages_nest_on_their_threads() -> None:
    ranges = timeline_of("nvtx_threads").ranges
    outer = ranges[ranges["domain"] == "golden"]
    steps = outer[outer["name"].astype(str) != "across"]
    assert sorted(steps["name"].astype(str)) == sorted(
        f"{name}#{number}" for name in ("step", "other") for number in range(5)
    )
    assert steps.groupby(steps["name"].str.partition("#")[0])["thread"].nunique().tolist() == [1, 1]
    assert [len(inside(ranges, step)) for _, step in steps.iterrows()] == [1] * 10


def test_a_range_may_end_on_another_thread() -> None:
    ranges = timeline_of("nvtx_threads").ranges
    across = ranges[ranges["name"] == "across"].iloc[0]
    assert across["thread"] != across["end_thread"]
    assert across["thread"] == across["process"], "it began on the main thread"
