"""Faults while a graph is captured: what is said of a workload that stands them, and of one that does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenes import seen

from cudagraph_gate.model import GateStatus, Reason

PROOFS = [
    "nothing captures",
    "current stream",
    "random numbers",
    "normal path",
    "canaries",
    "other threads",
    "memory",
]


@pytest.mark.parametrize(
    ("scenario", "sentence"),
    [
        ("capture-failure", "refused 3 times (cuCtxSynchronize); the next graph is right"),
        ("user-exception", "the exception reached the caller 3 times; the next graph is right"),
        (
            "sync-inside",
            "a stream synchronisation is refused (cuStreamSynchronize), work on the legacy stream stays "
            "outside the graph; the next graph is right",
        ),
        ("unjoined-stream", "refused as an unjoined stream; the next graph is right"),
    ],
)
def test_a_healthy_workload_stands_it(tmp_path: Path, scenario: str, sentence: str) -> None:
    found = seen(tmp_path, scenario)
    assert (found.ended.status, found.ended.seen) == (GateStatus.PASS, sentence)
    assert [*found.proofs] == PROOFS
    assert found.failed_proofs == []


def test_captures_beside_a_noisy_thread_hold_and_it_goes_on(tmp_path: Path) -> None:
    found = seen(tmp_path, "noisy-neighbour")
    assert found.ended.status is GateStatus.PASS
    assert found.ended.seen.startswith("20 of 20 captures, ")
    assert found.failed_proofs == []


# --- workloads that do not stand it ---------------------------------------------------------------


def test_a_step_that_swallows_the_refusal_is_found(tmp_path: Path) -> None:
    found = seen(
        tmp_path,
        "capture-failure",
        """
        def step(x):
            device.copy(work, x)
            try:
                add(work, 1)
            except Exception:
                pass
            return work
        """,
    )
    # The capture is refused at its end all the same: what counts is that no graph comes of it.
    assert found.ended.status is GateStatus.PASS
    assert "refused 3 times" in found.ended.seen


def test_a_step_that_hides_an_exception_behind_another_is_found(tmp_path: Path) -> None:
    found = seen(
        tmp_path,
        "user-exception",
        """
        def step(x):
            try:
                return inner(x)
            except Exception:
                raise KeyError("lost") from None

        def inner(x):
            device.copy(work, x)
            for k in range(64):
                add(work, k)
            return work
        """,
    )
    assert found.ended.status is GateStatus.PASS  # its context still names the cause
    assert "reached the caller" in found.ended.seen


def test_a_step_that_never_works_again_after_a_refusal_is_found(tmp_path: Path) -> None:
    found = seen(
        tmp_path,
        "capture-failure",
        """
        broken = False

        def step(x):
            global broken
            try:
                device.copy(work, x)
                for k in range(8):
                    add(work, 100 if broken else k)
            except Exception:
                broken = True
                raise
            return work
        """,
    )
    assert found.ended.status is GateStatus.FAIL
    assert found.ended.code is Reason.WRONG_OUTPUT
    assert "after a failed capture the normal path goes wrong" in found.ended.seen
    assert "normal path" in found.failed_proofs


def test_a_step_that_can_be_captured_once_only_is_found(tmp_path: Path) -> None:
    found = seen(
        tmp_path,
        "user-exception",
        """
        captures = 0

        def step(x):
            global captures
            captures += device.current_stream().is_capturing
            if captures > 3:
                device.synchronize()
            device.copy(work, x)
            for k in range(8):
                add(work, k)
            return work
        """,
    )
    assert found.ended.status is GateStatus.FAIL
    assert found.ended.code is Reason.CAPTURE_ILLEGAL
    assert found.ended.call == "cuCtxSynchronize"


def test_a_step_that_synchronises_the_device_from_a_thread_of_its_own_is_found(tmp_path: Path) -> None:
    found = seen(
        tmp_path,
        "noisy-neighbour",
        """
        def step(x):
            device.copy(work, x)
            add(work, 1)
            if device.current_stream().is_capturing:
                other = threading.Thread(target=quietly)
                other.start()
                other.join()
            return work

        def quietly():
            try:
                device.synchronize()
            except Exception:
                pass
        """,
    )
    assert found.ended.status is GateStatus.FAIL


def test_an_own_path_is_not_asked_how_it_captures(tmp_path: Path) -> None:
    text = """
    def build_graphed(shape):
        return step
    """
    found = seen(tmp_path, "capture-failure", text, method="own")
    assert (found.ended.status, found.ended.applies) == (GateStatus.PASS, False)
    assert found.proofs == {}


def test_a_step_that_fails_by_itself_now_and_then_is_not_blamed_on_the_other_thread(tmp_path: Path) -> None:
    found = seen(
        tmp_path,
        "noisy-neighbour",
        """
        side, calls = device.create_stream(), 0

        def step(x):
            global calls
            calls += 1
            device.copy(work, x)
            add(work, 1)
            if calls % 24 == 0:
                side.wait(device.current_stream().record())
                add(other, 1, side)
            return work

        other = array()
        """,
    )
    assert found.ended.code is Reason.UNJOINED_STREAM
    assert "whoever uses the device beside them" in found.ended.seen
