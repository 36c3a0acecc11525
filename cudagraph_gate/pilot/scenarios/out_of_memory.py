"""Faults for want of device memory: at capture, at instantiation, and at the n-th instance.

Ballast takes all free memory. A refusal must name the want of memory; where an operation needs none, that is
said, and what it made must be right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from cudagraph_gate.adapters import CapturedStep
from cudagraph_gate.errors import DeviceMemoryError
from cudagraph_gate.graphs import GraphedStep, GraphSource, State, StreamCapture
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.blame import reason_code
from cudagraph_gate.pilot.memory import settled_memory
from cudagraph_gate.pilot.scenarios.ballast import Ballast, unfillable
from cudagraph_gate.pilot.scenarios.falling_back import blamed, held_if_usable, not_fallen_back
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene, broke, undecided
from cudagraph_gate.pilot.session import Inputs
from cudagraph_gate.records import Phase
from cudagraph_gate.workload.calls import error_text

WARM_UP: Final = 2
MEASURED_INSTANCES: Final = 2
"""Further instances by which memory per instance is measured: the driver hands it out in large pieces."""
CHECKED_REQUESTS: Final = 2
"""Of each instance: the first has the inputs of the capture, which a graph without a copy gets right."""
ROOM: Final = 2.5
"""Instances for which room is left: two fit, also where they take a little more than was measured."""
MOST_INSTANCES: Final = 8
"""So many are tried each time that memory was filled; where all fit, they need none of it."""
_WITH_COPIES: Final = "capture with the copies of its inputs"
_ALONE: Final = "capture alone"
_NAMES: Final = ("out_of_memory", "alloc_failed", "allocation_failed")
"""In texts of libraries that pass on the driver's or their own name for it, such as cuBLAS."""


def at_capture(scene: Scene) -> Outcome:
    """Memory is full before the graph's inputs are copied; another time, as soon as they are."""
    if why := unfillable(scene.session):
        return undecided(Reason.ENVIRONMENT, why)
    seen = []
    for what in (_WITH_COPIES, _ALONE):
        with Ballast(scene.session) as ballast:
            spare = scene.example
            graphed = _warm(scene, ballast if what == _ALONE else None)
            if what == _WITH_COPIES:
                ballast.fill()
            came = while_full(scene, ballast, graphed, [(what, graphed.capture)], spare)
        if isinstance(came, Outcome):
            return came
        if complaint := wrong_afterwards(scene, graphed, came):
            return complaint
        seen.append(came.seen)
    return held_if_usable(scene, "; ".join(seen))


def at_instantiate(scene: Scene) -> Outcome:
    """Memory is full from the end of the capture to the first replay."""
    if why := unfillable(scene.session):
        return undecided(Reason.ENVIRONMENT, why)
    with Ballast(scene.session) as ballast:
        spare = scene.example
        graphed = _warm(scene)
        graphed.capture()
        ballast.fill()
        steps = [
            ("instantiation", graphed.instantiate),
            ("upload", graphed.upload),
            ("first replay", lambda: _launched(scene, graphed)),
        ]
        came = while_full(scene, ballast, graphed, steps, spare)
    if isinstance(came, Outcome):
        return came
    return wrong_afterwards(scene, graphed, came) or held_if_usable(scene, came.seen)


# --- one graph ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Came:
    """What came of making a graph with memory full."""

    refused: bool
    """By the name of the want of memory; else it needed none."""
    seen: str


class _Filling:
    """The usual source of a graph; memory is filled between its two steps."""

    def __init__(self, scene: Scene, ballast: Ballast) -> None:
        self._inner = StreamCapture(scene.session.adapter, scene.session.step)
        self._ballast = ballast

    def static_inputs(self, example: tuple[Any, ...]) -> tuple[Any, ...]:
        """Copies of the inputs; afterwards memory is full."""
        made = self._inner.static_inputs(example)
        self._ballast.fill()
        return made

    def capture(self, static: tuple[Any, ...]) -> CapturedStep:
        """Capture one call of the step."""
        return self._inner.capture(static)


