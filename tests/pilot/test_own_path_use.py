"""What a graph path of the workload's own makes of arrays that come again, and of other streams."""

from __future__ import annotations

from pathlib import Path

import pytest
from opened_sessions import Opened, opened
from pilot_workloads import try_here

from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.own_path import own_path
from cudagraph_gate.pilot.own_path_use import left_running, own_path_findings
from cudagraph_gate.records import Cost, Phase

OWN = """
def build_graphed(shape):
    static, out, stream, bound = array(), array(), device.create_stream(), [None]
    with device.use_stream(stream):
        device.begin_capture(stream)
        try:
            device.copy(out, static)
            for k in (0, 1, 2, 3, *[0] * 16):  # long enough to be noticed
                add(out, k)
        finally:
            executable = device.end_capture(stream).instantiate()

    def graphed(x):
        {body}
        return out

    return graphed
"""
RIGHT = """device.copy(static, x)
        executable.launch(device.current_stream())"""
BY_OBJECT = """if bound[0] is not x:
            device.copy(static, x)
            bound[0] = x
        executable.launch(device.current_stream())"""
ELSEWHERE = """stream.wait(device.current_stream().record())
        device.copy(static, x, stream)
        executable.launch(stream)"""
JOINED = (
    ELSEWHERE
    + """
        device.current_stream().wait(stream.record())"""
)
DONATED = (
    RIGHT
    + """
        device.fill(x, 0)"""
)


def codes(workload: Opened) -> list[Reason]:
    session = workload.session
    expected = correctness.expect(session, session.input_sets(1))
    path = own_path(session, workload.first)
    actual = correctness.follow(session, path.replay, expected.start)
    assert all(each.equal for each in correctness.compare_paths(session, expected, actual))
    return [finding.code for finding in own_path_findings(session, path.replay, expected)]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (RIGHT, []),
        (BY_OBJECT, [Reason.UNSTABLE_ADDRESS]),
        (ELSEWHERE, [Reason.REPLAY_RACE]),
        (JOINED, []),
        (DONATED, [Reason.STATE_MUTATION]),
    ],
)
def test_what_agreeing_outputs_do_not_show_is_found(tmp_path: Path, body: str, found: list[Reason]) -> None:
    assert codes(opened(tmp_path, OWN.format(body=body), method="own")) == found


def test_what_is_left_running_is_the_work_of_other_streams(tmp_path: Path) -> None:
    workload = opened(tmp_path, OWN.format(body=ELSEWHERE), method="own")
    session = workload.session
    expected = correctness.expect(session, session.input_sets(1))
    path = own_path(session, workload.first)
    kernels_ns = 20 * 2_000
    assert left_running(session, session.call, expected) < 5_000
    assert left_running(session, path.replay, expected) >= kernels_ns


def test_what_is_still_made_at_a_later_request_is_no_steady_replay(tmp_path: Path) -> None:
    body = """bound.append(None)
        if len(bound) == 15:
            device.host_wait(60_000_000_000)
        """
    tried = try_here(tmp_path, OWN.format(body=body + RIGHT))
    (steady,) = [cost for cost in tried.shape.of(Cost) if cost.phase is Phase.STEADY_REPLAY]
    assert isinstance(steady.elapsed, int)
    assert steady.elapsed < 10_000_000_000
    assert steady.stalled_ns == pytest.approx(60e9, rel=0.01)
