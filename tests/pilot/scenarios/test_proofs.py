"""The proofs after a fault: each fails for what it is there to find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from scenes import set_scene

from cudagraph_gate.device.simulated import Fault
from cudagraph_gate.errors import CaptureError, StickyError
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.pilot.scenarios.proofs import SLACK_BYTES, Baseline, proofs
from cudagraph_gate.pilot.scenarios.scene import Scene
from cudagraph_gate.records import Proof

Damage = Callable[[Scene, Baseline], object]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return set_scene(tmp_path, "capture-failure")


def after(scene: Scene, damage: Damage) -> dict[str, Proof]:
    """The proofs that do not hold once ``damage`` was done."""
    before = Baseline.of(scene)
    kept = damage(scene, before)
    found = {proof.name: proof for proof in proofs(scene, before) if proof.status is not GateStatus.PASS}
    before.end()
    del kept
    return found


def test_nothing_is_found_where_nothing_was_done(scene: Scene) -> None:
    assert after(scene, lambda _scene, _before: None) == {}


def test_a_stream_left_capturing_is_found(scene: Scene) -> None:
    def capture(scene: Scene, before: Baseline) -> None:
        scene.session.device.begin_capture(before.stream)

    found = after(scene, capture)
    assert found["nothing captures"].code is Reason.CAPTURE_ILLEGAL
    assert found["nothing captures"].detail == "a stream still captures"
    with pytest.raises(CaptureError):  # the proofs after it have invalidated it
        scene.session.device.end_capture(scene.session.adapter.current_stream())


def test_another_streams_capture_shows_when_the_device_synchronises(scene: Scene) -> None:
    device, stream = scene.session.device, scene.session.device.create_stream()
    found = after(scene, lambda _scene, _before: device.begin_capture(stream))
    assert "cuCtxSynchronize" in found["nothing captures"].detail


def test_another_current_stream_is_found(scene: Scene) -> None:
    device = scene.session.device
    chosen = device.use_stream(device.create_stream())
    found = after(scene, lambda _scene, _before: chosen.__enter__())
    assert found["current stream"].detail == "another stream is current than before"
    chosen.__exit__(None, None, None)


def test_a_normal_path_that_gives_other_outputs_is_found(scene: Scene) -> None:
    def damage(scene: Scene, _before: Baseline) -> None:
        for values in scene.expected.start.requests[:1]:
            scene.session.device.fill(values[0], 0)

    found = after(scene, damage)
    assert found["normal path"].code is Reason.WRONG_OUTPUT
    assert "request 0: output" in found["normal path"].detail


def test_an_overwritten_canary_is_found(scene: Scene) -> None:
    def damage(scene: Scene, before: Baseline) -> None:
        scene.session.device.fill(before.canaries._arrays[3], 0)

    assert after(scene, damage)["canaries"].detail.startswith("1 array")


def test_memory_that_is_not_given_back_is_found(scene: Scene) -> None:
    def leak(scene: Scene, _before: Baseline) -> object:
        return scene.session.device.empty((SLACK_BYTES + 256,), "u1")

    found = after(scene, leak)
    assert found["memory"].code is Reason.MEMORY_GROWTH
    assert found["memory"].detail.startswith("+32.0 MiB")


@pytest.mark.parametrize(("each_time", "holds"), [(True, False), (False, True)])
def test_what_is_taken_once_is_told_from_what_every_fault_takes(
    scene: Scene, each_time: bool, holds: bool
) -> None:
    kept = []

    def fault() -> None:
        if each_time or not kept:
            kept.append(scene.session.device.empty((SLACK_BYTES + 256,), "u1"))

    before = Baseline.of(scene)
    fault()
    found = {proof.name: proof for proof in proofs(scene, before, fault)}["memory"]
    before.end()
    assert found.status is (GateStatus.PASS if holds else GateStatus.FAIL)
    if holds:
        seen = "+32.0 MiB at the first time, +0.0 MiB when the fault is repeated"
        assert found.detail == f"no growth with every fault: {seen}"


def test_a_graph_that_is_still_there_is_given_up_before_memory_is_read(scene: Scene) -> None:
    assert after(scene, lambda scene, _before: scene.graph()) == {}


def test_a_lost_device_fails_every_proof_that_needs_it(scene: Scene) -> None:
    def lose(scene: Scene, _before: Baseline) -> None:
        scene.session.device.inject(Fault("illegal_address"))  # type: ignore[attr-defined]
        with pytest.raises(StickyError):
            scene.session.step(*scene.input_sets[0])

    found = after(scene, lose)
    assert {"nothing captures", "normal path", "canaries", "other threads", "memory"} <= found.keys()
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in found["other threads"].detail
