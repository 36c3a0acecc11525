"""Faults while a graph is captured: prohibited calls, exceptions, forgotten streams, noisy neighbours.

Each must be refused by name, leave the normal path as it was, and not spoil the next capture of the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cudagraph_gate.errors import DeviceError
from cudagraph_gate.graphs import GraphedStep, contents
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.blame import blame, reason_code
from cudagraph_gate.pilot.crew import attach
from cudagraph_gate.pilot.scenarios.falling_back import held_if_usable, not_fallen_back
from cudagraph_gate.pilot.scenarios.injecting import Injected, calls_of
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene, broke
from cudagraph_gate.records import Finding, Phase
from cudagraph_gate.workload.calls import error_text

POINTS: Final = 3
"""Random points of the step at which a fault is injected: early, late, and anywhere."""
CAPTURES: Final = 20
"""Beside a noisy neighbour: interference is flaky, and shows in some captures only."""
WARM_UP: Final = 2
NEIGHBOUR_BYTES: Final = 1 << 20


class InjectedError(Exception):
    """Raised inside the user's step by the trial itself."""


@dataclass(frozen=True)
class Attempt:
    """A capture with a fault in it."""

    graphed: GraphedStep
    error: Exception | SystemExit | None
    fired: bool
    """False: the step ended before it came to the point."""


def prohibited_call(scene: Scene) -> Outcome:
    """A device-wide synchronisation, which no capture of this thread survives."""
    refused: list[Finding] = []
    for attempt in _attempts(scene, scene.session.device.synchronize):
        if attempt.error is None:
            return _went_through(attempt, "a device synchronisation inside capture")
        refused.append(_blamed(scene, attempt.error))
        if complaint := not_fallen_back(scene, attempt.graphed, "a failed capture"):
            return complaint
    named = ", ".join(dict.fromkeys(finding.call or finding.message for finding in refused))
    return held_if_usable(scene, f"refused {len(refused)} times ({named})")


def user_exception(scene: Scene) -> Outcome:
    """An exception of the user's own code between begin and end of the capture."""

    def fail() -> None:
        raise InjectedError("raised by the trial inside the captured step")

    passed = 0
    for attempt in _attempts(scene, fail):
        if attempt.error is None:
            continue  # the step has caught it, and the capture went on: nothing is wrong with that
        if not _leads_to(attempt.error, InjectedError):
            return broke(
                Reason.CAPTURE_ILLEGAL,
                f"the step's own exception was hidden by another: {error_text(attempt.error)}",
            )
        passed += 1
        if complaint := not_fallen_back(scene, attempt.graphed, "a failed capture"):
            return complaint
    return held_if_usable(scene, f"the exception reached the caller {passed} times")


def synchronised_inside(scene: Scene) -> Outcome:
    """Waiting for the capturing stream, and work that names the legacy stream."""
    seen = []
    actions = {"a stream synchronisation": _synchronise, "work on the legacy stream": _legacy_work}
    nodes = _nodes_of_healthy(scene)
    for name, action in actions.items():
        (attempt,) = _attempts(scene, action(scene), points=1)
        if attempt.error is not None:
            seen.append(f"{name} is refused ({_call(scene, attempt.error)})")
            if complaint := not_fallen_back(scene, attempt.graphed, "a failed capture"):
                return complaint
            continue
        captured = attempt.graphed.graph
        if captured is None or contents(captured).nodes != nodes:
            return _went_through(attempt, name)
        seen.append(f"{name} stays outside the graph")
        attempt.graphed.invalidate()
    return held_if_usable(scene, ", ".join(seen))


def unjoined_stream(scene: Scene) -> Outcome:
    """Work on a side stream that waits for the captured one, which never waits for it in turn."""
    device, adapter = scene.session.device, scene.session.adapter
    scratch, side = device.empty((64,), np.uint8), device.create_stream()

    def fork() -> None:
        side.wait(adapter.current_stream().record())
        device.fill(scratch, 0, side)

    (attempt,) = _attempts(scene, fork, points=1)
    if attempt.error is None:
        return _went_through(attempt, "a side stream that was never joined")
    found = _blamed(scene, attempt.error)
    if found.code is not Reason.UNJOINED_STREAM:
        return broke(found.code, f"refused, but not as an unjoined stream: {found.message}")
    if complaint := not_fallen_back(scene, attempt.graphed, "a failed capture"):
        return complaint
    scratch.free()
    return held_if_usable(scene, "refused as an unjoined stream")


def noisy_neighbour(scene: Scene) -> Outcome:
    """Captures while another thread allocates, pins memory and synchronises a stream of its own."""
    neighbour = _Neighbour(scene)
    try:
        neighbour.start()
        failed = _failures(scene, "beside another thread")
    finally:
        complaint = neighbour.stop()
    if complaint:
        return broke(
            Reason.CAPTURE_INTERFERENCE,
            f"the other thread failed beside a capture: {complaint}",
            advice="capture before other threads use CUDA",
        )
    if failed:
        return _whose_fault(scene, failed)
    return held_if_usable(scene, f"{CAPTURES} of {CAPTURES} captures, {neighbour.rounds} rounds beside them")


