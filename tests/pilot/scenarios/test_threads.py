"""Threads on one executable, on a small cache, and instances side by side."""

from __future__ import annotations

from pathlib import Path

from caches import Hasty, WithoutTurns
from scenes import seen, set_scene

from cudagraph_gate.errors import DeviceError
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.pilot.scenarios.threads import load, share


def test_two_threads_take_turns_on_one_executable(tmp_path: Path) -> None:
    found = seen(tmp_path, "shared-executable")
    assert (found.ended.status, found.failed_proofs) == (GateStatus.PASS, [])
    assert "took turns" in found.ended.seen


def test_a_cache_that_lets_two_threads_in_at_once_is_found(tmp_path: Path) -> None:
    scene = set_scene(tmp_path, "shared-executable")
    outcome = share(scene, WithoutTurns(capacity_entries=1))
    assert (outcome.status, outcome.code) == (GateStatus.FAIL, Reason.REPLAY_RACE)


def test_a_step_that_belongs_to_one_thread_is_not_shared(tmp_path: Path) -> None:
    found = seen(
        tmp_path,
        "shared-executable",
        """
        home = threading.get_ident()

        def step(x):
            if threading.get_ident() != home:
                raise RuntimeError("this step belongs to another thread")
            device.copy(work, x)
            add(work, 1)
            return work
        """,
    )
    assert (found.ended.status, found.ended.applies) == (GateStatus.PASS, False)
    assert "this step belongs to another thread" in found.ended.seen


def test_graphs_are_evicted_while_others_run(tmp_path: Path) -> None:
    found = seen(tmp_path, "eviction-under-load")
    assert (found.ended.status, found.failed_proofs) == (GateStatus.PASS, [])
    assert "graphs were evicted meanwhile, none of them in use" in found.ended.seen


def test_a_cache_that_frees_a_graph_in_use_is_found(tmp_path: Path) -> None:
    scene = set_scene(tmp_path, "eviction-under-load")
    try:
        outcome = load(scene, Hasty(capacity_entries=1))
    except (RuntimeError, DeviceError) as error:  # the graph was gone before it could be replayed
        assert "state" in str(error) or "destroyed" in str(error)
        return
    assert (outcome.status, outcome.code) in (
        (GateStatus.FAIL, Reason.LIFETIME),
        (GateStatus.FAIL, Reason.REPLAY_RACE),
    )


def test_instances_side_by_side_leave_canaries_alone(tmp_path: Path) -> None:
    found = seen(tmp_path, "instances-with-canaries")
    assert (found.ended.status, found.failed_proofs) == (GateStatus.PASS, [])
    assert found.ended.seen.endswith("at a time are right, and every canary is intact")
