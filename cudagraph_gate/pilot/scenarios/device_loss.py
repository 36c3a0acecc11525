"""Losing the device, and the process that replaces the lost one.

A kernel that writes to an illegal address takes the whole context with it, and a request that never ends
blocks its thread for good: both cost the process. What is asked of the graph path is that it stops, by name,
and that nothing of it is left for the next process.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudagraph_gate.errors import DeviceError, StickyError
from cudagraph_gate.evidence import Run
from cudagraph_gate.graphs import GraphCache, GraphedStep, GraphKey, State
from cudagraph_gate.model import SCENARIO_BY_NAME, Reason
from cudagraph_gate.pilot.memory import settled_memory
from cudagraph_gate.pilot.scenarios import kernels
from cudagraph_gate.pilot.scenarios.counting import CountedCapture, counted_graph
from cudagraph_gate.pilot.scenarios.handing_over import (
    HandedOver,
    compared_with,
    forget,
    hand_over,
    handed_over,
)
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene, broke, held, undecided
from cudagraph_gate.records import WorkerEnd, scenario_stage
from cudagraph_gate.workload.calls import error_text

REQUESTS: Final = 3
"""After the fault: the first one finds out, those after it must know."""
CONTEXT_BYTES: Final = 256 * 1024**2
"""More than two processes that build the same differ by, and less than any process holds that is still there:
a bare CUDA context takes some 500 MiB on an H200."""
FREED_WITHIN_S: Final = 10.0
"""The driver may tear a killed process's context down a little after the process is gone."""
POLL_S: Final = 0.5

_PLACE: Final = re.compile(r"last in (?P<place>\S+:\d+ \(.+\))$")
_DRIVER_NAME: Final = re.compile(r"CUDA_ERROR_\w+")

Failed = Exception | SystemExit


def device_fault(scene: Scene) -> Outcome:
    """First an illegal write, then the process that replaces the lost one."""
    return _lose_device(scene) if scene.job.part == 0 else replaced(scene, "the process was lost")


# --- the lost process -----------------------------------------------------------------------------


def _lose_device(scene: Scene) -> Outcome:
    forget(scene)
    session = scene.session
    application = Application.of(scene)
    if difference := scene.wrong(application.graphed.replay):
        return broke(Reason.WRONG_OUTPUT, f"before the fault the graph is wrong: {difference}")
    if difference := scene.wrong(application.request):
        return broke(Reason.WRONG_OUTPUT, f"before the fault a cached graph is wrong: {difference}")
    hand_over(scene)
    calls = driver_calls(scene)
    fault = _fault(scene, application.graphed)
    if fault is None:
        return undecided(Reason.UNMEASURABLE, "a write to an illegal address went unnoticed")
    if not isinstance(fault, StickyError):
        return undecided(Reason.UNMEASURABLE, f"the write was refused, but the device lives on: {fault.what}")
    passed = [name for name, call in calls.items() if refused(call) is None]
    if passed:
        return undecided(Reason.UNMEASURABLE, f"{fault.code}, and yet {', '.join(passed)} went through")
    normal = refused(lambda: application.to_the_end(session.step(*scene.input_sets[0])))
    if normal is None:
        return broke(Reason.CRASH, f"the normal path answers on a device that is lost by {fault.code}")
    return application.complaint(fault.code) or held(
        f"{fault.code} from every later call ({', '.join(calls)}) and from the step ({said(normal)}); the "
        "graphed step has fallen back, neither it nor the cache serves, and no old graph is launched again"
    )


def _fault(scene: Scene, graphed: GraphedStep) -> DeviceError | None:
    """What the device says of an illegal write and a replay that was enqueued right behind it."""
    session = scene.session
    try:
        kernels.write_nowhere(session.device, session.adapter.current_stream())
        with suppress(Exception):  # it may be refused already: the device says which fault it was
            graphed.replay(scene.input_sets[0])
        session.device.synchronize()
    except DeviceError as error:
        return error
    return None


def driver_calls(scene: Scene) -> Mapping[str, Callable[[], object]]:
    """Calls of several kinds, with what they need allocated before the fault."""
    device, stream = scene.session.device, scene.session.adapter.current_stream()
    scratch = device.empty((64,), np.uint8)
    return {
        "synchronise": device.synchronize,
        "allocate": lambda: device.empty((64,), np.uint8),
        "fill": lambda: device.fill(scratch, 0, stream),
        "copy": scratch.to_host,
        "launch": lambda: kernels.write_nowhere(device, stream),
        "new stream": device.create_stream,
    }


def refused(call: Callable[[], object]) -> Failed | None:
    """What a call raised; None: it went through."""
    try:
        call()
    except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever a lost device leads to)
        return error
    return None


def said(error: Failed) -> str:
    """The driver's name for what an error is about, or the error's own words."""
    found = _DRIVER_NAME.search(str(error))
    return found[0] if found else error_text(error)


