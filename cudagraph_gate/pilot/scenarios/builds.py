"""Further builds of the workload beside the scene's own, and the scene put right after them.

What a build leaves in the workload's module (a global model, the arrays behind ``state()``) is often replaced
by the next build. A scenario that made further builds therefore looks whether the scene's model still is what
it was, and builds it once more where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudagraph_gate.graphs import GraphKey
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.comparing import Moment, Trajectory
from cudagraph_gate.pilot.correctness import Expectation, Start
from cudagraph_gate.pilot.describing import first_difference, first_unequal
from cudagraph_gate.pilot.digests import final_state
from cudagraph_gate.pilot.instance_set import Arrangement, Instance, InstanceSet, prepare, step, submit
from cudagraph_gate.pilot.jobs import RungJob
from cudagraph_gate.pilot.memory import Growth, MemoryReading
from cudagraph_gate.pilot.model_versions import graph_key
from cudagraph_gate.pilot.scenarios.proofs import SLACK_BYTES
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene
from cudagraph_gate.pilot.session import Session, opened
from cudagraph_gate.workload import model_version


@dataclass(frozen=True)
class Model:
    """One build of the workload, and what its normal path gives."""

    session: Session
    expected: Expectation

    @classmethod
    def of(cls, scene: Scene) -> Model:
        """The scene's own."""
        return cls(scene.session, scene.expected)

    @classmethod
    def built(cls, scene: Scene, shape: str) -> Model:
        """A further build. Raises what the workload or the device raises."""
        loaded = replace(scene.loaded, shapes=scene.loaded.workload.shapes)
        session = opened(loaded, shape, scene.job.seed)
        sets = session.input_sets(scene.job.seed)
        return cls(session, correctness.expect(session, session.baked(sets, sets[0])))

    def key(self, **fields: Any) -> GraphKey:
        """The key under which an application keeps its graph; ``fields`` replace some of it."""
        return replace(_key(self), **fields)

    def wrong(self, step: correctness.Step) -> str:
        """The first difference of what ``step`` serves from the normal path; empty: right."""
        return first_difference(self.session, self.expected, step)

    def intact(self) -> bool:
        """Whether its normal path still gives what it gave: another build may have replaced what it uses."""
        try:
            return not self.wrong(self.session.call)
        except Exception:  # noqa: BLE001  (that it can't be run any more is an answer; a lost device shows next)
            return False

    def with_state(self, held: Mapping[str, Any] | None) -> Model:
        """The same with these arrays as its state, whatever ``state()`` names by now; None: as it is."""
        if held is None:
            return self
        workload = replace(self.session.workload, state=lambda: dict(held))
        return replace(self, session=replace(self.session, workload=workload))

    def named_state(self) -> Mapping[str, Any] | None:
        """What the workload's ``state()`` names now; None where it declares none."""
        return self.session.state() if self.session.workload.state is not None else None


def _key(model: Model) -> GraphKey:
    session = model.session
    try:
        return graph_key(session, model.expected.start.requests[0])
    except TypeError:  # an input that tells no shape: each graph has a cache or a version of its own here
        version = model_version(session.workload) or ""
        return GraphKey(model_version=version, shape=(), dtype=(), device=session.device.name)


def with_further_builds(scene: Scene, attack: Callable[[Scene], Outcome]) -> Outcome:
    """What ``attack`` says, which makes further builds and drops them; the scene is put right afterwards.

    Raises what ``attack`` raises, or the building.
    """
    before = scene.memory()
    outcome = attack(scene)
    scene.release()
    put_right(scene, before)
    return outcome


def put_right(scene: Scene, before: MemoryReading | None = None) -> None:
    """Build the scene's model once more if its normal path is not as it was, or memory not as ``before``.

    The module then refers to one of the further builds: now to the scene's again, and to that alone.
    """
    kept = before is not None and Growth.between(before, scene.memory()).arrays > SLACK_BYTES // 2
    if kept or not Model.of(scene).intact():
        scene.announce("building once more")
        scene.session = opened(scene.loaded, scene.job.shape, scene.job.seed)
        scene.expected = correctness.expect(scene.session, scene.input_sets)


# --- what may run at the same time ----------------------------------------------------------------


@dataclass(frozen=True)
class Apart:
    """Models whose requests may run at the same time, or the scene's alone where they may not."""

    models: tuple[Model, ...]
    overlap: bool
    why: str = ""
    """Why requests may not overlap."""


def instances(scene: Scene) -> InstanceSet:
    """Several instances as rung 4 makes and checks them; release them in any case."""
    job = scene.job
    asked = RungJob(
        kind="instances",
        folder=job.folder,
        workload=job.workload,
        device=job.device,
        shapes=job.shapes,
        shape=job.shape,
        method=job.method,
        seed=job.seed,
    )
    return prepare(scene.loaded, asked, scene.announce)


def apart(scene: Scene) -> Apart:
    """Which builds an application with several threads would use, without any graphs of them yet.

    Both paths must leave each other alone: builds that share a buffer of their module have graphs that do,
    and normal paths that do not. Raises what the workload or the device raised.
    """
    made = instances(scene)
    made.release()
    why = made.note or made.checked.detail
    if not made.checked.wrong and made.arrangement is not Arrangement.TURNS:
        why = _disturbed(made.instances)
        if not why:
            return Apart(tuple(Model(each.session, each.expected) for each in made.instances), overlap=True)
    del made
    put_right(scene)
    return Apart((Model.of(scene),), overlap=False, why=why)


def _disturbed(made: Sequence[Instance]) -> str:
    """How normal paths that run at the same time disturb each other; empty: they do not."""
    for each in made:
        correctness.restore(each.session, each.expected.start)
    rounds = []
    for requests in zip(*(each.expected.start.requests for each in made), strict=True):
        pairs = zip(made, requests, strict=True)
        given = [tuple(map(each.session.adapter.static_like, inputs)) for each, inputs in pairs]
        made[0].session.device.synchronize()
        answers = zip(made, submit(made, given, step), strict=True)
        rounds.append([moment_of(each.session, each.expected, outputs) for each, outputs in answers])
    for each, moments in zip(made, zip(*rounds, strict=True), strict=True):
        actual = finished(each.session, each.expected.start.state, moments)
        if difference := first_unequal(each.session, each.expected, actual):
            return f"normal paths that run at a time disturb each other: {difference}"
    return ""


def moment_of(session: Session, expected: Expectation, outputs: Any) -> Moment:
    """Outputs and state after a request, read as on the normal path: nothing is restored for it."""
    now = Start(
        requests=[()],
        state={},
        random=session.adapter.random_state(session.step),
        changing=expected.start.changing,
    )
    return correctness.follow(session, lambda _none: outputs, now, alone=True).moments[0]


def finished(session: Session, start: Mapping[str, Any], moments: Sequence[Moment]) -> Trajectory:
    """A trajectory that ends here; ``start`` is the state that it began with."""
    return Trajectory(tuple(moments), final_state(session, start))
