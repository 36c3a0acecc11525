"""No device memory at capture, instantiation and the n-th instance: refused by name, or found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lost_scenes import scene_of
from scenes import seen

from cudagraph_gate.errors import DeviceError, device_error
from cudagraph_gate.graphs import GraphedStep
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.pilot.scenarios.ballast import Ballast
from cudagraph_gate.pilot.scenarios.out_of_memory import (
    Came,
    memory_error,
    refused_replay,
    while_full,
    wrong_afterwards,
    wrong_instance,
)
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene

REFUSED = "CUDA_ERROR_OUT_OF_MEMORY in"
CHANGES_WITH_CAPTURES = """
captures = 0

def step(x):
    global captures
    captures += device.current_stream().is_capturing
    device.copy(work, x)
    add(work, 100 if device.current_stream().is_capturing and captures > {right} else 1)
    return work
"""
"""Its first graphs are right, the others are not."""
ALLOCATES = """
def step(x):
    scratch = None if device.current_stream().is_capturing else array(1, 1 << 16)
    device.copy(work, x)
    add(work, 1)
    del scratch
    return work
"""
"""The normal path takes memory at each call."""
HIDES = """
def step(x):
    if device.memory_info().free_bytes < 4096:
        raise KeyError("no room")
    device.copy(work, x)
    add(work, 1)
    return work
