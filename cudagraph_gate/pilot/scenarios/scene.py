"""What a scenario works with: the built workload, its expected outputs, and graphs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cudagraph_gate.graphs import GraphedStep
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.correctness import Expectation, beginning
from cudagraph_gate.pilot.describing import first_difference
from cudagraph_gate.pilot.graph_path import GraphPath
from cudagraph_gate.pilot.jobs import ScenarioJob
from cudagraph_gate.pilot.memory import MemoryReading, settled_memory
from cudagraph_gate.pilot.own_path import PATH_MAKERS
from cudagraph_gate.pilot.session import Inputs, Loaded, Session, opened
from cudagraph_gate.pilot.trial_log import TrialLog


@dataclass(frozen=True)
class Outcome:
    """What came of the fault."""

    status: GateStatus
    seen: str
    applies: bool = True
    code: Reason | None = None
    call: str = ""
    where: str = ""
    advice: str = ""


def held(seen: str) -> Outcome:
    """The expected came of it."""
    return Outcome(GateStatus.PASS, seen)


def broke(code: Reason, seen: str, *, call: str = "", where: str = "", advice: str = "") -> Outcome:
    """Something else came of it, which speaks against the graph."""
    return Outcome(GateStatus.FAIL, seen, code=code, call=call, where=where, advice=advice)


def undecided(code: Reason, seen: str) -> Outcome:
    """What came of it could not be seen."""
    return Outcome(GateStatus.UNKNOWN, seen, code=code)


def does_not_apply(why: str) -> Outcome:
    """The fault has no meaning for this workload."""
    return Outcome(GateStatus.PASS, why, applies=False)


@dataclass
class Scene:
    """One built workload under attack; graphs that it made or was told to keep are given up at the end."""

    loaded: Loaded
    log: TrialLog
    job: ScenarioJob
    session: Session
    input_sets: list[Inputs]
    """Requests; inputs that may not change hold the same values in each."""
    chance: random.Random
    """Seeded: the same scenario injects its fault at the same points again."""
    paths: list[GraphPath] = field(default_factory=list)

    @classmethod
    def set(cls, loaded: Loaded, log: TrialLog, job: ScenarioJob) -> Scene:
        """Build the workload and serve one request. Raises what the workload or the device raises."""
        session = opened(loaded, job.shape, job.seed)
        sets = session.input_sets(job.seed)
        baked = session.baked(sets, sets[0])
        session.device.synchronize()
        return cls(loaded, log, job, session, baked, random.Random(f"{job.seed} {job.scenario}"))

    @cached_property
    def expected(self) -> Expectation:
        """The normal path's trajectory, run before any fault: the runner asks for it first."""
        return correctness.expect(self.session, self.input_sets)

    @property
    def example(self) -> Inputs:
        """Inputs to warm up and capture with: copies, which a step may change."""
        made = tuple(map(self.session.adapter.static_like, self.input_sets[0]))
        self.session.device.synchronize()
        return made

    def announce(self, text: str) -> None:
        """Say what is going on."""
        self.log.announce(f"{self.job.scenario}: {text}")

    # --- graphs -----------------------------------------------------------------------------------
    def graph(self, session: Session | None = None) -> GraphPath:
        """A graph path that is ready to serve, made as the judged one is.

        Of another ``session`` of the workload if one is named. Raises what making it raised.
        """
        made = PATH_MAKERS[self.job.method](session or self.session, self.example)
        return self.keep(made)

    def unmade(self, step: Callable[..., Any] | None = None) -> GraphedStep:
        """A graphed step in its first state, of ``step`` instead of the workload's own if one is named."""
        session = self.session
        made = GraphedStep(session.adapter, step or session.step, self.example, updatable=session.updatable())
        self.keep(made)
        return made

    def keep(self, path: GraphPath) -> GraphPath:
        """Give this path up when the scenario is over."""
        self.paths.append(path)
        return path

    def release(self) -> None:
        """Give up every graph, after its last work."""
        self.session.device.synchronize()
        while self.paths:
            self.paths.pop().invalidate()

    # --- memory -----------------------------------------------------------------------------------
    def memory(self) -> MemoryReading:
        """What is held by somebody: caches are given back, the garbage is collected.

        So are workspaces of libraries, where no graphs but ours are there.
        """
        adapter = self.session.adapter
        if self.job.method == "capture":
            adapter.release_workspaces()
        adapter.release_cached()
        reading = settled_memory(self.session)
        if self.session.device.simulated:
            return reading
        adapter.release_cached()  # what the garbage held
        return settled_memory(self.session)

    # --- outputs ----------------------------------------------------------------------------------
    def wrong(self, step: Callable[[Inputs], Any]) -> str:
        """The first difference of a trajectory served by ``step`` from the normal path; empty: right."""
        return first_difference(self.session, self.expected, step)

    def wrong_requests(self, step: Callable[[Inputs], Any], requests: int = 1) -> str:
        """The same over the first ``requests`` only."""
        return first_difference(self.session, beginning(self.expected, requests), step)
