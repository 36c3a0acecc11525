"""Requests that come otherwise than the trajectory's: rare ones, and with numbers on the host."""

from __future__ import annotations

from pathlib import Path

import pytest
from opened_sessions import Opened, opened
from pilot_workloads import try_here

from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.graph_path import ready_graph
from cudagraph_gate.pilot.host_metadata import metadata_finding
from cudagraph_gate.pilot.many_requests import REQUESTS, rare_request_finding
from cudagraph_gate.records import Finding

SEED = 1
RARE = """
def _rare(shape, x, capturing, n):
    x[:n] += 5 if capturing and x[0] > {above} else 1

RARE = Kernel("rare", "", _rare, 2_000)

def step(x):
    device.copy(work, x)
    capturing = device.current_stream().is_capturing
    device.launch(RARE, LAUNCH, (work, np.int32(capturing), np.int32(N)))
    return work
"""
LENGTH = """
length = 1

def step(x):
    device.copy(work, x)
    add(work, {length})
    return work

def inputs(shape, seed):
    global length
    length = 1 + seed % 7
    return (array(seed % 3),)
"""


def rare(workload: Opened) -> Finding | None:
    session = workload.session
    expected = correctness.expect(session, session.input_sets(SEED))
    graph = ready_graph(session, workload.first)
    return rare_request_finding(session, graph.replay, expected, SEED)


def test_a_graph_that_is_wrong_for_one_request_in_many_is_found(tmp_path: Path) -> None:
    found = rare(opened(tmp_path, RARE.format(above=0.97)))
    assert found is not None
    assert found.code is Reason.WRONG_OUTPUT
    assert "for the inputs of seed" in found.message


def test_one_that_is_right_for_all_is_left_alone(tmp_path: Path) -> None:
    assert rare(opened(tmp_path, RARE.format(above=1.0))) is None


def test_where_requests_change_state_each_follows_from_the_last_one(tmp_path: Path) -> None:
    text = RARE.format(above=0.97) + "    \ndef state():\n    return {'work': work}\n"
    assert rare(opened(tmp_path, text)) is None


def test_a_workload_that_makes_no_further_inputs_is_none_the_worse(tmp_path: Path) -> None:
    text = """
made = 0

def inputs(shape, seed):
    global made
    made += 1
    if made > 20:
        raise ValueError("no more of them")
    return (array(seed),)
"""
    assert REQUESTS > 20
    assert rare(opened(tmp_path, text)) is None


@pytest.mark.parametrize(("length", "code"), [("length", Reason.FROZEN_HOST_STATE), ("3", None)])
def test_a_number_that_inputs_leaves_for_the_step_is_found(
    tmp_path: Path, length: str, code: Reason | None
) -> None:
    workload = opened(tmp_path, LENGTH.format(length=length))
    session = workload.session
    sets = session.input_sets(SEED)
    expected = correctness.expect(session, sets)
    graph = ready_graph(session, workload.first)
    found = metadata_finding(session, graph.replay, expected, SEED, len(sets))
    assert (None if found is None else found.code) is code


def test_the_trial_refuses_such_a_step(tmp_path: Path) -> None:
    tried = try_here(tmp_path, LENGTH.format(length="length"))
    assert Reason.FROZEN_HOST_STATE in [each.code for each in tried.shape.findings if each.blocks]


@pytest.mark.parametrize("body", ["expected.to_host() == actual.to_host()", "return True"])
def test_a_check_that_accepts_anything_is_the_workloads_fault(tmp_path: Path, body: str) -> None:
    tried = try_here(tmp_path, f"\ndef check(expected, actual):\n    {body}\n")
    assert tried.error is not None
    assert "check accepts outputs that were overwritten" in tried.error.what


def test_a_check_that_raises_on_such_outputs_can_tell(tmp_path: Path) -> None:
    text = """
def check(expected, actual):
    want, got = expected.to_host(), actual.to_host()
    if not np.isfinite(got).all() or abs(got).max() > 1e6:
        raise ValueError("out of range")
    return bool(np.allclose(want, got))
"""
    tried = try_here(tmp_path, text)
    assert tried.error is None
    assert tried.shape.completed


@pytest.mark.parametrize("jitter", ["(0.0, 0.0, 0.003)", "(0.0, 0.001, 0.002)"])
def test_a_small_number_that_changes_now_and_then_is_not_taken_for_noise(tmp_path: Path, jitter: str) -> None:
    text = f"""
calls = 0

def step(x):
    global calls
    calls += 1
    device.copy(work, x)
    add(work, {jitter}[calls % 3])
    return work
"""
    tried = try_here(tmp_path, text)
    assert [each.code for each in tried.shape.findings if each.blocks]
