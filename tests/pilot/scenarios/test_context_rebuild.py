"""A context that is made anew: what is still served of the old one, or wrong with the new one, is found."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from lost_scenes import scene_of
from scenes import seen

from cudagraph_gate.device import current_device
from cudagraph_gate.graphs import GraphCache, GraphedStep, State
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.pilot.scenarios import context_rebuild
from cudagraph_gate.pilot.scenarios.context_rebuild import NEW, OLD, Application, Context, complaints
from cudagraph_gate.pilot.scenarios.scene import Scene

FROM_THE_SECOND_ON = """
opened = vars(sys).setdefault("_contexts_of_this_test", [])

def build(shape):
    global work
    work = array()
    opened.append(1)
    return step

calls = 0
def step(x):
    global calls
    calls += 1
    device.copy(work, x)
    add(work, calls % 5 if len(opened) > {contexts} else 1)
    return work
"""
"""The host's count matters once so many contexts were opened: the scene's, the old one and the new one."""
KEPT = """
kept = vars(sys).setdefault("_kept_of_this_test", {})

def build(shape):
    if "work" not in kept:
        far = array(n=1 << 22)  # what follows lies where the next context has nothing
        kept["work"] = array()
    work = kept["work"]

    def step(x):
        device.copy(work, x)
        add(work, 1)
        return work

    return step
"""


REFUSING = """
def step(x):
    if device.current_stream().is_capturing:
        device.synchronize()
    device.copy(work, x)
    return work
"""


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the workloads here keep over their contexts is of one test."""
    monkeypatch.setattr(sys, "_contexts_of_this_test", [], raising=False)
    monkeypatch.setattr(sys, "_kept_of_this_test", {}, raising=False)


def test_the_old_contexts_graph_is_dropped_and_the_new_one_is_right(tmp_path: Path) -> None:
    found = seen(tmp_path, "context-rebuild")
    assert (found.ended.status, found.ended.seen) == (
        GateStatus.PASS,
        "a request to the old context is refused (CUDA_ERROR_DEINITIALIZED), its graph is dropped with its "
        "epoch, and the one made anew is right",
    )
    assert found.failed_proofs == []
    assert len(found.proofs) == 7


def test_the_scenes_device_is_current_again_afterwards(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, "context-rebuild")
    assert context_rebuild.context_rebuild(scene).status is GateStatus.PASS
    assert current_device() is scene.session.device


@pytest.mark.parametrize(("contexts", "epoch"), [(1, OLD), (2, NEW)])
def test_a_wrong_graph_of_either_context_is_found(tmp_path: Path, contexts: int, epoch: int) -> None:
    found = seen(tmp_path, "context-rebuild", FROM_THE_SECOND_ON.format(contexts=contexts))
    assert (found.ended.status, found.ended.code) == (GateStatus.FAIL, Reason.WRONG_OUTPUT)
    assert found.ended.seen.startswith(f"requests of epoch {epoch} go wrong: request ")


def test_a_workload_that_keeps_arrays_of_the_old_context_shows_nothing(tmp_path: Path) -> None:
    found = seen(tmp_path, "context-rebuild", KEPT)
    assert (found.ended.status, found.ended.code) == (GateStatus.UNKNOWN, Reason.WORKLOAD)
    assert found.ended.seen.startswith("the workload can't be built in a context made anew: ")


# --- only the epoch, as on a GPU ------------------------------------------------------------------


def test_where_the_context_is_shared_the_epoch_alone_is_counted_up(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, "context-rebuild")
    old, new = epochs(scene)
    application = Application.with_cache()
    assert application.complaint(old) is None
    assert list(complaints(application, old, new)) == []
    assert application.made[OLD][0].state is State.FALLBACK
    assert application.made[NEW][0].state is State.READY
    assert application.cache.statistics.captures == 2


def epochs(scene: Scene) -> tuple[Context, Context]:
    """Two epochs of the scene's own context."""
    made = [Context(epoch, scene.session, scene.expected, scene.example) for epoch in (OLD, NEW)]
    return made[0], made[1]


class Keeping(GraphCache):
    """Keeps the graphs of every epoch."""

    def invalidate_epoch(self, current: int) -> int:
        """Nothing is dropped."""
        return 0


class Dropping(GraphCache):
    """Drops the graphs of every epoch."""

    def invalidate_epoch(self, current: int) -> int:
        """Everything is dropped."""
        return self.clear()


class Blind(GraphCache):
    """Does not look at the epoch."""

    def lease(self, key: Any, make: Any, **others: Any) -> Any:
        """By the same key for all."""
        return super().lease("one for all", make, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "code", "sentence"),
    [
        (Keeping, Reason.LIFETIME, "the old epoch's graph is ready after it was invalidated"),
        (Dropping, Reason.CHURN, "the new epoch's graph was dropped together with the old one's"),
        (Blind, Reason.LIFETIME, "epoch 2 is served by a graph of another one"),
    ],
)
def test_a_cache_that_mixes_epochs_up_is_found(
    tmp_path: Path, kind: type[GraphCache], code: Reason, sentence: str
) -> None:
    old, new = epochs(scene_of(tmp_path, "context-rebuild"))
    application = Application.with_cache(kind(capacity_entries=4))
    assert application.complaint(old) is None
    found = next(complaints(application, old, new))
    assert (found.status, found.code, found.seen) == (GateStatus.FAIL, code, sentence)


def test_an_epoch_without_a_graph_is_found(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, "context-rebuild", REFUSING)
    found = Application.with_cache().complaint(epochs(scene)[0])
    assert found is not None
    assert (found.status, found.code) == (GateStatus.FAIL, Reason.NO_GRAPH_USED)
    assert found.seen.startswith("no graph could be made in epoch 1: CaptureError: cuCtxSynchronize failed")


def test_an_executable_that_is_launched_again_is_found(tmp_path: Path) -> None:
    old, new = epochs(scene_of(tmp_path, "context-rebuild"))
    application = Application.with_cache()
    assert application.complaint(old) is None
    request = application.request

    def also_the_old_one(context: Context, inputs: Any) -> Any:
        application.made[OLD][1].launches += context is new
        return request(context, inputs)

    application.request = also_the_old_one  # type: ignore[method-assign]
    (found,) = complaints(application, old, new)
    assert (found.code, found.seen) == (
        Reason.LIFETIME,
        "the old context's executable was launched again",
    )


def test_a_step_that_is_never_prepared_is_no_graph(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, "context-rebuild")
    application = Application.with_cache()
    assert application.complaint(epochs(scene)[0]) is None
    graphed, counted = application.made[OLD]
    assert isinstance(graphed, GraphedStep)
    assert counted.launches == 5  # one for each request of the trajectory