class Application:
    """What an application holds when its device is lost: a graphed step, and another one in its cache."""

    def __init__(
        self, scene: Scene, graphed: GraphedStep, counted: CountedCapture, cache: GraphCache, key: GraphKey
    ) -> None:
        self._scene = scene
        self.graphed = graphed
        self._counted = counted
        self._cache = cache
        self._key = key
        self._cached: list[CountedCapture] = []

    @classmethod
    def of(cls, scene: Scene) -> Application:
        """With a graph that is ready; the cache makes its own at the first request."""
        graphed, counted = counted_graph(scene.session, scene.example)
        scene.keep(graphed)
        key = GraphKey(model_version="1", shape=(), dtype=(), device=scene.session.device.name)
        return cls(scene, graphed, counted, GraphCache(capacity_entries=1), key)

    def request(self, inputs: Any) -> Any:
        """One request through the cache, to the end of its work; its outputs."""
        session = self._scene.session
        with self._cache.lease(self._key, self._make) as graphed:
            outputs = session.step(*inputs) if graphed is None else graphed(*inputs)
            session.adapter.synchronize()
            return outputs

    def _make(self) -> GraphedStep:
        graphed, counted = counted_graph(self._scene.session, self._scene.example)
        self._cached.append(counted)
        self._scene.keep(graphed)
        return graphed

    def complaint(self, fault: str) -> Outcome | None:
        """What still serves although the device is lost by ``fault``; None: nothing does."""
        return next(self._complaints(fault), None)

    def _complaints(self, fault: str) -> Iterator[Outcome]:
        graphed, inputs = self.graphed, self._scene.input_sets[0]
        if refused(lambda: self.to_the_end(graphed.replay(inputs))) is None:
            yield broke(Reason.CRASH, f"a replay is answered although the device is lost by {fault}")
        if graphed.state is not State.FALLBACK:
            yield broke(Reason.CRASH, f"after {fault} the graphed step is {graphed.state}")
        launches = self._counted.launches
        for _ in range(REQUESTS):
            if refused(lambda: self.to_the_end(graphed(*inputs))) is None:
                yield broke(Reason.CRASH, f"a request is answered although the device is lost by {fault}")
        if self._counted.launches != launches:
            yield broke(Reason.CRASH, f"after {fault} the old executable was launched again")
        yield from self._complaints_of_cache(fault)

    def _complaints_of_cache(self, fault: str) -> Iterator[Outcome]:
        inputs, known = self._scene.input_sets[0], list(self._cached)
        before = [each.launches for each in known]
        for _ in range(REQUESTS):
            if refused(lambda: self.request(inputs)) is None:
                yield broke(Reason.CRASH, f"the cache serves although the device is lost by {fault}")
        # One request may find out by the launch that is refused; those after it must know.
        if any(each.launches > then + 1 for each, then in zip(known, before, strict=True)):
            yield broke(Reason.CRASH, f"after {fault} a cached executable was launched again")

    def to_the_end(self, _outputs: Any) -> None:
        """Wait for a request, as an application does before it uses its outputs."""
        self._scene.session.adapter.synchronize()


# --- the request that never ends ------------------------------------------------------------------


def hang(scene: Scene) -> Outcome:
    """First a request that never ends, then the process that replaces the one that the watchdog ended."""
    return _hang(scene) if scene.job.part == 0 else _after_hang(scene)


def _hang(scene: Scene) -> Outcome:
    forget(scene)
    session, graphed = scene.session, scene.graph()
    hand_over(scene)
    limit_s = SCENARIO_BY_NAME[scene.job.scenario].limit_s
    assert limit_s is not None, "a hang is found by its limit"
    scene.log.announce_within(f"{scene.job.scenario}: a replay behind a kernel that never ends", limit_s)
    try:
        kernels.never_end(session.device, session.adapter.current_stream())
        graphed.replay(scene.input_sets[0])
        session.adapter.synchronize()
    except (Exception, SystemExit) as error:  # noqa: BLE001  (a device that ends long kernels by itself)
        return undecided(Reason.UNMEASURABLE, f"the device itself ended the endless kernel: {said(error)}")
    return undecided(Reason.UNMEASURABLE, "the endless request came to an end")


def _after_hang(scene: Scene) -> Outcome:
    stage = scenario_stage(scene.job.scenario)
    records = Run(Path(scene.job.folder)).records()
    ends = [record for record in records if isinstance(record, WorkerEnd) and record.stage == stage]
    if not ends or ends[-1].outcome != "timed_out":
        return undecided(Reason.NOT_TRIED, "no process that hung came before this one")
    if not ends[-1].signal:
        return undecided(Reason.HANG, f"the process that hung could not be ended: {ends[-1].reason}")
    place = _PLACE.search(ends[-1].reason)
    if place is None:
        return undecided(Reason.HANG, f"the watchdog did not find out where it hung: {ends[-1].reason}")
    return replaced(scene, f"ended by {ends[-1].signal} in {place['place']}")


# --- the process that replaces a lost one ---------------------------------------------------------


def replaced(scene: Scene, lost: str, *, freed_within_s: float = FREED_WITHIN_S) -> Outcome:
    """A new process, whose device and graph must be as if nothing had been; ``lost`` says what was."""
    left = handed_over(scene)
    if left is None:
        return undecided(Reason.NOT_TRIED, "what the lost process left is not in the run folder")
    more = _not_freed(scene, left, freed_within_s)
    if more > CONTEXT_BYTES:
        return undecided(
            Reason.MEMORY,
            f"{more / 1024**2:.0f} MiB more of the device are in use than before the fault: the lost process "
            "still holds them, or another process has come",
        )
    if difference := scene.wrong(scene.graph().replay):
        return broke(Reason.WRONG_OUTPUT, f"{lost}; the new process's graph is wrong: {difference}")
    return held(f"{lost}; the new process has the device and a right graph, {compared_with(scene, left)}")


def _not_freed(scene: Scene, left: HandedOver, within_s: float) -> int:
    """Bytes of device memory in use beyond those before the fault, once the driver has had time to free."""
    deadline = time.monotonic() + within_s
    while True:
        memory = settled_memory(scene.session)
        more = memory.device_used_bytes - left.device_used_bytes
        if more <= CONTEXT_BYTES or time.monotonic() > deadline:
            return more
        time.sleep(POLL_S)
