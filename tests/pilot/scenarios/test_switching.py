"""Models and versions that take turns: healthy ones hold, shared buffers and forgetful caches do not."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from caches import ForgetfulOf
from scenes import seen, set_scene

from cudagraph_gate.graphs import GraphCache, GraphKey
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.pilot.scenarios.switching import switch, upgrade

TEXTS = [field.name for field in fields(GraphKey) if field.type == "str"]


def test_a_second_build_and_back_hold(tmp_path: Path) -> None:
    found = seen(tmp_path, "model-switch")
    assert (found.ended.status, found.failed_proofs) == (GateStatus.PASS, [])
    assert found.ended.seen == "a second build and back: each was served by its own graph, kept meanwhile"


def test_a_build_that_overwrites_the_weights_of_the_one_before_takes_its_place(tmp_path: Path) -> None:
    found = seen(
        tmp_path,
        "model-switch",
        """
        weights = array()
        builds = 0

        def build(shape):
            global builds
            builds += 1
            work, copy = array(), array(builds)
            device.copy(weights, copy)
            device.synchronize()

            def step(x):
                device.copy(work, x)
                device.launch(PLUS, LAUNCH, (work, weights, np.int32(N)))
                return work

            return step

        def _plus(shape, x, y, n):
            x[:n] += y[:n]

        PLUS = Kernel("plus", "", _plus, 2_000)
        """,
    )
    # Its normal path is not what it was either: no graph is to blame, and the report says what happened.
    assert "takes the first model's place" in found.ended.seen or found.ended.status is GateStatus.FAIL


def test_a_cache_that_forgets_the_model_is_found(tmp_path: Path) -> None:
    scene = set_scene(tmp_path, "model-switch")
    outcome = switch(scene, ForgetfulOf("model_version", capacity_entries=3))
    assert (outcome.status, outcome.code) == (GateStatus.FAIL, Reason.WRONG_OUTPUT)
    assert "another graph was served than the one that was made for the model" in outcome.seen


def test_every_component_of_the_key_counts(tmp_path: Path) -> None:
    found = seen(tmp_path, "version-upgrade")
    count = len(fields(GraphKey))
    assert found.ended.status is GateStatus.PASS
    assert found.ended.seen == f"{count} components changed: each got a graph of its own, the old one stayed"


@pytest.mark.parametrize("component", [*TEXTS, "context_epoch"])
def test_a_cache_that_forgets_a_component_is_found(tmp_path: Path, component: str) -> None:
    scene = set_scene(tmp_path, "version-upgrade")
    outcome = upgrade(scene, ForgetfulOf(component, capacity_entries=20))
    assert (outcome.status, outcome.code) == (GateStatus.FAIL, Reason.WRONG_OUTPUT)
    name = component.replace("_", " ")
    assert outcome.seen == f"another {name} in the key is answered with the old graph"


def test_a_cache_that_is_too_small_drives_the_old_graph_out(tmp_path: Path) -> None:
    outcome = upgrade(set_scene(tmp_path, "version-upgrade"), GraphCache(capacity_entries=1))
    assert (outcome.status, outcome.code) == (GateStatus.FAIL, Reason.CHURN)
