"""What the application does between requests: called within a budget, alike for both paths, and blamed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opened_sessions import Opened, opened

from cudagraph_gate.errors import DeviceMemoryError, WorkloadError
from cudagraph_gate.pilot.between import Between
from cudagraph_gate.pilot.session import Session

SEEN = """
        SEEN = []
        def between(i):
            SEEN.append(i)
        """
SLOW = """
        def between(i):
            time.sleep(0.002)
        """


def seen(workload: Opened) -> list[int]:
    """Indices that the workload's ``between`` was called with."""
    found: list[int] = workload.session.workload.module.SEEN
    return found


@pytest.fixture
def workload(tmp_path: Path) -> Opened:
    return opened(tmp_path, SEEN)


# --- counting -------------------------------------------------------------------------------------


def test_it_counts_on_where_another_phase_ended(workload: Opened) -> None:
    for index in (0, 1, 2, 0, 1):  # trajectories count from 0 each
        workload.session.between(index)
    Between(workload.session).call()
    Between(workload.session).call()
    assert seen(workload) == [0, 1, 2, 0, 1, 3, 4]
    assert workload.session.next_index == 5


def test_a_session_made_from_another_counts_on(workload: Opened) -> None:
    Between(workload.session).call()
    again = workload.session.with_outputs(workload.first, workload.session.call(workload.first))
    Between(again).call()
    assert seen(workload) == [0, 1]


def test_without_one_there_is_nothing_to_call(tmp_path: Path) -> None:
    session = opened(tmp_path).session
    between = Between(session)
    between.call()
    assert (between.prepare(), between.spread(9, 1), between.paused({0: 0})) == (None, {}, None)
    assert (session.next_index, between.spent_s) == (0, 0.0)


def test_what_it_enqueued_is_waited_for(tmp_path: Path) -> None:
    kernel = 'Kernel("slow", "", _add, 50_000_000)'
    workload = opened(tmp_path, f"def between(i):\n    add(work, 1, kernel={kernel})\n")
    device = workload.session.device
    Between(workload.session).call()
    end = device.clock_ns()
    device.synchronize()
    assert device.clock_ns() - end < 1_000_000


# --- its cost -------------------------------------------------------------------------------------


def test_before_each_request_while_the_budget_lasts(workload: Opened) -> None:
    pause = Between(workload.session).prepare()
    assert pause is not None
    for _ in range(4):
        pause()
    assert seen(workload) == [0, 1, 2, 3]


def test_no_more_once_the_budget_is_spent(tmp_path: Path) -> None:
    session = opened(tmp_path, SLOW).session
    between = Between(session, budget_s=0.004)
    pause = between.prepare()
    assert pause is not None
    for _ in range(10):
        pause()
    assert session.next_index <= 2
    assert between.spent_s >= 0.004


def test_a_spread_gives_each_request_a_call_where_that_is_affordable(workload: Opened) -> None:
    between = Between(workload.session)
    between.call()
    assert between.spread(4, 1) == {0: 1, 1: 2, 2: 3, 3: 4}


def test_a_slow_one_is_spread_evenly(tmp_path: Path) -> None:
    session = opened(tmp_path, SLOW).session
    between = Between(session, budget_s=1.0)
    between.spent_s, between._calls = 0.0, 5
    object.__setattr__(session.counted, "next_index", 7)
    between.spent_s = 0.5  # 0.1 s a call, and half of the budget is left: 5 calls
    assert between.spread(10, 1) == {0: 7, 2: 8, 4: 9, 6: 10, 8: 11}
    assert between.spread(10, 2) == {0: 7, 5: 8}
    between.spent_s = 2.0
    assert between.spread(10, 1) == {0: 7}, "at least one"


@given(st.integers(1, 200), st.integers(1, 400), st.floats(1e-6, 30.0))
def test_a_spread_keeps_within_the_run_and_counts_on(requests: int, shares: int, spent_s: float) -> None:
    between = Between(_Declared())
    between.spent_s, between._calls = spent_s, 3
    found = between.spread(requests, shares)
    assert 1 <= len(found) <= requests
    assert list(found.values()) == list(range(5, 5 + len(found)))
    assert list(found) == sorted(found)
    assert 0 in found
    assert max(found) < requests


class _Declared(Session):
    """A session of which only the count is asked."""

    def __init__(self) -> None:
        class Workload:
            between = len

        object.__setattr__(self, "workload", Workload())
        object.__setattr__(self, "counted", type("Five", (), {"next_index": 5})())


def test_both_runs_of_a_spread_see_the_same_indices(workload: Opened) -> None:
    between = Between(workload.session)
    spread = {0: 3, 2: 4}
    for _path in ("normal", "graph"):
        pause = between.paused(spread)
        assert pause is not None
        for _request in range(4):
            pause()
    assert seen(workload) == [3, 4, 3, 4]


def test_its_time_is_kept_account_of(tmp_path: Path) -> None:
    between, start = Between(opened(tmp_path, SLOW).session), time.perf_counter()
    between.call()
    assert 0.002 <= between.spent_s <= time.perf_counter() - start


# --- its errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('no weights')", r"between\(0\) raised ValueError: no weights"),
        ("sys.exit(2)", r"between\(0\) called sys.exit\(2\)"),
        (
            "device.end_capture(device.create_stream())",
            r"between\(0\) raised DeviceError: cuStreamEndCapture",
        ),
    ],
    ids=["exception", "exit", "device call"],
)
def test_what_it_raises_is_the_workloads_in_one_line(tmp_path: Path, body: str, message: str) -> None:
    workload = opened(tmp_path, f"def between(i):\n    {body}\n")
    with pytest.raises(WorkloadError, match=message) as caught:
        Between(workload.session).call()
    assert caught.value.where == workload.place(body)


def test_out_of_memory_passes_since_a_graph_may_hold_it(tmp_path: Path) -> None:
    workload = opened(tmp_path, "def between(i):\n    device.empty((1 << 50,), np.uint8)\n")
    with pytest.raises(DeviceMemoryError):
        Between(workload.session).call()


def test_the_count_stands_after_a_failed_call(tmp_path: Path) -> None:
    workload = opened(tmp_path, "def between(i):\n    1 / 0\n")
    session: Any = workload.session
    with pytest.raises(WorkloadError):
        session.between(4)
    assert session.next_index == 5
