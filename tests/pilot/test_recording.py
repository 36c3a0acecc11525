"""How much of a workload is recorded, and what marks its requests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pilot_workloads import line_of, write_workload

from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.evidence import Run, create_run
from cudagraph_gate.pilot.jobs import ProfileJob
from cudagraph_gate.pilot.marking import with_requests
from cudagraph_gate.pilot.recording import (
    RECORDED_REQUESTS,
    RECORDER_WARM_UP,
    WARM_UP_REQUESTS,
    record_workload,
)
from cudagraph_gate.timeline.table import MEMSET, RANGE_COLUMNS, Timeline, TimelineMeta, frame_of, load

WITH_RANGES = """
plain = step

def step(x):
    for _ in range(2):
        with device.annotate("token", domain="model"):
            out = plain(x)
    device.host_work(1_000_000)
    return out
"""


class Progress:
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def progress(self, text: str, phase: str = "", done: int = 0, total: int = 0) -> None:
        self.said.append(text)


def recorded(folder: Path, text: str = "", **options: Any) -> tuple[Run, Timeline]:
    path = write_workload(folder, text)
    run = create_run(str(path), "module", "simulated", root=folder / "runs")
    job = ProfileJob(folder=str(run.folder), workload=str(path), device="simulated", shapes=None, **options)
    record_workload(job, Progress())
    return run, load(run.timeline_path)


@pytest.mark.parametrize(("iterations", "expected"), [(None, RECORDED_REQUESTS), (7, 7)])
def test_as_many_requests_are_recorded_as_asked_for(
    tmp_path: Path, iterations: int | None, expected: int
) -> None:
    run, timeline = recorded(tmp_path, iterations=iterations)
    assert len(timeline.requests()) == expected
    profile = run.profile()
    assert profile is not None
    assert profile.recorded_latency.count == expected


def test_a_duration_holds_the_requests_that_begin_in_it(tmp_path: Path) -> None:
    _run, timeline = recorded(tmp_path, WITH_RANGES, duration_s=0.02)
    requests = timeline.requests()
    starts = requests["start_ns"] - requests["start_ns"].iloc[0]
    assert 1 <= len(requests) <= 20  # each takes the host 1 ms
    assert (starts < 20_000_000).all()


def test_a_duration_and_a_number_end_with_the_first_that_is_reached(tmp_path: Path) -> None:
    _run, timeline = recorded(tmp_path, duration_s=100.0, iterations=4)
    assert len(timeline.requests()) == 4


def test_the_users_ranges_mark_requests_without_those_of_the_warm_up(tmp_path: Path) -> None:
    _run, timeline = recorded(tmp_path, WITH_RANGES, iterations=3, range_name="token")
    assert timeline.meta.request_range == "token"
    assert len(timeline.requests()) == 6


# --- between requests -------------------------------------------------------------------------------

BETWEEN = """
SEEN = []

def between(i):
    SEEN.append(i)
    device.fill(work, 0)
    device.host_work(3_000_000)

def teardown():
    sys.modules["seen_by_between"] = SEEN
"""


@pytest.fixture
def seen() -> Iterator[Callable[[], list[int]]]:
    """The indices of a recording's ``between``."""
    yield lambda: cast("list[int]", sys.modules["seen_by_between"])
    sys.modules.pop("seen_by_between", None)


def test_between_is_called_before_each_request_and_outside_of_it(
    tmp_path: Path, seen: Callable[[], list[int]]
) -> None:
    run, timeline = recorded(tmp_path, BETWEEN, iterations=6)
    profile = run.profile()
    assert profile is not None
    assert seen() == list(range(WARM_UP_REQUESTS + profile.iterations + RECORDER_WARM_UP + 6))
    assert profile.latency.maximum < 1_000_000
    assert profile.recorded_latency.maximum < 1_000_000
    assert profile.cpu_ns < 1_000_000
    requests = timeline.requests()
    gaps_ns = requests["start_ns"].to_numpy()[1:] - requests["end_ns"].to_numpy()[:-1]
    assert (gaps_ns >= 3_000_000).all()
    memsets = timeline.operations[timeline.operations["kind"] == MEMSET]
    assert len(memsets) >= 6
    for start in memsets["start_ns"]:
        assert not ((requests["start_ns"] <= start) & (start < requests["end_ns"])).any()


def test_a_failing_between_is_the_workloads_fault(tmp_path: Path) -> None:
    run = create_run("model.py", "module", "simulated", root=tmp_path / "runs")
    path = write_workload(tmp_path, "def between(i):\n    raise OSError('no weights')\n")
    job = ProfileJob(folder=str(run.folder), workload=str(path), device="simulated", shapes=None)
    with pytest.raises(WorkloadError, match=r"between\(0\) raised OSError: no weights") as caught:
        record_workload(job, Progress())
    assert caught.value.where == f"model.py:{line_of(path, 'no weights')}"


# --- marking ----------------------------------------------------------------------------------------


def ranges(*spans: tuple[str, int, int]) -> Timeline:
    rows = [{"name": name, "domain": "user", "start_ns": start, "end_ns": end} for name, start, end in spans]
    return Timeline(
        meta=TimelineMeta(source="test", level="full", problems=("before",)),
        ranges=frame_of(RANGE_COLUMNS, rows),
    )


def spans(timeline: Timeline) -> list[tuple[str, int]]:
    return list(zip(timeline.ranges["name"].astype(str), timeline.ranges["end_ns"].tolist(), strict=True))


def test_only_the_first_ranges_to_end_mark_requests() -> None:
    made = ranges(("epoch", 0, 90), ("step", 10, 20), ("step", 30, 60), ("step", 35, 40), ("load", 61, 70))
    found = with_requests(made, "step", 2)
    assert spans(found) == [("epoch", 90), ("step", 20), ("step", 40), ("load", 70)]
    assert len(found.requests()) == 2
    assert spans(with_requests(made, "step")) == spans(made)
    assert spans(with_requests(made, "step", 9)) == spans(made)


def test_a_name_that_no_range_has_is_a_problem() -> None:
    found = with_requests(ranges(("step", 10, 20)), "stop")
    assert found.meta.request_range == ""
    assert found.meta.problems == (
        "before",
        "no range called stop was recorded, so that requests are not marked",
    )
