"""Requests that do not wait for each other."""

from __future__ import annotations

from pathlib import Path

from opened_sessions import Opened, opened

from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.graph_path import ready_graph
from cudagraph_gate.pilot.overlapping import overlap_finding, overlapped
from cudagraph_gate.records import Finding

STAGED = """
        staging = np.zeros(N, np.float32)

        def step(x):
            device.copy(staging, x)
            device.copy(work, staging)
            return work
        """
"""Over a host buffer that each request writes anew."""


def looked_at(workload: Opened) -> Finding | None:
    session = workload.session
    expected = correctness.expect(session, session.input_sets(1))
    return overlap_finding(session, ready_graph(session, workload.first).replay, expected)


def test_a_stream_keeps_replays_and_copies_in_order(tmp_path: Path) -> None:
    assert looked_at(opened(tmp_path)) is None


def test_a_path_that_works_on_another_stream_without_waiting_is_found(tmp_path: Path) -> None:
    workload = opened(tmp_path)
    session = workload.session
    expected = correctness.expect(session, session.input_sets(1))
    side, work = session.device.create_stream(), session.device.empty((64,), "f4")

    def racing(inputs: object) -> object:
        # Returns at once what a side stream fills later than the current stream reads it.
        session.device.fill(work, 0, session.device.current_stream())
        session.device.copy(work, inputs[0], side)  # type: ignore[index]
        session.device.fill(work, 1, session.device.current_stream())
        return work

    found = overlap_finding(session, racing, expected)
    assert found is not None
    assert (found.code, found.blocks) == (Reason.REPLAY_RACE, False)
    assert found.message.startswith(
        "replays that do not wait for each other go wrong, the normal path does not"
    )


def test_where_the_normal_path_goes_wrong_too_nothing_is_said(tmp_path: Path) -> None:
    workload = opened(
        tmp_path,
        """
        calls = 0

        def step(x):
            global calls
            calls += 1
            device.copy(work, x)
            add(work, calls)
            return work
        """,
    )
    session = workload.session
    expected = correctness.expect(session, session.input_sets(1))
    assert overlapped(session, session.call, expected) or expected.tolerances["output output"] > 0
    assert looked_at(workload) is None


def test_with_between_the_application_waits_by_itself(tmp_path: Path) -> None:
    workload = opened(
        tmp_path,
        """
        def between(i):
            pass
        """,
    )
    session = workload.session
    expected = correctness.expect(session, session.input_sets(1))
    assert overlap_finding(session, lambda _inputs: 1 / 0, expected) is None
