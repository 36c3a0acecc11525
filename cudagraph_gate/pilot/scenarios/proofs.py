"""What must be as before once a fault is over, whatever the fault was.

The normal path's outputs, random numbers, the current stream, no stream left capturing, canaries around the
workload's arrays, memory, and a thread that was there before.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cudagraph_gate.device import Device
from cudagraph_gate.device.port import HostArray
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.crew import attach
from cudagraph_gate.pilot.describing import described
from cudagraph_gate.pilot.memory import Growth, MemoryReading
from cudagraph_gate.pilot.scenarios.scene import Scene
from cudagraph_gate.pilot.session import Session
from cudagraph_gate.pilot.tenants import other_processes
from cudagraph_gate.records import Proof
from cudagraph_gate.workload.calls import error_text

SLACK_BYTES: Final = 32 * 1024**2
"""Device memory that a process may keep after a fault: the driver hands out 2 MiB at a time, and keeps some
for later. A graph's pool or a model that leaks is mostly larger, and what leaks little by little is measured
over many cycles elsewhere."""
CANARY_BYTES: Final = (256, 4_096, 65_536, 1 << 20)
"""Sizes that share an allocator's bins with small outputs, buffers and large ones."""
CANARIES_EACH: Final = 4
WITNESS_LIMIT_S: Final = 30.0
"""A thread that has not answered by then hangs."""


class Canaries:
    """Arrays of other owners, between the workload's: nobody may write to them."""

    def __init__(self, device: Device) -> None:
        self._arrays = [
            device.array(np.full(size, 0x5A + number, np.uint8))
            for number, size in enumerate(CANARY_BYTES * CANARIES_EACH)
        ]

    def harmed(self) -> int:
        """How many no longer hold what they were given."""
        return sum(
            bool(np.any(array.to_host() != 0x5A + number)) for number, array in enumerate(self._arrays)
        )

    def free(self) -> None:
        """Give their memory back."""
        for array in self._arrays:
            array.free()
        self._arrays = []