def _warm(scene: Scene, filling: Ballast | None = None) -> GraphedStep:
    """A warm step without a graph; capturing it fills ``filling`` on the way."""
    source = None if filling is None else _Filling(scene, filling)
    graphed = _graphed(scene, scene.example, source)
    graphed.warm_up(WARM_UP)
    return graphed


def _graphed(scene: Scene, example: Inputs, source: GraphSource | None = None) -> GraphedStep:
    session = scene.session
    made = GraphedStep(session.adapter, session.step, example, updatable=session.updatable(), source=source)
    scene.keep(made)
    return made


def while_full(
    scene: Scene, ballast: Ballast, graphed: GraphedStep, steps: Sequence[Step], spare: Inputs
) -> Came | Outcome:
    """Take the named steps to a graph until one is refused; ``spare``: inputs from before memory was full."""
    for what, step in steps:
        refusal = attempted(scene, step, what)
        if isinstance(refusal, Outcome):
            return refusal
        if refusal:
            normal = attempted(scene, lambda: _served(scene, graphed, spare), "a request of the normal path")
            if isinstance(normal, Outcome):
                return normal
            meanwhile = (
                "the normal path, too, needs memory" if normal else "the normal path goes on meanwhile"
            )
            return Came(True, f"{what} is refused ({refusal}), {meanwhile}")
    if not ballast.still_full():
        return undecided(Reason.UNMEASURABLE, "device memory did not stay full: somebody gave some back")
    named = ", ".join(what for what, _step in steps)
    return Came(False, f"{named} needs no device memory")


def wrong_afterwards(scene: Scene, graphed: GraphedStep, came: Came) -> Outcome | None:
    """With memory free again: the complaint about the step that was refused, or the graph that was made."""
    if came.refused:
        return not_fallen_back(scene, graphed, "a refusal for want of memory")
    if graphed.state is State.CAPTURING:
        graphed.instantiate()
        graphed.upload()
    if difference := scene.wrong(graphed.replay):
        return broke(Reason.WRONG_OUTPUT, f"a graph made with device memory full is wrong: {difference}")
    graphed.invalidate()
    return None


# --- several instances ----------------------------------------------------------------------------


def at_instance(scene: Scene) -> Outcome:
    """Instance after instance is made in the room of about two, until one is refused."""
    if why := unfillable(scene.session):
        return undecided(Reason.ENVIRONMENT, why)
    example = scene.example
    made = [_ready(_graphed(scene, example), scene)]
    each_bytes = _bytes_of_instance(scene, example)
    with Ballast(scene.session) as ballast:
        seen = _until_refused(scene, ballast, made, each_bytes, example)
        if isinstance(seen, Outcome):
            return seen
        if complaint := refused_replay(scene, made, example):
            return complaint
    if complaint := wrong_instance(scene, made):
        return complaint
    return held_if_usable(scene, f"{seen}; all before it replay with the device full and are right")


def _until_refused(
    scene: Scene, ballast: Ballast, made: list[GraphedStep], each_bytes: int, example: Inputs
) -> str | Outcome:
    """Make more instances, first in the room for some, then in none; what came of it."""
    for leave_bytes in dict.fromkeys((round(ROOM * each_bytes), 0)):
        ballast.fill(leave_bytes)
        for _ in range(MOST_INSTANCES):
            scene.announce(f"instance {len(made) + 1}")
            graphed = _graphed(scene, example)
            refusal = attempted(scene, partial(_ready, graphed, scene), f"instance {len(made) + 1}")
            if isinstance(refusal, Outcome):
                return refusal
            if refusal:
                if graphed.state is not State.FALLBACK:
                    return broke(Reason.LIFETIME, f"an instance that was refused is {graphed.state}")
                return f"instance {len(made) + 1} of {each_bytes / 1024:.0f} KiB each is refused ({refusal})"
            made.append(graphed)
    if not ballast.still_full():
        return undecided(Reason.UNMEASURABLE, "device memory did not stay full: somebody gave some back")
    return (
        f"none of {len(made)} instances is refused, {MOST_INSTANCES} of them with the device full: "
        "they fit into what driver and framework hold already"
    )