Failures = list[Exception | SystemExit]


def _failures(scene: Scene, beside: str) -> Failures:
    """What many captures in a row raised."""
    failed: Failures = []
    for number in range(CAPTURES):
        scene.announce(f"capture {number + 1} of {CAPTURES} {beside}")
        graphed = scene.unmade()
        try:
            graphed.warm_up(1)
            graphed.capture()
        except (Exception, SystemExit) as error:  # noqa: BLE001  (flaky: the others still count)
            failed.append(error)
        graphed.invalidate()
    return failed


def _whose_fault(scene: Scene, failed: Failures) -> Outcome:
    """Whether it was the other thread: what the driver says of streams, or fails without it, was not."""
    alone = _failures(scene, "alone")
    first = (alone or failed)[0]
    code = reason_code(first, Phase.CAPTURE)
    if alone or code is Reason.UNJOINED_STREAM:
        count = len(failed) + len(alone)
        seen = f"{count} of {2 * CAPTURES} captures fail, whoever uses the device beside them"
        return broke(code, f"{seen}: {error_text(first)}")
    return broke(
        Reason.CAPTURE_INTERFERENCE,
        f"{len(failed)} of {CAPTURES} captures failed beside another thread, none without it: "
        f"{error_text(first)}",
        advice="capture while no other thread uses CUDA",
    )


class _Neighbour:
    """A thread that uses the device as a loader or a logger does."""

    def __init__(self, scene: Scene) -> None:
        self._device = scene.session.device
        self._over = threading.Event()
        self._begun = threading.Event()
        self._complaint = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.rounds = 0

    def start(self) -> None:
        """Returns when it has done its first round."""
        self._thread.start()
        self._begun.wait()

    def stop(self) -> str:
        """End it; returns what it failed with, empty if nothing."""
        self._over.set()
        self._thread.join()
        return self._complaint

    def _run(self) -> None:
        try:
            attach(self._device)
            stream = self._device.create_stream()
            while not self._over.is_set():
                self._round(stream)
                self.rounds += 1
                self._begun.set()
        except (Exception, SystemExit) as error:  # noqa: BLE001  (the thread's death is what is asked for)
            self._complaint = error_text(error)
        finally:
            self._begun.set()

    def _round(self, stream: Any) -> None:
        device = self._device
        array = device.empty((NEIGHBOUR_BYTES,), np.uint8)
        pinned = device.pinned(NEIGHBOUR_BYTES)
        device.copy(array, pinned.array, stream)
        stream.synchronize()
        pinned.free()
        array.free()


# --- attempts -------------------------------------------------------------------------------------


def _attempts(scene: Scene, action: Callable[[], None], points: int = POINTS) -> list[Attempt]:
    """Captures in which ``action`` runs at random points of the step."""
    session = scene.session
    calls = calls_of(session.step, *scene.example)
    session.device.synchronize()
    made: list[Attempt] = []
    while len(made) < points:
        step = Injected(session.adapter, session.step, scene.chance.randrange(calls), action)
        attempt = _attempt(scene.unmade(step), step)
        if attempt.fired:
            made.append(attempt)
        else:  # captured, the step makes fewer calls: it ended before it came to the point
            attempt.graphed.invalidate()
            calls = max(1, calls // 2)
    return made


def _attempt(graphed: GraphedStep, step: Injected) -> Attempt:
    graphed.warm_up(WARM_UP)
    try:
        graphed.capture()
    except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever the fault leads to is looked at)
        return Attempt(graphed, error, step.fired)
    return Attempt(graphed, None, step.fired)


def _went_through(attempt: Attempt, what: str) -> Outcome:
    attempt.graphed.invalidate()
    return broke(
        Reason.CAPTURE_ILLEGAL,
        f"{what} went through without an error, and is part of the graph or lost",
    )


def _blamed(scene: Scene, error: Exception | SystemExit) -> Finding:
    return blame(error, scene.job.shape, Phase.CAPTURE, scene.loaded.workload.folder)


def _call(scene: Scene, error: Exception | SystemExit) -> str:
    return error.call if isinstance(error, DeviceError) else _blamed(scene, error).message


def _leads_to(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Whether it is such an exception, or was raised because of one."""
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False


def _nodes_of_healthy(scene: Scene) -> int:
    graphed = scene.unmade()
    graphed.warm_up(WARM_UP)
    nodes = contents(graphed.capture().graph).nodes
    graphed.invalidate()
    return nodes


def _synchronise(scene: Scene) -> Callable[[], None]:
    return lambda: scene.session.adapter.current_stream().synchronize()


def _legacy_work(scene: Scene) -> Callable[[], None]:
    device = scene.session.device
    scratch = device.empty((64,), np.uint8)
    return lambda: device.fill(scratch, 0, device.legacy_stream)
