"""What the host decides otherwise at one call in many."""

from __future__ import annotations

from pathlib import Path

import pytest
from opened_sessions import Opened, opened
from pilot_workloads import try_here

from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.steadiness import odd_call

COUNTED = """
calls = 0

def step(x):
    global calls
    calls += 1
    device.copy(work, x)
    add(work, {odd} if calls % {every} == 0 else 1)
    return work
"""


def odd(workload: Opened) -> tuple[int, str] | None:
    session = workload.session
    return odd_call(session, correctness.expect(session, session.input_sets(1)))


@pytest.mark.parametrize("every", [50, 100])
def test_a_call_in_many_that_does_something_else_is_found(tmp_path: Path, every: int) -> None:
    workload = opened(tmp_path, COUNTED.format(odd=9, every=every))
    before = 1 + 3 * 5  # the first request, and three trajectories
    assert odd(workload) == (every - before - 1, "output")


def test_a_call_in_many_that_changes_state_is_found(tmp_path: Path) -> None:
    workload = opened(
        tmp_path,
        """
calls, total = 0, array()

def step(x):
    global calls
    calls += 1
    device.copy(work, x)
    if calls % 50 == 0:
        add(total, 1)
    return work

def state():
    return {"total": total}
""",
    )
    assert odd(workload) == (50 - 16 - 1, "state total")


def test_a_steady_step_is_left_alone(tmp_path: Path) -> None:
    assert odd(opened(tmp_path)) is None


def test_noise_that_shows_up_late_is_no_decision(tmp_path: Path) -> None:
    assert odd(opened(tmp_path, COUNTED.format(odd=1.001, every=50))) is None


def test_where_requests_change_state_nothing_is_said(tmp_path: Path) -> None:
    text = """
    total = array()

    def step(x):
        add(total, 1)
        device.copy(work, total)
        return work

    def state():
        return {"total": total}
    """
    assert odd(opened(tmp_path, text)) is None


def test_the_trial_refuses_it_with_the_number_of_the_call(tmp_path: Path) -> None:
    tried = try_here(tmp_path, COUNTED.format(odd=9, every=97))
    (found,) = [each for each in tried.shape.findings if each.code is Reason.FROZEN_HOST_STATE]
    assert found.blocks
    assert found.message.startswith("call ")
    assert not tried.shape.completed