def _ready(graphed: GraphedStep, scene: Scene) -> GraphedStep:
    """All phases and a first replay; the step itself is warm, and runs no more than the capture asks for."""
    graphed.warm_up(0)
    graphed.capture()
    graphed.instantiate()
    graphed.upload()
    _launched(scene, graphed)
    return graphed


def _bytes_of_instance(scene: Scene, example: Inputs) -> int:
    """Device memory that each further instance takes; 0 where it does not show."""
    before = _used_bytes(scene)
    more = [_ready(_graphed(scene, example), scene) for _ in range(MEASURED_INSTANCES)]
    taken = _used_bytes(scene) - before
    for graphed in more:
        graphed.invalidate()
    return max(0, taken) // MEASURED_INSTANCES


def _used_bytes(scene: Scene) -> int:
    scene.session.adapter.release_cached()
    return settled_memory(scene.session).device_used_bytes


def refused_replay(scene: Scene, made: Sequence[GraphedStep], inputs: Inputs) -> Outcome | None:
    """The complaint about the first instance that does not replay any more, now that memory is full."""
    for number, graphed in enumerate(made, start=1):
        what = f"a replay of instance {number}"
        refusal = attempted(scene, partial(_replayed, scene, graphed, inputs), what)
        if isinstance(refusal, Outcome):
            return refusal
        if refusal:
            seen = f"{what}, which had replayed before, is refused when device memory is full ({refusal})"
            return broke(Reason.MEMORY, seen)
    return None


def wrong_instance(scene: Scene, made: Sequence[GraphedStep]) -> Outcome | None:
    """The complaint about the first instance whose request differs from the normal path's."""
    for number, graphed in enumerate(made, start=1):
        if difference := scene.wrong_requests(graphed.replay, CHECKED_REQUESTS):
            return broke(Reason.WRONG_OUTPUT, f"instance {number} of {len(made)} goes wrong: {difference}")
    return None


# --- attempts -------------------------------------------------------------------------------------

Step = tuple[str, Callable[[], object]]
"""What it is called, and the call."""


def attempted(scene: Scene, call: Callable[[], object], what: str) -> str | Outcome:
    """How ``call`` was refused for want of memory, by its name; empty: it was not refused.

    Failed for another reason: the outcome that speaks against the graph. Nothing of the error is kept: its
    frames hold arrays.
    """
    try:
        call()
    except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever the want of memory leads to is looked at)
        named = memory_error(error)
        return named or blamed(scene, error, Phase.SCENARIO, f"{what} with device memory full")
    return ""


def memory_error(error: BaseException | None) -> str:
    """The name by which an error, or one that it was raised because of, tells the want of device memory.

    Empty where none does.
    """
    while error is not None:
        if isinstance(error, DeviceMemoryError):
            return f"{error.code} in {error.call}"
        text = error_text(error)
        known = isinstance(error, Exception) and reason_code(error, Phase.SCENARIO) is Reason.MEMORY
        if known or any(name in text.lower() for name in _NAMES):
            return text.partition(". ")[0]  # torch goes on with figures and advice
        error = error.__cause__ or error.__context__
    return ""


def _launched(scene: Scene, graphed: GraphedStep) -> None:
    graphed.launch()
    scene.session.adapter.synchronize()


def _replayed(scene: Scene, graphed: GraphedStep, inputs: Inputs) -> None:
    graphed.copy_in(inputs)
    _launched(scene, graphed)


def _served(scene: Scene, graphed: GraphedStep, inputs: Inputs) -> None:
    graphed(*inputs)
    scene.session.adapter.synchronize()
