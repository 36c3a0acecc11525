"""Recordings of real programs on a GPU, each in a process of its own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import gpu_programs
import pandas as pd
import pytest
from gpu_programs import LAUNCHES, LOAD_S, LOADS
from gpu_script import run_script

from cudagraph_gate.timeline.table import Timeline, load

pytestmark = pytest.mark.gpu


def recorded(program: str, folder: Path) -> Timeline:
    timeline = load(Path(run_script(Path(gpu_programs.__file__), program, str(folder))))
    assert (timeline.meta.dropped_records, timeline.meta.problems) == (0, ())
    return timeline


def inside(ranges: pd.DataFrame, name: str) -> pd.DataFrame:
    found: pd.DataFrame = ranges[ranges["name"] == name].reset_index(drop=True)
    return found


def test_nested_ranges_of_several_threads_keep_their_thread_and_nesting(tmp_path: Path) -> None:
    ranges = recorded("nested_ranges", tmp_path).ranges
    assert Counter(ranges["name"].astype(str)) == {
        "outer 0": 1, "outer 1": 1, "inner": 6, "step 0": 2, "step 1": 2, "step 2": 2, "handed over": 1,
    }  # fmt: skip
    outer = [inside(ranges, f"outer {number}").iloc[0] for number in range(2)]
    assert outer[0]["thread"] != outer[1]["thread"]
    assert max(one["start_ns"] for one in outer) < min(one["end_ns"] for one in outer)
    for one in outer:
        own = ranges[(ranges["thread"] == one["thread"]) & (ranges["name"] == "inner")]
        assert len(own) == 3
        assert (own["start_ns"] >= one["start_ns"]).all()
        assert (own["end_ns"] <= one["end_ns"]).all()
    assert set(inside(ranges, "inner")["domain"].astype(str)) == {"app"}


def test_a_range_that_ends_on_another_thread_names_both(tmp_path: Path) -> None:
    ranges = recorded("nested_ranges", tmp_path).ranges
    handed = inside(ranges, "handed over").iloc[0]
    assert handed["thread"] == inside(ranges, "outer 0").iloc[0]["thread"]
    assert handed["end_thread"] == inside(ranges, "outer 1").iloc[0]["thread"]


def test_pytorchs_own_ranges_are_recorded(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    timeline = recorded("torch_ranges", tmp_path)
    (outer,), (inner,) = (inside(timeline.ranges, name).itertuples() for name in ("outer", "inner"))
    assert outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns
    assert (timeline.operations["kind"] == "kernel").sum() == 1


def test_events_and_waits_name_streams_and_events(tmp_path: Path) -> None:
    timeline = recorded("two_streams", tmp_path)
    kernels = timeline.operations[timeline.operations["kind"] == "kernel"]
    first, second = kernels["stream"].tolist()
    calls = timeline.calls.set_index(timeline.calls["name"].astype(str))
    record, wait = calls.loc["cuEventRecord"], calls.loc["cuStreamWaitEvent"]
    assert (record["stream"], wait["stream"]) == (first, second)
    assert record["event"] == wait["event"] > 0
    assert calls.loc["cuStreamSynchronize"]["stream"] == second
    assert not wait["blocking"]


def test_a_long_recording_is_complete(tmp_path: Path) -> None:
    timeline = recorded("many", tmp_path)
    kernels = timeline.operations[timeline.operations["kind"] == "kernel"]
    assert len(kernels) == LAUNCHES
    assert kernels["start_ns"].is_monotonic_increasing
    assert kernels["correlation"].is_unique
    launches = timeline.calls[timeline.calls["name"].astype(str).str.startswith("cuLaunchKernel")]
    assert set(kernels["correlation"]) == set(launches["correlation"])
    assert [path.name for path in tmp_path.iterdir()] == ["many.parquet"]


def test_blocking_calls_have_the_users_line(tmp_path: Path) -> None:
    calls = recorded("sites", tmp_path).calls
    lines = Path(gpu_programs.__file__).read_text().splitlines()
    line = lines.index("def waits_for_the_gpu(device: Device) -> None:") + 3
    waited = calls[calls["name"] == "cuCtxSynchronize"]["site"].astype(str)
    assert Counter(waited)[f"gpu_programs.py:{line} waits_for_the_gpu"] == 3
    copied = calls[calls["name"].astype(str).str.startswith("cuMemcpyDtoH")]["site"].astype(str)
    assert all(site.endswith(" sites") for site in copied)
    assert set(calls[~calls["blocking"]]["site"].astype(str)) <= {""}


@pytest.mark.parametrize(("program", "least", "most"), [("sleeping", 0.0, 0.3), ("computing", 0.7, 1.0)])
def test_a_host_that_waits_is_told_from_one_that_computes(
    tmp_path: Path, program: str, least: float, most: float
) -> None:
    timeline = recorded(program, tmp_path)
    times, loads = timeline.cpu_times, inside(timeline.ranges, "load")
    assert len(loads) == LOADS
    (thread,) = times["thread"].unique()
    assert thread == loads["thread"].iloc[0]
    on_cpu = 0.0
    for span in loads.itertuples():
        overlap = (
            times["end_ns"].clip(upper=span.end_ns) - times["start_ns"].clip(lower=span.start_ns)
        ).clip(0)
        on_cpu += float((times["on_cpu_ns"] * overlap / (times["end_ns"] - times["start_ns"])).sum())
    share = on_cpu / (LOADS * LOAD_S * 1e9)
    assert least <= share <= most * 1.05
