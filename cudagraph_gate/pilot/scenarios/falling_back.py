"""What must hold of a step whose graph was refused: the normal path serves, and another graph can be made."""

from __future__ import annotations

from cudagraph_gate.errors import DeviceError
from cudagraph_gate.graphs import GraphedStep, State
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.blame import blame
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene, broke, held
from cudagraph_gate.records import Phase


def not_fallen_back(scene: Scene, graphed: GraphedStep, after: str) -> Outcome | None:
    """The complaint where the old executable could still be launched, or requests go wrong; None: neither.

    ``after`` names what was refused.
    """
    if graphed.state is not State.FALLBACK:
        return broke(Reason.LIFETIME, f"after {after} the graphed step is {graphed.state}, not given up")
    if _launches(graphed):
        return broke(Reason.LIFETIME, f"after {after} the old executable is launched again")
    if difference := scene.wrong_requests(lambda inputs: graphed(*inputs)):
        return broke(Reason.WRONG_OUTPUT, f"after {after} the normal path goes wrong: {difference}")
    return None


def held_if_usable(scene: Scene, seen: str) -> Outcome:
    """Held, if the next graph of this process can be made and is right."""
    if difference := scene.wrong(scene.graph().replay):
        return broke(Reason.WRONG_OUTPUT, f"{seen}; the next graph is wrong: {difference}")
    return held(f"{seen}; the next graph is right")


def blamed(scene: Scene, error: Exception | SystemExit, phase: Phase, what: str) -> Outcome:
    """``what`` came to this error, which speaks against the graph."""
    found = blame(error, scene.job.shape, phase, scene.loaded.workload.folder)
    seen = f"{what}: {found.message}"
    return broke(found.code, seen, call=found.call, where=found.where, advice=found.advice)


def _launches(graphed: GraphedStep) -> bool:
    try:
        graphed.launch()
    except (RuntimeError, DeviceError):
        return False
    return True
