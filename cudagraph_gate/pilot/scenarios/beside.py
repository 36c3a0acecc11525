"""Instances that replay at the same time, with arrays of nobody's around all that their requests use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cudagraph_gate.adapters.cuda_core import ArrayAdapter
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.comparing import Moment, Trajectory
from cudagraph_gate.pilot.describing import first_unequal
from cudagraph_gate.pilot.instance_set import Arrangement, Instance, InstanceSet, replay, submit
from cudagraph_gate.pilot.scenarios.builds import finished, instances, moment_of, with_further_builds
from cudagraph_gate.pilot.scenarios.guards import Guards
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene, broke, held
from cudagraph_gate.pilot.session import Inputs, Session

TURNS: Final = 3
"""Whole trajectories of all instances at once, submitted in another order each time."""
FRAME_BYTES: Final = 256
"""Before and behind an input, in its own allocation: what cuMemAlloc aligns to."""
FRAME_BYTE: Final = 0x5A


def instances_with_canaries(scene: Scene) -> Outcome:
    """Several instances at a time, their requests' inputs and outputs between arrays that must not change."""
    return with_further_builds(scene, _beside)


def _beside(scene: Scene) -> Outcome:
    made = instances(scene)
    try:
        if made.checked.wrong:
            return broke(Reason.REPLAY_RACE, f"instances disturb each other: {made.checked.detail}")
        requests = 0
        for turn in range(TURNS):
            scene.announce(f"turn {turn + 1} of {TURNS}")
            round_ = _Turn(made, turn)
            if complaint := round_.complaint():
                return complaint
            requests += round_.requests
        return held(f"{requests} requests of {_how(made)} are right, and every canary is intact")
    finally:
        made.release()


def _how(made: InstanceSet) -> str:
    count = len(made.instances)
    if made.arrangement is Arrangement.TURNS:
        return f"{count} instances, one at a time,"
    return f"{count} instances at a time"


@dataclass
class _Turn:
    """One trajectory of each instance; where they may not overlap, one that they serve in turns."""

    made: InstanceSet
    turn: int
    requests: int = 0
    harmed: int = 0

    def complaint(self) -> Outcome | None:
        """What was wrong; None: nothing."""
        alone = self.made.arrangement is Arrangement.TURNS
        answers = self._in_turns() if alone else self._together()
        for number, (own, actual) in enumerate(zip(self.made.instances, answers, strict=False)):
            if difference := first_unequal(own.session, own.expected, actual):
                return broke(Reason.REPLAY_RACE, f"instance {number}, {difference}")
        if self.harmed:
            return broke(
                Reason.WRONG_OUTPUT,
                f"{self.harmed} arrays around the requests of {_how(self.made)} were overwritten",
                advice="let the step write to its outputs and its own buffers alone, within their bounds",
            )
        return None

    def _together(self) -> list[Trajectory]:
        """All trajectories at once, one request of each in every round."""
        instances = self.made.instances
        for each in instances:
            correctness.restore(each.session, each.expected.start)
        rounds = [
            self._round(instances, given)
            for given in zip(*(each.expected.start.requests for each in instances), strict=True)
        ]
        return [
            finished(each.session, each.expected.start.state, moments)
            for each, moments in zip(instances, zip(*rounds, strict=True), strict=True)
        ]

    def _in_turns(self) -> list[Trajectory]:
        """One trajectory, each request served by the next instance."""
        instances = self.made.instances
        own = instances[0]
        correctness.restore(own.session, own.expected.start)
        moments = [
            self._round([instances[(self.turn + number) % len(instances)]], [inputs])[0]
            for number, inputs in enumerate(own.expected.start.requests)
        ]
        return [finished(own.session, own.expected.start.state, moments)]

    def _round(self, instances: Sequence[Instance], given: Sequence[Inputs]) -> list[Moment]:
        """One request to each, submitted in an order of the turn's; what each left behind."""
        session, graph = instances[0].session, instances[0].graph
        like = [*given[0], *correctness.device_arrays(session, graph.outputs)]
        before = Guards(session, like, copies=1, sizes=False, poisoned=True)
        framed = [_Framed.of(each.session, inputs) for each, inputs in zip(instances, given, strict=True)]
        behind = Guards(session, like, copies=1, sizes=False, poisoned=True)
        session.device.synchronize()
        order = [(place + self.turn) % len(instances) for place in range(len(instances))]
        answers = submit([instances[n] for n in order], [framed[n].inputs for n in order], replay)
        self.requests += len(instances)
        self.harmed += before.harmed() + behind.harmed() + sum(each.harmed() for each in framed)
        return [
            moment_of(each.session, each.expected, answers[order.index(place)])
            for place, each in enumerate(instances)
        ]


@dataclass(frozen=True)
class _Framed:
    """Copies of one request's inputs, each between bytes of its own allocation where we allocate it."""

    session: Session
    inputs: Inputs
    whole: tuple[Any, ...]

    @classmethod
    def of(cls, session: Session, inputs: Inputs) -> _Framed:
        """Where a framework's allocator decides, the arrays allocated before and after them are the frame."""
        adapter = session.adapter
        if type(adapter) is not ArrayAdapter:
            return cls(session, tuple(map(adapter.static_like, inputs)), ())
        framed, whole = [], []
        for value in map(adapter.static_like, inputs):
            outer = session.device.empty((2 * FRAME_BYTES + value.nbytes,), np.uint8)
            session.device.fill(outer, FRAME_BYTE, adapter.current_stream())
            pointer = outer.pointer + FRAME_BYTES
            framed.append(session.device.view(pointer, value.shape, value.dtype, outer))
            adapter.copy_into(framed[-1], value)
            whole.append(outer)
        return cls(session, tuple(framed), tuple(whole))

    def harmed(self) -> int:
        """Whose frame was written to."""
        read = [array.to_host() for array in self.whole]
        return sum(
            bool(np.any(each[:FRAME_BYTES] != FRAME_BYTE) or np.any(each[-FRAME_BYTES:] != FRAME_BYTE))
            for each in read
        )