"""


@pytest.mark.parametrize(
    ("scenario", "sentence"),
    [
        (
            "oom-at-capture",
            f"capture with the copies of its inputs is refused ({REFUSED} cuMemAlloc), the normal path goes "
            "on meanwhile; capture alone needs no device memory; the next graph is right",
        ),
        (
            "oom-at-instantiate",
            f"instantiation is refused ({REFUSED} cuGraphInstantiate), the normal path goes on meanwhile; "
            "the next graph is right",
        ),
        (
            "oom-at-instance",  # five nodes of 4 700 bytes, and an input of 256
            f"instance 4 of 23 KiB each is refused ({REFUSED} cuGraphInstantiate); all before it replay with "
            "the device full and are right; the next graph is right",
        ),
    ],
)
def test_a_healthy_workload_stands_it(tmp_path: Path, scenario: str, sentence: str) -> None:
    found = seen(tmp_path, scenario)
    assert (found.ended.status, found.ended.seen) == (GateStatus.PASS, sentence)
    assert found.failed_proofs == []


def test_a_normal_path_that_needs_memory_itself_is_not_blamed(tmp_path: Path) -> None:
    found = seen(tmp_path, "oom-at-instantiate", ALLOCATES)
    assert (found.ended.status, found.failed_proofs) == (GateStatus.PASS, [])
    assert "the normal path, too, needs memory" in found.ended.seen


# --- workloads that do not stand it -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "right", "sentence"),
    [
        ("oom-at-capture", 1, "a graph made with device memory full is wrong: request 0"),
        ("oom-at-capture", 2, "the next graph is wrong: request 0"),
        ("oom-at-instantiate", 2, "the next graph is wrong: request 0"),
        ("oom-at-instance", 2, "instance 2 of 3 goes wrong: request 0"),
    ],
)
def test_a_graph_that_is_wrong_is_found(tmp_path: Path, scenario: str, right: int, sentence: str) -> None:
    found = seen(tmp_path, scenario, CHANGES_WITH_CAPTURES.format(right=right))
    assert (found.ended.status, found.ended.code) == (GateStatus.FAIL, Reason.WRONG_OUTPUT)
    assert sentence in found.ended.seen


def test_a_want_of_memory_that_is_called_otherwise_is_found(tmp_path: Path) -> None:
    found = seen(tmp_path, "oom-at-capture", HIDES)
    assert (found.ended.status, found.ended.code) == (GateStatus.FAIL, Reason.WORKLOAD)
    assert found.ended.seen.endswith("with device memory full: KeyError: 'no room'")
    assert found.ended.where.startswith("model.py:")


# --- graphed steps that do not stand it -------------------------------------------------------------


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return scene_of(tmp_path, "oom-at-instance")


def ready(scene: Scene, kind: type[GraphedStep] = GraphedStep) -> GraphedStep:
    made = kind(scene.session.adapter, scene.session.step, scene.example)
    scene.keep(made)
    return made.prepare(1)


class Needy(GraphedStep):
    """Takes memory at each replay."""

    def copy_in(self, inputs: Sequence[Any]) -> None:
        super().copy_in([self.adapter.static_like(value) for value in inputs])


class Stale(GraphedStep):
    """Forgets to copy."""

    def copy_in(self, inputs: Sequence[Any]) -> None:
        """Nothing."""


def test_memory_that_came_free_meanwhile_leaves_it_undecided(scene: Scene) -> None:
    graphed, spare = ready(scene), scene.example
    with Ballast(scene.session) as ballast:
        ballast.fill()
        came = while_full(scene, ballast, graphed, [("nothing", ballast.free)], spare)
    assert isinstance(came, Outcome)
    assert (came.status, came.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)


def test_a_graph_that_survives_a_refusal_is_found(scene: Scene) -> None:
    graphed, spare = ready(scene), scene.example
    with Ballast(scene.session) as ballast:
        ballast.fill()
        steps = [("allocation", lambda: scene.session.device.empty((4_096,), np.uint8))]
        came = while_full(scene, ballast, graphed, steps, spare)
    assert came == Came(
        True, f"allocation is refused ({REFUSED} cuMemAlloc), the normal path goes on meanwhile"
    )
    found = wrong_afterwards(scene, graphed, came)
    assert found is not None
    assert found.code is Reason.LIFETIME
    assert found.seen == "after a refusal for want of memory the graphed step is ready, not given up"


def test_an_instance_that_needs_memory_to_replay_is_found(scene: Scene) -> None:
    instances, spare = [ready(scene), ready(scene, Needy)], scene.example
    assert refused_replay(scene, instances, spare) is None
    with Ballast(scene.session) as ballast:
        ballast.fill()
        found = refused_replay(scene, instances, spare)
    assert found is not None
    assert found.code is Reason.MEMORY
    assert found.seen == (
        "a replay of instance 2, which had replayed before, is refused when device memory is full "
        f"({REFUSED} cuMemAlloc)"
    )


def test_the_instance_that_goes_wrong_is_named(scene: Scene) -> None:
    healthy = [ready(scene), ready(scene)]
    assert wrong_instance(scene, healthy) is None
    found = wrong_instance(scene, [*healthy, ready(scene, Stale)])
    assert found is not None
    assert found.code is Reason.WRONG_OUTPUT
    assert found.seen.startswith("instance 3 of 3 goes wrong: request")


# --- names ------------------------------------------------------------------------------------------


class OutOfMemoryError(RuntimeError):
    """As torch's and CuPy's are called."""


def raised(error: Exception, cause: Exception) -> Exception:
    try:
        raise error from cause
    except Exception as caught:  # noqa: BLE001  (any kind is passed in)
        return caught


DRIVERS = device_error("CUDA_ERROR_OUT_OF_MEMORY", "cuGraphLaunch")


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (DRIVERS, f"{REFUSED} cuGraphLaunch"),
        (raised(RuntimeError("the step failed"), DRIVERS), f"{REFUSED} cuGraphLaunch"),
        (
            OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB."),
            "OutOfMemoryError: CUDA out of memory",
        ),
        (
            RuntimeError("CUDA error: out of memory\nFor debugging"),
            "RuntimeError: CUDA error: out of memory",
        ),
        (
            RuntimeError("[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY"),
            "RuntimeError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
        ),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate",
        ),
        (DeviceError("CUDA_ERROR_INVALID_VALUE", "cuGraphLaunch"), ""),
        (ValueError("memory"), ""),
        (None, ""),
    ],
)
def test_the_want_of_memory_is_known_by_its_names(error: Exception | None, name: str) -> None:
    assert memory_error(error) == name
