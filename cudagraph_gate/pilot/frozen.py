"""Values that replays repeat and the normal path does not: the host changes them, the graph froze them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from cudagraph_gate.pilot.comparing import Moment, Trajectory, difference
from cudagraph_gate.pilot.correctness import Expectation, Step, follow
from cudagraph_gate.pilot.session import Session

FROZEN_DIFFERENCES: Final = 5
FROZEN_TRAJECTORIES: Final = 12
"""So many requests of the normal path must differ within so many trajectories while no replay does."""


def frozen(session: Session, replay: Step, expected: Expectation, actual: Trajectory) -> str:
    """A value that the normal path does not repeat while replays do, bit by bit; or empty.

    Noise of the device shows in both paths. What shows in one alone comes from the host, and the tolerance
    that it was given must not hide that the graph froze it. Where only some requests differ, trajectories
    are repeated until that is no chance.
    """
    varied = _differing(expected.normal, expected.repeated, expected.tolerances)
    names, normal, graph = set(varied), expected.repeated, actual
    if not names:
        return ""
    for _ in range(FROZEN_TRAJECTORIES):
        again = follow(session, replay, expected.start)
        names -= set(_differing(graph, again, expected.tolerances))
        settled = {name for name in names if varied[name] >= FROZEN_DIFFERENCES}
        if settled or not names:
            return min(settled, default="")
        further, graph = follow(session, session.call, expected.start), again
        varied.update(_differing(normal, further, expected.tolerances))
        normal = further
    return ""


def _differing(one: Trajectory, other: Trajectory, names: Iterable[str]) -> Counter[str]:
    """How many requests differ, by value; without those that never do."""
    pairs = list(zip(one.moments, other.moments, strict=True))
    return +Counter({name: sum(not _same(*pair, name) for pair in pairs) for name in names})


def _same(left: Moment, right: Moment, name: str) -> bool:
    return difference(left.values().get(name), right.values().get(name)).error == 0
