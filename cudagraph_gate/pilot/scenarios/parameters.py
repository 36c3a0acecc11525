"""Faults of what changes between replays: inputs that don't fit the graph, a graph that no update takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from cudagraph_gate.errors import DeviceError
from cudagraph_gate.graphs import GraphedStep, InputRules, State
from cudagraph_gate.graphs.update import Bounds
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.correctness import device_arrays
from cudagraph_gate.pilot.digests import digests
from cudagraph_gate.pilot.scenarios.falling_back import blamed, held_if_usable, not_fallen_back
from cudagraph_gate.pilot.scenarios.misfits import KINDS, Misfit, limits, misfits
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene, broke, does_not_apply, held, undecided
from cudagraph_gate.records import Phase

WARM_UP: Final = 2
ADDED_BYTES: Final = 256
"""What the node fills that makes another topology."""
_HOW_TO_CHECK: Final = "check inputs against InputRules before they are copied"


# --- inputs ---------------------------------------------------------------------------------------


def wrong_inputs(scene: Scene) -> Outcome:
    """Requests with one thing wrong each, which must be refused before anything is copied or launched.

    Values out of range are put to a second graph, whose rules give limits: checking them takes another way.
    """
    session = scene.session
    if not any(session.updatable()):
        return does_not_apply("no input of the step may change between requests")
    ranges = limits(session, scene.input_sets)
    wrong = [*misfits(session, scene.input_sets[-1], ranges)]
    usual = scene.unmade()
    complaint = taken(scene, usual.prepare(WARM_UP), [each for each in wrong if each.kind != "range"])
    if complaint is None and ranges:
        complaint = taken(scene, _limited(scene, ranges).prepare(WARM_UP), wrong)
    return complaint or held(f"{_refused_kinds(wrong)}; the next request is right")


def _limited(scene: Scene, ranges: Mapping[str, Bounds]) -> GraphedStep:
    session, example = scene.session, scene.example
    names = [name for name, moves in zip(session.input_names, session.updatable(), strict=True) if moves]
    rules = InputRules.of(example, names=session.input_names, updatable=names, ranges=ranges)
    made = GraphedStep(session.adapter, session.step, example, rules=rules)
    scene.keep(made)
    return made


def taken(scene: Scene, graphed: GraphedStep, wrong: Sequence[Misfit]) -> Outcome | None:
    """The complaint about a graphed step that is ready: it takes one of these requests, or goes wrong then.

    None: it refuses each as it must, and serves the next request right.
    """
    _poison(scene, graphed)  # before the outputs are looked at: they may be the inputs, changed in place
    outputs = _digests_of_outputs(scene, graphed)
    for misfit in wrong:
        if complaint := _not_refused(scene, graphed, misfit):
            return complaint
    if _digests_of_outputs(scene, graphed) != outputs:
        return broke(Reason.WRONG_OUTPUT, "a request with inputs that do not fit was launched all the same")
    if difference := scene.wrong(graphed.replay):
        seen = f"after {len(wrong)} requests were refused the next one is wrong: {difference}"
        return broke(Reason.WRONG_OUTPUT, seen)
    return None


def _refused_kinds(wrong: Sequence[Misfit]) -> str:
    """``8 requests are refused … (count, shape); strides and range can't be wrong here``."""
    tried = [kind for kind in KINDS if any(misfit.kind == kind for misfit in wrong)]
    others = " and ".join(kind for kind in KINDS if kind not in tried)
    seen = f"{len(wrong)} requests are refused before anything is copied ({', '.join(tried)})"
    return f"{seen}; {others} can't be wrong here" if others else seen


def _not_refused(scene: Scene, graphed: GraphedStep, misfit: Misfit) -> Outcome | None:
    """The complaint about one request; None: it was refused as it must be."""
    before = _digests_of_inputs(scene, graphed)
    try:
        graphed.replay(misfit.inputs)
    except (ValueError, TypeError):
        pass
    except (Exception, SystemExit) as error:  # noqa: BLE001  (refused, but not as an input)
        return blamed(scene, error, Phase.SCENARIO, f"{misfit.what} is not refused as an input")
    else:
        return broke(Reason.WRONG_OUTPUT, f"{misfit.what} is taken without an error", advice=_HOW_TO_CHECK)
    if graphed.state is not State.READY:
        return broke(Reason.WRONG_OUTPUT, f"after {misfit.what} was refused the graph is {graphed.state}")
    if _digests_of_inputs(scene, graphed) != before:
        seen = f"{misfit.what} is refused after inputs of its request were copied"
        return broke(Reason.STATE_MUTATION, seen, advice=_HOW_TO_CHECK)
    return None


def _poison(scene: Scene, graphed: GraphedStep) -> None:
    """Whatever is copied in then shows."""
    for static in graphed.variables:
        scene.session.adapter.poison(static)


def _digests_of_inputs(scene: Scene, graphed: GraphedStep) -> dict[str, str]:
    scene.session.device.synchronize()
    return digests(scene.session.adapter, {str(place): each for place, each in enumerate(graphed.variables)})


def _digests_of_outputs(scene: Scene, graphed: GraphedStep) -> dict[str, str]:
    scene.session.device.synchronize()
    arrays = device_arrays(scene.session, graphed.outputs)
    return digests(scene.session.adapter, {str(place): each for place, each in enumerate(arrays)})


# --- topology -------------------------------------------------------------------------------------


def topology_change(scene: Scene) -> Outcome:
    """The step's graph gets one more node, and its executable, made before, is updated from it."""
    graphed = scene.unmade()
    graphed.prepare(WARM_UP)
    return refused_topology(scene, graphed)


def refused_topology(scene: Scene, graphed: GraphedStep) -> Outcome:
    """Whether a graphed step that is ready is given up when its executable can't take over its graph."""
    graph, scratch = graphed.graph, scene.session.device.empty((ADDED_BYTES,), np.uint8)
    assert graph is not None, "the step is ready"
    nodes = len(graph.nodes())
    try:
        graph.add_fill(scratch, 0)
    except DeviceError as error:
        return undecided(Reason.UNMEASURABLE, f"no node could be added to the captured graph: {error}")
    if len(graph.nodes()) != nodes + 1:
        return undecided(Reason.UNMEASURABLE, "the node that was added does not show in the graph")
    try:
        result = graphed.update()
    except DeviceError as error:
        seen = f"the update is refused ({error.code})"
    else:
        if result.ok:
            return broke(Reason.WRONG_OUTPUT, f"an update from {nodes} to {nodes + 1} nodes is taken")
        node = "" if result.node is None else f" at node {result.node}"
        seen = f"the update is refused ({result.result}{node})"
    if complaint := not_fallen_back(scene, graphed, "a refused update"):
        return complaint
    scratch.free()
    return held_if_usable(scene, f"{seen}, the old executable given up")
