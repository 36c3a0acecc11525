"""Arrays of nobody's request in the memory that the framework hands out: who writes to them is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from cudagraph_gate.pilot.digests import digest
from cudagraph_gate.pilot.session import Session

COPIES: Final = 4
"""Of each size: memory of one size that was freed lies in more than one place."""
LARGE_COPIES: Final = 1
SIZES_BYTES: Final = tuple(1 << power for power in range(8, 21))
"""256 bytes to 1 MiB: what shares an allocator's bins with scratch memory."""
LARGE_BYTES: Final = (2 << 20, 8 << 20)
"""Beyond torch's small pool, whose blocks end at 1 MiB."""
LIMIT_BYTES: Final = 64 << 20
"""Most memory of the arrays that are made like others, the small ones first: they are read back after each
round."""


class Guards:
    """Arrays with known values, allocated as the workload's own are."""

    def __init__(
        self, session: Session, like: Sequence[Any], *, sizes: bool, poisoned: bool, copies: int = COPIES
    ) -> None:
        """Some like each of ``like``, with its values or ``poisoned``; with ``sizes`` some of many sizes."""
        self._adapter = session.adapter
        held = [made for value in _distinct(session, like) for made in self._alike(value, copies)]
        plain = [made for value in _plain(session) for made in self._alike(*value)] if sizes else []
        for array in [*(held if poisoned else ()), *plain]:
            self._adapter.poison(array)
        session.device.synchronize()
        self._arrays = held + plain
        self._digests = [self._digest(array) for array in self._arrays]

    def _alike(self, value: Any, copies: int) -> list[Any]:
        return [self._adapter.static_like(value) for _ in range(copies)]

    def _digest(self, array: Any) -> str:
        return digest(self._adapter.to_host(array))

    def harmed(self) -> int:
        """How many no longer hold what they were given; 0 once they were freed."""
        pairs = zip(self._arrays, self._digests, strict=True)
        return sum(self._digest(array) != before for array, before in pairs)

    def free(self) -> None:
        """Drop them."""
        self._arrays, self._digests = [], []


def _distinct(session: Session, like: Sequence[Any]) -> list[Any]:
    """One array of each size, ascending, as far as they stay within the limit together."""
    adapter, chosen, total = session.adapter, [], 0
    by_size = {adapter.nbytes(value): value for value in like if adapter.nbytes(value)}
    for nbytes in sorted(by_size):
        total += nbytes * COPIES
        if total > LIMIT_BYTES:
            break
        chosen.append(by_size[nbytes])
    return chosen


def _plain(session: Session) -> list[tuple[Any, int]]:
    """Arrays of bytes to make others like, and how many of each."""
    sizes = [(nbytes, COPIES) for nbytes in SIZES_BYTES] + [(nbytes, LARGE_COPIES) for nbytes in LARGE_BYTES]
    return [(session.device.empty((nbytes,), np.uint8), copies) for nbytes, copies in sizes]
