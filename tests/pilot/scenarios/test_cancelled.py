"""Requests that are given up: what the next one must not notice, and what is said when it does."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lost_scenes import scene_of
from scenes import seen

from cudagraph_gate.graphs import GraphCache
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.pilot.scenarios.cancelled import (
    POINTS,
    CachedRequests,
    GivenUpError,
    Interrupted,
    late_work,
)
from cudagraph_gate.pilot.scenarios.scene import Scene

STATEFUL = """
def build(shape):
    work, total = array(), array()
    states["total"] = total

    def step(x):
        add(total, x)
        device.copy(work, total)
        return work

    return step

states = {}

def state():
    return states
"""
HIDDEN = (
    STATEFUL.replace("def state", "def hidden")
    + """
def state():
    device.fill(states["total"], 0)
    return {}
"""
)
"""What requests add up is not told, and begins anew with each trajectory: the normal path repeats itself."""
OWN = """
def build_graphed(shape):
    return {name}()

class Plain:
    def __call__(self, x):
        return step(x)

class Busy:
    def __init__(self):
        self.out, self.last = array(), None

    def __call__(self, x):
        if self.last is not None and not self.over():
            return self.out
        device.copy(self.out, step(x))
        self.last = device.current_stream().record()
        return self.out

    def over(self):
        try:
            self.last.elapsed_ns(self.last)
        except Exception:
            return False
        return True
"""


def test_the_next_request_is_right_wherever_the_last_one_was_given_up(tmp_path: Path) -> None:
    found = seen(tmp_path, "cancelled-request")
    assert (found.ended.status, found.ended.seen) == (
        GateStatus.PASS,
        "requests given up before the copy, between copy and replay and during the replay, directly and in a "
        "lease of a cache: the next request is right, from another thread as well, and no work is left over",
    )
    assert found.failed_proofs == []
    assert len(found.proofs) == 7


def test_state_that_is_named_is_no_obstacle(tmp_path: Path) -> None:
    found = seen(tmp_path, "cancelled-request", STATEFUL)
    assert (found.ended.status, found.failed_proofs) == (GateStatus.PASS, [])


def test_hidden_state_that_a_replay_has_moved_on_is_found(tmp_path: Path) -> None:
    found = seen(tmp_path, "cancelled-request", HIDDEN)
    assert (found.ended.status, found.ended.code) == (GateStatus.FAIL, Reason.WRONG_OUTPUT)
    assert found.ended.seen.startswith(
        "after requests given up during the replay the next one is wrong: request 0: output"
    )
    assert "state()" in found.ended.advice


# --- a path of the workload's own -------------------------------------------------------------------


def test_an_own_path_is_given_up_before_and_during(tmp_path: Path) -> None:
    found = seen(tmp_path, "cancelled-request", OWN.format(name="Plain"), method="own")
    assert (found.ended.status, found.ended.seen) == (
        GateStatus.PASS,
        "requests given up before it began and during its replay: the next request is right, and no work is "
        "left over",
    )
    assert found.failed_proofs == []


def test_an_own_path_that_answers_with_old_outputs_while_it_is_busy_is_found(tmp_path: Path) -> None:
    found = seen(tmp_path, "cancelled-request", OWN.format(name="Busy"), method="own")
    assert (found.ended.status, found.ended.code) == (GateStatus.FAIL, Reason.WRONG_OUTPUT)
    assert found.ended.seen.startswith(
        "after requests given up during its replay the next one is wrong: request 0: output"
    )


# --- the parts --------------------------------------------------------------------------------------


def test_the_device_is_still_at_work_when_the_next_request_is_enqueued(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, "cancelled-request")
    requests = CachedRequests(scene, GraphCache(capacity_entries=1))
    requests.serve(scene.input_sets[0])
    device, stream = scene.session.device, scene.session.adapter.current_stream()
    before = stream.record()
    with pytest.raises(GivenUpError):
        requests.give_up(POINTS["during the replay"], scene.input_sets[1])
    after, given_up_ns = stream.record(), device.clock_ns()
    device.synchronize()
    assert after.elapsed_ns(before) >= 1_800_000
    assert device.clock_ns() - given_up_ns > 1_700_000


def test_an_interruption_that_goes_lost_is_an_error_of_ours(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, "cancelled-request")
    with pytest.raises(RuntimeError, match="went lost"):
        Interrupted(scene, lambda _inputs: None, lambda inputs: inputs).give_up()


def test_work_that_goes_on_after_its_stream_is_found(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, "cancelled-request")
    device = scene.session.device
    array = device.array(np.zeros(8, np.float32))

    def write_late() -> None:
        time.sleep(0.01)
        device.fill(array, 1, device.create_stream())

    thread = threading.Thread(target=write_late)
    thread.start()
    found = late_work(scene, [array])
    thread.join()
    assert found is not None
    assert (found.status, found.code) == (GateStatus.FAIL, Reason.REPLAY_RACE)
    assert late_work(scene, [array]) is None


class Held(GraphCache):
    """Does not end the lease that an exception leaves."""

    @contextmanager
    def lease(self, *args: Any, **named: Any) -> Any:
        """A lease that stays."""
        leased = super().lease(*args, **named)
        self.kept = leased
        yield leased.__enter__()
        leased.__exit__(None, None, None)


class Fickle(GraphCache):
    """Drops a graph that an exception was raised beside."""

    @contextmanager
    def lease(self, *args: Any, **named: Any) -> Any:
        """Invalidated by the exception."""
        try:
            with super().lease(*args, **named) as graphed:
                yield graphed
        except GivenUpError:
            self.clear()
            raise


@pytest.mark.parametrize(
    ("kind", "code", "sentence"),
    [
        (Held, Reason.LIFETIME, "a request given up here still holds its lease"),
        (Fickle, Reason.CHURN, "a request given up here costs the cache its graph"),
    ],
)
def test_a_cache_that_an_exception_upsets_is_found(
    tmp_path: Path, kind: type[GraphCache], code: Reason, sentence: str
) -> None:
    requests = requests_with(scene_of(tmp_path, "cancelled-request"), kind)
    found = requests.complaint("here")
    assert found is not None
    assert (found.status, found.code, found.seen) == (GateStatus.FAIL, code, sentence)


def test_nothing_is_said_of_the_cache_as_it_is(tmp_path: Path) -> None:
    assert requests_with(scene_of(tmp_path, "cancelled-request"), GraphCache).complaint("here") is None


def requests_with(scene: Scene, kind: type[GraphCache]) -> CachedRequests:
    """After one request that was served, and one that was given up in its lease."""
    requests = CachedRequests(scene, kind(capacity_entries=1))
    requests.serve(scene.input_sets[0])
    with pytest.raises(GivenUpError):
        requests.give_up(POINTS["between copy and replay"], scene.input_sets[1])
    return requests