class Witness:
    """A host thread that used the device before the fault, and must still be able to use it afterwards."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="cgate-witness", daemon=True)
        self._thread.start()

    def complaint(self) -> str:
        """Let it allocate, copy and synchronise; returns what went wrong, empty if nothing did."""
        self._asked.put(True)
        try:
            return self._answers.get(timeout=WITNESS_LIMIT_S)
        except queue.Empty:
            return f"it has not answered for {WITNESS_LIMIT_S:g} s"

    def leave(self) -> None:
        """End it."""
        self._asked.put(False)
        self._thread.join(WITNESS_LIMIT_S)

    def _serve(self) -> None:
        attach(self._device)
        stream = self._device.create_stream()
        while self._asked.get():
            try:
                self._use(stream)
                self._answers.put("")
            except Exception as error:  # noqa: BLE001  (whatever it is, this thread can't go on)
                self._answers.put(error_text(error))

    def _use(self, stream: Any) -> None:
        device = self._device
        with device.use_stream(stream):
            given = np.arange(64, dtype=np.float32)
            array = device.array(given)
            stream.synchronize()
            same = np.array_equal(array.to_host(), given)
            array.free()
        if not same:
            raise RuntimeError("it reads back other values than it wrote")


@dataclass
class Baseline:
    """How things stood before the fault."""

    stream: Any
    canaries: Canaries
    witness: Witness
    memory: MemoryReading
    drawn: HostArray | None

    @classmethod
    def of(cls, scene: Scene) -> Baseline:
        """Note it, after one graph was made, used and given up: what that leaves is no fault's doing.

        What the normal path takes anew at its next request is none either.
        """
        session = scene.session
        canaries, witness = Canaries(session.device), Witness(session.device)
        witness.complaint()
        scene.graph().replay(scene.example)
        scene.release()
        session.call(scene.example)
        drawn = session.adapter.draw_random()
        stream = session.adapter.current_stream()
        return cls(stream, canaries, witness, scene.memory(), drawn)

    def end(self) -> None:
        """Let the witness go."""
        self.witness.leave()


def proofs(scene: Scene, before: Baseline, again: Callable[[], object] | None = None) -> Iterator[Proof]:
    """Each proof as it is made; one that raises fails, with what it raised.

    ``again`` repeats the fault, where memory has grown, to tell what a first time takes from a leak.
    """
    checks: Sequence[tuple[str, Reason, Callable[[], tuple[GateStatus, str]]]] = (
        ("nothing captures", Reason.CAPTURE_ILLEGAL, lambda: _nothing_captures(scene.session, before)),
        ("current stream", Reason.CAPTURE_ILLEGAL, lambda: _same_stream(scene.session, before)),
        ("random numbers", Reason.RNG, lambda: _random_numbers(scene.session, before)),
        ("normal path", Reason.WRONG_OUTPUT, lambda: _normal_path(scene)),
        ("canaries", Reason.WRONG_OUTPUT, lambda: _canaries(before)),
        ("other threads", Reason.CAPTURE_INTERFERENCE, lambda: _other_threads(before)),
        ("memory", Reason.MEMORY_GROWTH, lambda: _memory_back(scene, before, again)),
    )
    for name, code, check in checks:
        try:
            status, detail = check()
        except (Exception, SystemExit) as error:  # noqa: BLE001  (that it can't be done is the finding)
            status, detail = GateStatus.FAIL, error_text(error)
        yield Proof(
            scenario=scene.job.scenario,
            part=scene.job.part,
            name=name,
            status=status,
            detail=detail,
            code=None if status is GateStatus.PASS else code,
        )


def _nothing_captures(session: Session, before: Baseline) -> tuple[GateStatus, str]:
    streams = (session.adapter.current_stream(), before.stream, session.device.current_stream())
    if any(stream.is_capturing for stream in streams):
        return GateStatus.FAIL, "a stream still captures"
    session.device.synchronize()  # a capture of another stream would refuse it, as it would an allocation
    session.device.empty((1,), np.uint8).free()
    return GateStatus.PASS, "no stream captures, the device synchronises and allocates"


def _same_stream(session: Session, before: Baseline) -> tuple[GateStatus, str]:
    if session.adapter.current_stream() != before.stream:
        return GateStatus.FAIL, "another stream is current than before"
    return GateStatus.PASS, "the same stream is current"


def _random_numbers(session: Session, before: Baseline) -> tuple[GateStatus, str]:
    first, second = session.adapter.draw_random(), session.adapter.draw_random()
    if first is None or second is None:
        return GateStatus.PASS, f"{session.adapter.name} has no generator in use"
    if np.array_equal(first, second):
        return GateStatus.FAIL, "two draws give the same numbers"
    if before.drawn is not None and not bool(np.all((first >= 0) & (first <= 1))):
        return GateStatus.FAIL, "uniform random numbers lie outside 0 to 1"
    return GateStatus.PASS, "they are drawn, and differ from draw to draw"


def _normal_path(scene: Scene) -> tuple[GateStatus, str]:
    again = correctness.normal_again(scene.session, scene.expected)
    if not again.equal:
        return GateStatus.FAIL, described(again)
    return GateStatus.PASS, "its outputs are as before"


def _canaries(before: Baseline) -> tuple[GateStatus, str]:
    harmed = before.canaries.harmed()
    if harmed:
        return GateStatus.FAIL, f"{harmed} arrays that belong to nobody's request were overwritten"
    return GateStatus.PASS, "all intact"


def _other_threads(before: Baseline) -> tuple[GateStatus, str]:
    complaint = before.witness.complaint()
    if complaint:
        return GateStatus.FAIL, f"a thread that used the device before can't any more: {complaint}"
    return GateStatus.PASS, "a thread that used the device before still does"


def _memory_back(
    scene: Scene, before: Baseline, again: Callable[[], object] | None
) -> tuple[GateStatus, str]:
    """A first time may leave handles and workspaces of libraries behind; what leaks does so each time."""
    scene.release()
    first = scene.memory()
    growth = Growth.between(before.memory, first)
    if growth.most <= SLACK_BYTES:
        return GateStatus.PASS, f"back at the baseline ({_mib(growth.most)})"
    if again is not None:
        again()
        scene.release()
        growth, once = Growth.between(first, scene.memory()), growth
        if growth.most <= SLACK_BYTES:
            seen = f"{_mib(once.most)} at the first time, {_mib(growth.most)} when the fault is repeated"
            return GateStatus.PASS, f"no growth with every fault: {seen}"
    return _grown(scene.session, growth)


def _grown(session: Session, growth: Growth) -> tuple[GateStatus, str]:
    if growth.occupied is not None and growth.occupied > SLACK_BYTES:
        return GateStatus.FAIL, f"{_mib(growth.occupied)} of the framework's allocator are not given back"
    others = other_processes(session.device)
    taken = f"{_mib(growth.outside)} of device memory are not given back"
    if isinstance(others, NotMeasured):
        return GateStatus.UNKNOWN, f"{taken}; {others.reason}"
    if others:
        return GateStatus.UNKNOWN, f"{taken}, and {others} other processes use the GPU: it may be theirs"
    return GateStatus.FAIL, taken


def _mib(nbytes: int) -> str:
    return f"{nbytes / 1024**2:+.1f} MiB"
