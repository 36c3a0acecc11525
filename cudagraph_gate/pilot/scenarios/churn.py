"""Memory that is freed, handed out again and overwritten between replays.

A graph holds bare addresses. What it reads or writes must be held by somebody for as long as it lives; memory
that merely nobody else has taken yet looks right in every test that allocates nothing. Here all of it is
taken, by arrays of the workload's own sizes and of many others, which also show who writes to them.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any, Final

from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.blame import reason_code
from cudagraph_gate.pilot.correctness import Expectation, Start
from cudagraph_gate.pilot.describing import described
from cudagraph_gate.pilot.explaining import Case, explain
from cudagraph_gate.pilot.graph_path import GraphPath
from cudagraph_gate.pilot.own_path import PATH_MAKERS
from cudagraph_gate.pilot.scenarios.guards import Guards
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene, broke, held
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.records import Phase
from cudagraph_gate.workload.calls import error_text

ROUNDS: Final = 12
"""Trajectories, the memory taken anew before each: allocators hand out other blocks each time."""
_KEEP: Final = "keep every array that the graph reads or writes for as long as the graph lives"


def allocator_churn(scene: Scene) -> Outcome:
    """Overwrite what the capture was given, then take all memory that was freed, round after round."""
    example = scene.example
    path = scene.keep(PATH_MAKERS[scene.job.method](scene.session, example))
    if wrong := _wrong_at_once(scene, path):
        return wrong
    _overwrite(scene, example)
    if difference := scene.wrong(path.replay):
        return broke(
            Reason.LIFETIME,
            f"the graph reads the inputs that it was captured with: overwritten, it is wrong ({difference})",
            advice="read inputs from the step's arguments alone",
        )
    del example
    for number in range(ROUNDS):
        scene.announce(f"round {number + 1} of {ROUNDS}")
        if complaint := _round(scene, path, number):
            return complaint
    requests = ROUNDS * len(scene.expected.start.requests)
    return held(f"{requests} replays are right while all that was freed is reused and overwritten")


def _wrong_at_once(scene: Scene, path: GraphPath) -> Outcome | None:
    """What is wrong before anything else has allocated, and why; None: nothing."""
    session, expected = scene.session, scene.expected
    actual = correctness.follow(session, path.replay, expected.start)
    bad = [found for found in correctness.compare_paths(session, expected, actual) if not found.equal]
    if not bad:
        return None
    why = explain(Case(session, path, expected, actual, _nothing, _nothing))
    if why is None:
        return broke(Reason.WRONG_OUTPUT, f"the graph is wrong at once: {described(bad[0])}")
    return broke(why.code, f"{why.message} ({described(bad[0])})", call=why.call, advice=why.advice)


def _nothing(_request: int) -> None:
    """No churn."""


def _overwrite(scene: Scene, example: Inputs) -> None:
    """Another request's values, which any kernel can read without harm."""
    adapter = scene.session.adapter
    for array, other in zip(example, scene.input_sets[-1], strict=True):
        adapter.copy_into(array, other)
    scene.session.device.synchronize()


def _round(scene: Scene, path: GraphPath, number: int) -> Outcome | None:
    """One trajectory while everything free is taken; None: it was right, and nobody else's memory changed.

    Every other round gives the allocator's cached memory back to the device before. What is taken holds
    values of other requests first, later ones that no computation should meet.
    """
    session = scene.session
    gc.collect()
    if number % 2:
        session.adapter.release_cached()
    like = _sizes(session, scene.expected, path)
    guards = Guards(session, like, sizes=number > 0, poisoned=number > 1)
    try:
        difference, harmed = scene.wrong(path.replay), guards.harmed()
    except Exception as error:
        if reason_code(error, Phase.SCENARIO) is not Reason.CRASH:
            raise
        return _lost(f"the graph uses memory that is gone: {error_text(error)}")
    finally:
        guards.free()
    if difference:
        return _lost(f"replays are wrong once freed memory is reused: {difference}")
    if harmed:
        return _lost(f"replays write to memory that was freed: {harmed} arrays of others were overwritten")
    return None


def _lost(seen: str) -> Outcome:
    return broke(Reason.LIFETIME, seen, advice=_KEEP)


def _sizes(session: Session, expected: Expectation, path: GraphPath) -> Sequence[Any]:
    """Arrays of the sizes that the workload allocates: its inputs, its state, its outputs."""
    start: Start = expected.start
    outputs = correctness.device_arrays(session, getattr(path, "outputs", None))
    return [*outputs, *session.state().values(), *start.requests[-1]]
