"""What the application does between requests, called where requests are timed, recorded and repeated.

A graph stands or falls with what happens around it: weights that are loaded anew, caches that are reset. So
the workload's ``between(i)`` is called after requests in every phase, never within a timed span, and the
device is waited for. ``i`` counts on from phase to phase, and for both paths alike.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Final

from cudagraph_gate.pilot.session import Session

BUDGET_S: Final = 10.0
"""Most wall time that a phase spends in it: a reload of weights takes seconds, and thousands of requests are
timed."""

Pause = Callable[[], None]
"""Called next to each request, outside its time."""


class Between:
    """Calls ``between`` for one phase and keeps account of the wall time that it takes."""

    def __init__(self, session: Session, budget_s: float = BUDGET_S) -> None:
        self._session = session
        self._budget_s = budget_s
        self.declared = session.workload.between is not None
        self.spent_s = 0.0
        self._calls = 0

    def call(self, index: int | None = None) -> None:
        """Call it with ``index``, by default the next one, and wait for what it enqueued.

        Nothing happens where the workload has none. Raises what :meth:`Session.between` raises.
        """
        if not self.declared:
            return
        session, start = self._session, time.perf_counter()
        session.between(session.next_index if index is None else index)
        session.device.synchronize()
        self.spent_s += time.perf_counter() - start
        self._calls += 1

    def prepare(self) -> Pause | None:
        """Calls it before each request while the budget lasts; None where there is nothing to call."""
        if not self.declared:
            return None

        def pause() -> None:
            if self.spent_s < self._budget_s:
                self.call()

        return pause

    def spread(self, requests: int, shares: int) -> Mapping[int, int]:
        """The index of each call in a run of requests, by the place of the request in it.

        One for each request, or fewer, evenly over the run: what one of ``shares`` equal shares of the rest
        of the budget pays for, at least one. Runs that follow the same spread see the same.
        """
        if not self.declared:
            return {}
        calls = min(requests, self.affordable(shares))
        first = self._session.next_index
        return {number * requests // calls: first + number for number in range(calls)}

    def paused(self, spread: Mapping[int, int]) -> Pause | None:
        """What to call once for each request of a run; None where there is nothing to call."""
        if not self.declared:
            return None
        places = itertools.count()

        def pause() -> None:
            index = spread.get(next(places))
            if index is not None:
                self.call(index)

        return pause

    def affordable(self, shares: int) -> int:
        """How many calls a share of the rest of the budget pays for, by what they took; at least one."""
        mean_s = max(self.spent_s / max(self._calls, 1), 1e-9)
        return max(1, int((self._budget_s - self.spent_s) / (max(shares, 1) * mean_s)))
