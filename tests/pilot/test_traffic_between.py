"""The mix with a ``between``: alike for both paths, and the clock of the arrivals stands still meanwhile."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from rung_workloads import OWN_BUFFER, Rung, rung

from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import traffic
from cudagraph_gate.pilot.arrivals import Arrivals
from cudagraph_gate.pilot.correctness import TRAJECTORY_REQUESTS
from cudagraph_gate.records import TrafficRun

MIX = OWN_BUFFER + "\nKERNELS = 2\nTRAFFIC = {'default': 1}\nSEEN = []\n"
SEEN = MIX + "\ndef between(i):\n    SEEN.append(i)\n    device.host_work(5_000_000)\n"
FAILS = MIX + "\ndef between(i):\n    if i == 20:\n        raise ValueError('late')\n"


def prepared(folder: Path, text: str) -> Rung:
    """The mix of one shape, which a graph serves."""
    made = rung(folder, "traffic", text)
    return Rung(made.loaded, made.log, structs.replace(made.job, captured=("default",)), made.run)


def module(made: Rung) -> Any:
    """The workload's own module."""
    return made.loaded.workload.module


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Rung:
    """The whole rung."""
    made = prepared(tmp_path_factory.mktemp("served"), SEEN)
    traffic.try_traffic(made.loaded, made.log, made.job)
    return made


def test_both_paths_see_the_same_indices_which_count_on(served: Rung) -> None:
    seen = Counter(module(served).SEEN)
    first = TRAJECTORY_REQUESTS + 1  # after one that said what a call costs
    assert {index: calls for index, calls in seen.items() if index >= first} == dict.fromkeys(
        range(first, max(seen) + 1), 2
    )
    assert max(seen) - first >= len(served.of(TrafficRun)) / 2


def test_its_time_is_in_no_request(served: Rung) -> None:
    for run in served.of(TrafficRun):
        assert max(end - start for start, end in zip(run.starts_ns, run.ends_ns, strict=True)) < 1_000_000
        if run.level < 0.5:
            waits = [start - due for start, due in zip(run.starts_ns, run.arrivals_ns, strict=True)]
            assert max(waits) < 1_000_000


def test_the_clock_of_the_arrivals_stands_still_while_it_runs(tmp_path: Path) -> None:
    made, calls = prepared(tmp_path, MIX), count()
    server, device = traffic.Server.of(made.loaded, "default", 0), module(made).device
    server.normal = lambda _inputs: device.host_work(1_000)

    def pause() -> None:
        device.host_work(50_000_000)
        next(calls)

    starts, ends = traffic.serve(device, [server], "normal", Arrivals((0, 0, 0), (0, 500, 9_000)), pause)
    assert next(calls) == 3
    assert (starts, ends) == ((0, 1_000, 9_000), (1_000, 2_000, 10_000))


def test_its_failure_is_the_workloads(tmp_path: Path) -> None:
    made = prepared(tmp_path, FAILS)
    with pytest.raises(WorkloadError, match=r"between\(20\) raised ValueError: late"):
        traffic.try_traffic(made.loaded, made.log, made.job)
    found = made.finding()
    assert (found.code, found.message) == (Reason.WORKLOAD, "between(20) raised ValueError: late")
    assert found.where.startswith("model.py:")
