"""Faults that equal outputs hide, and outputs that must not be taken for faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from pilot_workloads import Tried, found, noted, try_here, unequal

from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.model import Counts, Reason
from cudagraph_gate.records import Phase


def agreed(tried: Tried) -> bool:
    """Whether every comparison holds."""
    return all(comparison.equal for comparison in tried.shape.comparisons)


# --- effects on the caller's inputs -----------------------------------------------------------------

WITH_CACHE = """
        def inputs(shape, seed):
            return device.array(np.random.default_rng(seed).random(N, dtype=np.float32)), array()

        def step(x, cache):
            device.copy(work, x)
            add(cache, x)
            return {returned}
        """


def test_an_input_that_is_changed_and_not_returned_is_lost(tmp_path: Path) -> None:
    tried = try_here(tmp_path, WITH_CACHE.format(returned="work"))
    assert found(tried) == [(Phase.TRAJECTORY, Reason.STATE_MUTATION)]
    assert any("changes input cache in place" in finding.message for finding in tried.shape.findings)
    assert not tried.shape.completed


def test_an_input_that_is_changed_and_returned_is_an_output(tmp_path: Path) -> None:
    tried = try_here(tmp_path, WITH_CACHE.format(returned="work, cache"))
    assert (found(tried), tried.shape.completed) == ([], True)
    assert (Phase.TRAJECTORY, Reason.LIFETIME) in noted(tried)
    assert "overwrites output 1 at a later request" in tried.shape.findings[-1].message


# --- requests that show nothing ---------------------------------------------------------------------

SAME_INPUTS = "def inputs(shape, seed):\n    return array(1)"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SAME_INPUTS, "ignores its inputs"),
        ("def step(x):\n    device.copy(work, array_of_3)\n    return work", "ignores its inputs"),
        ("def step(x):\n    device.copy(work, nan)\n    return work", "NaN throughout"),
        ("def step(x):\n    device.copy(work, x)\n    return empty", "no output holds a value"),
    ],
    ids=["same-inputs", "ignored-inputs", "nan", "empty"],
)
def test_agreement_that_shows_nothing_is_undecided(tmp_path: Path, text: str, why: str) -> None:
    arrays = "array_of_3, nan, empty = array(3), array(float('nan')), array(0, 0)\n"
    tried = try_here(tmp_path, arrays + text)
    assert agreed(tried)
    assert found(tried) == [(Phase.TRAJECTORY, Reason.UNMEASURABLE)]
    assert why in next(finding.message for finding in tried.shape.findings if finding.blocks)


def test_inputs_that_never_vary_are_noted_before_any_graph_is_made(tmp_path: Path) -> None:
    tried = try_here(tmp_path, SAME_INPUTS)
    assert noted(tried) == [(Phase.EXPECTED, Reason.UNMEASURABLE)]
    assert "input x always holds the same values for every seed" in tried.shape.findings[0].message


# --- host values, escaped copies --------------------------------------------------------------------


def test_a_host_object_that_the_step_writes_on_in_is_copied(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        calls = bytearray(1)
        def step(x):
            calls[0] = calls[0] % 7 + 1
            device.copy(work, x)
            return work, calls
        """,
    )
    assert unequal(tried, "outputs") == [1, 2, 3, 4, 5, 6]  # call 19 and the capture's, 33, are alike


def test_a_copy_that_ran_elsewhere_is_counted(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        log, side = array(), device.create_stream()
        def step(x):
            device.copy(work, x)
            device.copy(log, x, side)
            return work
        """,
    )
    nodes = tried.shape.nodes
    assert nodes is not None
    assert (nodes.kinds, nodes.normal_copies) == ({"memcpy": 1}, Counts(by_name={"memcpy": 2}))


# --- constants that are returned --------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        """
        table = array(7)
        def state():
            return {"table": table}
        def step(x):
            device.copy(work, x)
            add(work, table)
            return work, table
        """,
        """
        UPDATABLE = ["x"]
        def step(x, w):
            device.copy(work, x)
            add(work, w)
            return work, w
        def inputs(shape, seed):
            return device.array(np.random.default_rng(seed).random(N, dtype=np.float32)), array(2)
        """,
    ],
    ids=["state", "input"],
)
def test_a_constant_that_is_returned_survives_the_poison(tmp_path: Path, text: str) -> None:
    tried = try_here(tmp_path, text)
    assert (found(tried), agreed(tried), tried.shape.completed) == ([], True, True)


# --- the workload's own check -----------------------------------------------------------------------


def test_a_check_that_answers_with_an_array_is_the_workloads_fault(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        def check(expected, actual):
            return expected.to_host() == actual.to_host()
        """,
    )
    assert isinstance(tried.error, WorkloadError)
    assert "neither true nor false" in tried.error.what
    assert tried.error.where == tried.place("def check")
