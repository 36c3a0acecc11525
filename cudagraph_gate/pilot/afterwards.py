"""After more requests: does the graph path still give what the normal path gives?

The trajectory shows the first few requests. What ``between`` does later (weights that are loaded anew at the
twentieth request, a cache that is rebuilt at every fiftieth) shows only in a comparison that comes after it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cudagraph_gate.model import NotMeasured, Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.between import BUDGET_S, Between
from cudagraph_gate.pilot.comparing import Trajectory, compare_repeats, repeat_tolerances
from cudagraph_gate.pilot.correctness import Expectation, Step
from cudagraph_gate.pilot.session import Session
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import Comparison, Finding

WALK_REQUESTS: Final = 210
"""What happens at every 50th or 100th request then has happened twice."""
WALK_FACTOR: Final = 2
"""So much more than the budget of ``between`` a walk may take with its requests."""
FIRST_LOOK: Final = 8
"""The trajectory has compared the requests before."""
LOOK_FACTOR: Final = 1.5
"""From one look to the next. Memory that is allocated anew and freed in turns comes back to its first address
at every second change, so two changes may look like none. What changes at every n-th request is changed once
between the n-th and the 2n-th: a factor below 2 never leaves that out."""
ADVICE: Final = (
    "let between change weights, buffers and caches in place (copy_ into them) and keep what the step reads "
    "in device memory, or make the graph again after every such change"
)


def next_look(served: int) -> int:
    """After how many requests the next look is due when the last one came after ``served``."""
    return max(FIRST_LOOK, int(served * LOOK_FACTOR))


class Afterwards:
    """Compares one request of both paths again and again; what differs is logged as a finding, once.

    ``made_at`` are the addresses of state when the graph was made; ``static`` the arrays that replays
    overwrite, which are poisoned before, and ``constants`` the static inputs that they do not.
    """

    def __init__(
        self,
        session: Session,
        replay: Step,
        expected: Expectation,
        log: TrialLog,
        *,
        made_at: Mapping[str, int],
        static: Sequence[Any] = (),
        constants: Sequence[Any] = (),
        budget_s: float = BUDGET_S,
    ) -> None:
        self._session = session
        self._replay = replay
        self._expected = expected
        self._log = log
        self._made_at = made_at
        self._static = static
        self._constants = constants
        # The second request: the values of the first are those that the graph was made with.
        requests = expected.start.requests
        self._start = replace(expected.start, requests=requests[1:2] or requests[:1])
        self._budget_s = budget_s
        self._due = FIRST_LOOK
        self.agrees = True
        """Whether nothing was found so far."""

    def walk(self) -> bool:
        """Serve requests by the graph, each followed by ``between``, and look at times.

        Not by the normal path, as it is left out in use: what its Python would put right, such as a table
        that is loaded anew once ``between`` has marked it as old, the graph must do without.

        Nothing where there is no ``between``. To be called before anything is timed: there each path has its
        own call with the same index, and what happens twice may be undone. Raises what a path raises.
        """
        session, between = self._session, Between(self._session)
        end = time.monotonic() + WALK_FACTOR * self._budget_s
        while between.declared and self.agrees and session.next_index < WALK_REQUESTS:
            if between.spent_s > self._budget_s or time.monotonic() > end:
                break
            given = self._start.requests[0]
            self._replay(tuple(map(session.adapter.static_like, given)))
            session.adapter.synchronize()
            between.call()
            self.look_if_due()
        return self.look() if between.declared else True

    def look_if_due(self) -> bool:
        """Look if ``between`` has counted far enough since the last time."""
        return self.look() if self._session.next_index >= self._due else self.agrees

    def look(self) -> bool:
        """Compare one request of both paths, from the same state. Raises what a path raises.

        The normal path does not have to give what it gave before: weights may have changed for both. Where it
        does not repeat itself any longer, the finding leaves the question undecided.
        """
        self._due = next_look(self._session.next_index)
        if self.agrees and (found := self._found()) is not None:
            self._log.append(found)
            self.agrees = False
        return self.agrees

    def _found(self) -> Finding | None:
        session, log = self._session, self._log
        if moved := self._moved():
            return _moved_finding(session, log, moved)
        # First the graph: a call of the normal path may put right what it finds wrong.
        graph = correctness.follow(session, self._replay, self._start, before_each=self._disturb, alone=True)
        one = self._once(session.call)
        if not self._wrong(one, one, graph):
            return None
        other = self._once(session.call)
        if any(not found.equal for found in compare_repeats(log.shape, one, other)):
            return _unsteady_finding(session, log)
        wrong = self._wrong(one, other, graph)
        return _wrong_finding(session, log, wrong[0]) if wrong else None

    def _moved(self) -> list[str]:
        """State that lies elsewhere now."""
        now = correctness.addresses(self._session)
        return [name for name, address in now.items() if self._made_at.get(name, address) != address]

    def _once(self, step: Step) -> Trajectory:
        return correctness.follow(self._session, step, self._start, alone=True)

    def _disturb(self, _request: int) -> None:
        """As before each request of the trajectory."""
        session, start = self._session, self._start
        correctness.poison(session, self._static, start.changing, self._constants)
        correctness.churn(session, [*session.state().values(), *self._static, *start.requests[0]])

    def _wrong(self, one: Trajectory, other: Trajectory, graph: Trajectory) -> list[Comparison]:
        """Where the graph differs from the normal path by more than that from itself, then or now."""
        tolerances = dict(self._expected.tolerances)
        for name, tolerance in repeat_tolerances(one, other).items():
            tolerances[name] = max(tolerance, tolerances.get(name, 0.0))
        now = replace(self._expected, start=self._start, normal=one, repeated=other, tolerances=tolerances)
        return [found for found in correctness.compare_paths(self._session, now, graph) if not found.equal]


def _moved_finding(session: Session, log: TrialLog, moved: Sequence[str]) -> Finding:
    others = f" and {len(moved) - 1} more" if len(moved) > 1 else ""
    message = (
        f"state {moved[0]}{others} lies elsewhere {_after(session)} than when the graph was made: "
        "the graph still uses the old memory"
    )
    return _finding(session, log, Reason.UNSTABLE_ADDRESS, message)


def _wrong_finding(session: Session, log: TrialLog, wrong: Comparison) -> Finding:
    error = wrong.max_abs_error
    seen = error.reason if isinstance(error, NotMeasured) else f"error {error:.3g}"
    message = (
        f"{_after(session)} the graph path gives other {wrong.subject} than the normal path "
        f"({wrong.detail}, {seen}), though they agreed before"
    )
    otherwise = Reason.STATE_MUTATION if wrong.subject == "state" else Reason.WRONG_OUTPUT
    code = otherwise if session.workload.between is None else Reason.UNSTABLE_ADDRESS
    return _finding(session, log, code, message)


def _unsteady_finding(session: Session, log: TrialLog) -> Finding:
    message = (
        f"{_after(session)} the normal path does not repeat itself, so that nothing can be compared with it"
    )
    return _finding(session, log, Reason.UNMEASURABLE, message)


def _after(session: Session) -> str:
    """What came before the comparison."""
    if session.workload.between is None:
        return "after many requests"
    return f"after between(0) to between({session.next_index - 1})"


def _finding(session: Session, log: TrialLog, code: Reason, message: str) -> Finding:
    """Names ``between`` and its place where there is one: nothing else of the user's ran but the step."""
    declared = session.workload.between is not None
    return Finding(
        shape=log.shape,
        method=log.method,
        phase=log.phase,
        code=code,
        message=message,
        where=session.workload.where("between") if declared else "",
        advice=ADVICE if declared else "",
    )
