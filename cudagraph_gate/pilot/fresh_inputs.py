"""Inputs at addresses that no request before had: what an application gives to a graph path of its own.

A path that keys its graphs by the address of its inputs captures anew for each one. Where requests rotate
over a few buffers that never shows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from cudagraph_gate.pilot.session import INPUT_SETS_BYTES, Inputs, Session

SIMULATED_BYTES: Final = 128 * 1024**2
"""Most memory for them on the simulated device, whose arrays lie in host memory."""
FEWEST: Final = 2


class FreshInputs:
    """Copies of some requests' inputs, held so that all of them differ in address, up to a limit.

    Inputs that may not change between replays stay where they are.
    """

    def __init__(
        self, session: Session, input_sets: Sequence[Inputs], limit_bytes: int = INPUT_SETS_BYTES
    ) -> None:
        self._adapter = session.adapter
        self._updatable = session.updatable()
        self._input_sets = input_sets
        self._held: deque[Inputs] = deque()
        self._made = 0
        limit = min(limit_bytes, SIMULATED_BYTES) if session.device.simulated else limit_bytes
        self.capacity: Final = max(FEWEST, limit // max(1, self._nbytes()))
        """How many fit. Those beyond take the places of the oldest, and may get their addresses."""

    def take(self, count: int) -> list[Inputs]:
        """``count`` new copies, the requests in turn, or as many as fit; held until others need the room."""
        count = min(count, self.capacity)
        while self._held and len(self._held) + count > self.capacity:
            self._held.popleft()
        taken = [self.copy() for _ in range(count)]
        self._held.extend(taken)
        self._adapter.synchronize()
        return taken

    def share(self, takers: int) -> int:
        """How many each of several takers may have so that no address comes twice."""
        return self.capacity // takers

    def free(self) -> None:
        """Hold none of them any longer."""
        self._held.clear()

    def copy(self) -> Inputs:
        """A copy of the next request's inputs that is not held: whoever drops it frees it."""
        values = self._input_sets[self._made % len(self._input_sets)]
        self._made += 1
        return tuple(map(self._copied, self._updatable, values))

    def _copied(self, moves: bool, value: Any) -> Any:
        return self._adapter.static_like(value) if moves else value

    def _nbytes(self) -> int:
        first = self._input_sets[0]
        sizes = zip(self._updatable, first, strict=True)
        return sum(self._adapter.nbytes(value) for moves, value in sizes if moves)
