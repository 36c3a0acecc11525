"""Inputs that do not fit and graphs of another topology: refused, and found where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from lost_scenes import scene_of
from scenes import seen

from cudagraph_gate.device.port import UpdateResult
from cudagraph_gate.graphs import GraphedStep, State
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.pilot.scenarios.misfits import Misfit, limits, misfits
from cudagraph_gate.pilot.scenarios.parameters import refused_topology, taken
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene

TWO_INPUTS = """
def build(shape):
    work = array()

    def step(x, y):
        device.copy(work, x)
        add(work, y)
        return work

    return step

def inputs(shape, seed):
    chance = np.random.default_rng(seed)
    return tuple(device.array(chance.random(N, dtype=np.float32)) for _ in range(2))
"""
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


def complaint(found: Outcome | None) -> Outcome:
    assert found is not None
    assert found.status is GateStatus.FAIL
    return found


# --- inputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "requests"), [("", 7), (TWO_INPUTS, 12)])
def test_each_wrong_input_of_a_healthy_workload_is_refused(tmp_path: Path, text: str, requests: int) -> None:
    found = seen(tmp_path, "wrong-inputs", text)
    assert (found.ended.status, found.failed_proofs) == (GateStatus.PASS, [])
    assert found.ended.seen == (
        f"{requests} requests are refused before anything is copied (count, shape, dtype, device, range); "
        "strides can't be wrong here; the next request is right"
    )


def test_inputs_that_may_not_change_are_not_asked_about(tmp_path: Path) -> None:
    found = seen(tmp_path, "wrong-inputs", "UPDATABLE = ()")
    assert (found.ended.status, found.ended.applies) == (GateStatus.PASS, False)


def test_a_graph_that_goes_wrong_after_a_refusal_is_found(tmp_path: Path) -> None:
    found = seen(tmp_path, "wrong-inputs", CHANGES_WITH_CAPTURES.format(right=1))
    assert (found.ended.status, found.ended.code) == (GateStatus.FAIL, Reason.WRONG_OUTPUT)
    assert found.ended.seen.startswith(
        "after 6 requests were refused the next one is wrong: request 0: output output differs"
    )


class Lenient(GraphedStep):
    """Checks nothing before it copies."""

    def copy_in(self, inputs: Sequence[Any]) -> None:
        for target, source in zip(self.variables, inputs, strict=False):
            self.adapter.copy_into(target, self._like(target, source))

    def _like(self, target: Any, _source: Any) -> Any:
        return self.adapter.static_like(target)


class Late(GraphedStep):
    """Copies each input before it looks at the next one."""

    def copy_in(self, inputs: Sequence[Any]) -> None:
        for target, source in zip(self.variables, inputs, strict=True):
            self.adapter.copy_into(target, source)


class Raising(GraphedStep):
    """Takes a wrong input for an inner error."""

    def copy_in(self, inputs: Sequence[Any]) -> None:
        raise RuntimeError("no idea")


class GivingUp(GraphedStep):
    """Loses its graph to a wrong input."""

    def copy_in(self, inputs: Sequence[Any]) -> None:
        self.invalidate()
        raise ValueError("does not fit")


def of_kind(scene: Scene, kind: str) -> list[Misfit]:
    session, inputs = scene.session, scene.input_sets[-1]
    found = [*misfits(session, inputs, limits(session, scene.input_sets))]
    return [misfit for misfit in found if misfit.kind == kind]


def defective(scene: Scene, kind: type[GraphedStep]) -> GraphedStep:
    made = kind(scene.session.adapter, scene.session.step, scene.example)
    scene.keep(made)
    return made.prepare(1)


@pytest.mark.parametrize(
    ("kind", "code", "sentence"),
    [
        (Lenient, Reason.WRONG_OUTPUT, "y of shape (1, 64) is taken without an error"),
        (
            Late,
            Reason.STATE_MUTATION,
            "y of shape (1, 64) is refused after inputs of its request were copied",
        ),
        (Raising, Reason.WORKLOAD, "y of shape (1, 64) is not refused as an input: RuntimeError: no idea"),
        (GivingUp, Reason.WRONG_OUTPUT, "after y of shape (1, 64) was refused the graph is fallback"),
    ],
)
def test_a_graphed_step_that_does_not_refuse_in_time_is_found(
    tmp_path: Path, kind: type[GraphedStep], code: Reason, sentence: str
) -> None:
    scene = scene_of(tmp_path, "wrong-inputs", TWO_INPUTS)
    wrong = [misfit for misfit in of_kind(scene, "shape") if misfit.what.startswith("y of shape (1")]
    found = complaint(taken(scene, defective(scene, kind), wrong))
    assert (found.code, found.seen) == (code, sentence)


def test_values_out_of_range_are_taken_where_no_rule_limits_them(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, "wrong-inputs")
    found = complaint(taken(scene, scene.unmade().prepare(1), of_kind(scene, "range")))
    assert found.code is Reason.WRONG_OUTPUT
    assert found.seen.startswith("x with a value outside [0.0")


# --- topology -------------------------------------------------------------------------------------


def test_an_update_to_another_topology_is_refused_by_name(tmp_path: Path) -> None:
    found = seen(tmp_path, "topology-change")
    assert (found.ended.status, found.failed_proofs) == (GateStatus.PASS, [])
    assert found.ended.seen == (
        "the update is refused (CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED), the old executable given up; "
        "the next graph is right"
    )


def test_a_next_graph_that_is_wrong_is_found(tmp_path: Path) -> None:
    found = seen(tmp_path, "topology-change", CHANGES_WITH_CAPTURES.format(right=2))
    assert (found.ended.status, found.ended.code) == (GateStatus.FAIL, Reason.WRONG_OUTPUT)
    assert "the old executable given up; the next graph is wrong: request 0" in found.ended.seen


REFUSED = UpdateResult(ok=False, result="REFUSED", node=3)


class Accepting(GraphedStep):
    """Believes that an update has worked."""

    def update(self) -> UpdateResult:
        return UpdateResult(ok=True, result="CU_GRAPH_EXEC_UPDATE_SUCCESS")


class GoingOn(GraphedStep):
    """Keeps the executable that was not updated."""

    def update(self) -> UpdateResult:
        return REFUSED


class Undead(GraphedStep):
    """Says that it has fallen back, and still launches."""

    def update(self) -> UpdateResult:
        self.state = State.FALLBACK
        return REFUSED


class Forgetting(GraphedStep):
    """Falls back to a step that does something else."""

    def update(self) -> UpdateResult:
        self.invalidate()
        return REFUSED

    def __call__(self, *inputs: Any) -> Any:
        return inputs[0]


@pytest.mark.parametrize(
    ("kind", "code", "sentence"),
    [
        (Accepting, Reason.WRONG_OUTPUT, "an update from 5 to 6 nodes is taken"),
        (GoingOn, Reason.LIFETIME, "after a refused update the graphed step is ready, not given up"),
        (Undead, Reason.LIFETIME, "after a refused update the old executable is launched again"),
        (Forgetting, Reason.WRONG_OUTPUT, "after a refused update the normal path goes wrong: request 0"),
    ],
)
def test_an_executable_that_outlives_a_refusal_is_found(
    tmp_path: Path, kind: type[GraphedStep], code: Reason, sentence: str
) -> None:
    scene = scene_of(tmp_path, "topology-change")
    found = complaint(refused_topology(scene, defective(scene, kind)))
    assert found.code is code
    assert found.seen.startswith(sentence)


def test_the_refusing_node_is_named_where_the_driver_names_it(tmp_path: Path) -> None:
    class Naming(GraphedStep):
        def update(self) -> UpdateResult:
            self.invalidate()
            return REFUSED

    scene = scene_of(tmp_path, "topology-change")
    assert refused_topology(scene, defective(scene, Naming)).seen.startswith(
        "the update is refused (REFUSED at node 3), the old executable given up"
    )


def test_a_step_that_returns_its_input_changed_in_place_refuses_misfits_too(tmp_path: Path) -> None:
    found = seen(
        tmp_path,
        "wrong-inputs",
        """
        def step(x):
            for k in range(4):
                add(x, k)
            return x
        """,
    )
    assert (found.ended.status, found.failed_proofs) == (GateStatus.PASS, [])
