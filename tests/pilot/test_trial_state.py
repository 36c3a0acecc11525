"""State that the graph path changes otherwise, moves or frees: found and named."""

from __future__ import annotations

from pathlib import Path

from pilot_workloads import try_here, unequal

from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.model import Reason
from cudagraph_gate.records import Phase


def test_a_state_entry_that_the_graph_changes_otherwise_is_named(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        def build(shape):
            global work, total
            work, total = array(), array()
            return step

        def step(x):
            add(total, 1, None if not device.current_stream().is_capturing else device.legacy_stream)
            device.copy(work, x)
            return work

        def state():
            return {"total": total}
        """,
    )
    state = tried.compared("state")
    assert unequal(tried, "outputs") == []
    assert unequal(tried, "state") == [0, 1, 2, 3, 4, 5, 6]
    assert [found.max_abs_error for found in state[:7]] == [1, 2, 3, 4, 5, 6, 7]
    assert state[0].detail == "state total"


def test_state_that_only_the_graph_touches_is_found_at_the_end(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        def build(shape):
            global work, canary
            work, canary = array(), array()
            return step

        def step(x):
            device.copy(work, x)
            if device.current_stream().is_capturing:
                add(canary, 1)
            return work

        def state():
            return {"canary": canary}
        """,
    )
    (found,) = tried.compared("state")
    assert (found.equal, found.detail) == (False, "state after the last request: canary")


def test_an_array_that_is_replaced_between_requests_is_found(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        old = []
        def build(shape):
            global work, weights
            work, weights = array(), array(1)
            return step

        def step(x):
            device.copy(work, x)
            add(work, weights)
            return work

        def state():
            return {"weights": weights}

        def between(i):
            global weights
            old.append(weights)
            weights = array(i + 2)
        """,
    )
    assert unequal(tried, "outputs")[-1:] == [6]
    assert not tried.shape.completed
    (moved,) = tried.shape.findings
    assert (moved.code, moved.phase) == (Reason.UNSTABLE_ADDRESS, Phase.TRAJECTORY)
    assert moved.message.startswith("state weights lay elsewhere before request 1 than when it was captured")


REBUILT = """
        def build(shape):
            global work, weights
            work, weights = array(), array(1)
            return step

        def step(x):
            device.copy(work, x)
            add(work, weights)
            return work

        def between(i):
            global weights
            weights = array((i + 2) % 6)
        """
"""``between`` frees the old array: the next allocation of its size gets its memory."""


def test_freed_memory_that_is_used_again_does_not_look_right_by_luck(tmp_path: Path) -> None:
    tried = try_here(tmp_path, REBUILT)
    assert unequal(tried, "outputs"), "the graph still reads what was freed"


def test_state_whose_memory_is_used_again_is_found_by_its_address(tmp_path: Path) -> None:
    declared = """
        def state():
            return {"weights": weights}
        """
    tried = try_here(tmp_path, REBUILT + declared)
    assert Reason.UNSTABLE_ADDRESS in [finding.code for finding in tried.shape.findings]
    assert not tried.shape.completed


def test_a_state_array_that_grows_is_the_workloads_fault_not_ours(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        def build(shape):
            global work, cache
            work, cache = array(), array()
            return step

        def state():
            return {"cache": cache}

        def between(i):
            global cache
            cache = array(0, cache.shape[0] + 1)
        """,
    )
    assert isinstance(tried.error, WorkloadError)
    assert "cache did not keep its shape" in str(tried.error)
    assert tried.error.where == tried.place("def state")
