"""Memory over time: where an own path's inputs lie, and what ``between`` does among the replays."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pilot_workloads import line_of
from soaked import ARRAY_BYTES, OWN, Soaked

from cudagraph_gate.gates.memory import Course, memory_checks
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.records import Phase


@pytest.fixture(autouse=True)
def _import_path_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # loading a workload adds its folder


BY_ADDRESS = """
graphs = {}

def build_graphed(shape):
    def path(x):
        if x.pointer not in graphs:
            graphs[x.pointer] = array()
        return step(x)
    return path
"""
KEEPS_INPUTS = """
kept = []

def build_graphed(shape):
    def path(x):
        kept.append(x)
        return step(x)
    return path
"""


def test_an_own_path_that_makes_something_for_each_address_leaks(tmp_path: Path) -> None:
    soaked = Soaked(tmp_path, BY_ADDRESS, method="own")
    course, per_replay = soaked.course("replays")
    assert course is Course.LEAK
    assert per_replay >= ARRAY_BYTES / 2, "every other replay has a new address at least"
    assert soaked.series["replays"].counts[-1] == 150, "new ones come up to the last point"


def test_an_own_path_that_keeps_its_inputs_leaks_them(tmp_path: Path) -> None:
    soaked = Soaked(tmp_path, KEEPS_INPUTS, method="own")
    course, per_replay = soaked.course("replays")
    assert course is Course.LEAK
    assert per_replay == pytest.approx(ARRAY_BYTES / 2, rel=0.2), "every other input is ours and held anyway"


def test_what_is_held_for_an_own_path_is_no_growth_of_its_own_and_freed(tmp_path: Path) -> None:
    ending = "free = []\n\ndef teardown():\n    free.append(device.memory_info().free_bytes)\n"
    soaked = Soaked(tmp_path, OWN.format(act="pass") + ending, method="own")
    readings = soaked.series["replays"].device_used_bytes
    assert len(set(readings)) == 1
    held_bytes = 30 * 5 * ARRAY_BYTES  # one input for each replay that there may be
    (free_bytes,) = soaked.loaded.workload.module.free
    total_bytes = soaked.loaded.device.memory_info().total_bytes
    assert free_bytes - (total_bytes - readings[-1]) >= held_bytes


# --- between requests ---------------------------------------------------------------------------------

SWAPS = """
weights = array(1)
seen = []

def step(x):
    device.copy(work, x)
    add(work, weights)
    return work

def between(i):
    global weights
    seen.append(i)
    if i == {at}:
        {change}
"""
RELOADED = "device.copy(weights, array(2))"
REPLACED = "weights = array(2)"


def test_weights_that_are_replaced_during_the_replays_are_found(tmp_path: Path) -> None:
    soaked = Soaked(tmp_path, SWAPS.format(at=20, change=REPLACED))
    found = soaked.finding
    assert (found.code, found.phase, found.blocks) == (Reason.UNSTABLE_ADDRESS, Phase.MEMORY, True)
    assert found.message.startswith("after between(0) to between(27) the graph path gives other outputs than")
    assert found.where == f"model.py:{line_of(soaked.path, 'def between')}"
    assert "let between change weights, buffers and caches in place" in found.advice
    checks = memory_checks(soaked.trial, Policy(), required=True)
    assert [check.code for check in checks if check.status is GateStatus.FAIL] == [Reason.UNSTABLE_ADDRESS]


def test_state_that_is_replaced_during_the_replays_is_named(tmp_path: Path) -> None:
    declared = "\ndef state():\n    return {'weights': weights}\n"
    soaked = Soaked(tmp_path, SWAPS.format(at=20, change="weights = array(1)") + declared)
    assert soaked.finding.code is Reason.UNSTABLE_ADDRESS
    assert soaked.finding.message.startswith(
        "state weights lies elsewhere after between(0) to between(27) than"
    )


@pytest.mark.parametrize("method", ["capture", "own"])
def test_weights_that_are_reloaded_in_place_hold(tmp_path: Path, method: Any) -> None:
    text = SWAPS.format(at=20, change=RELOADED) + (OWN.format(act="pass") if method == "own" else "")
    soaked = Soaked(tmp_path, text, method=method)
    assert soaked.trial.findings == ()
    assert soaked.course("replays") == (Course.FLAT, 0.0)


def test_an_own_path_that_does_not_notice_replaced_weights_is_found(tmp_path: Path) -> None:
    graphed = """
old = weights

def build_graphed(shape):
    def path(x):
        device.copy(work, x)
        add(work, old)
        return work
    return path
"""
    soaked = Soaked(tmp_path, SWAPS.format(at=20, change=REPLACED) + graphed, method="own")
    assert (soaked.finding.code, soaked.finding.method) == (Reason.UNSTABLE_ADDRESS, "own")


def test_a_failing_between_is_the_workloads_fault(tmp_path: Path) -> None:
    soaked = Soaked(tmp_path, SWAPS.format(at=20, change="raise ValueError('no such file')"))
    assert str(soaked.error).startswith("model.py:")
    assert (soaked.finding.code, soaked.finding.message) == (
        Reason.WORKLOAD,
        "between(20) raised ValueError: no such file",
    )
    assert soaked.finding.where == f"model.py:{line_of(soaked.path, 'no such file')}"


def test_a_slow_between_leaves_the_replays_most_of_their_time(tmp_path: Path) -> None:
    soaked = Soaked(tmp_path, "def between(i):\n    time.sleep(0.01)\n")
    assert soaked.series["replays"].counts == tuple(range(0, 51, 5))
    assert soaked.course("replays") == (Course.FLAT, 0.0)


def test_a_normal_path_that_no_longer_repeats_itself_decides_nothing(tmp_path: Path) -> None:
    soaked = Soaked(
        tmp_path,
        """
        calls = []

        def step(x):
            if not device.current_stream().is_capturing and len(graphed) > 1:
                calls.append(1)
            device.copy(work, x)
            add(work, len(calls))
            return work

        graphed = []
        def between(i):
            if i > 20:
                graphed.append(i)

        def build_graphed(shape):
            return step
        """,
        method="own",
    )
    assert soaked.finding.code is Reason.UNMEASURABLE
    assert "the normal path does not repeat itself" in soaked.finding.message
