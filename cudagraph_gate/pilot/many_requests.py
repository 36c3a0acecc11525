"""Many different requests by both paths: what is wrong for one request in fifty, a trajectory hardly meets.

A position at the end of a buffer, a length at a limit, a rare branch. Only where requests change no state,
and the normal path repeats itself bit by bit: of so many, noise would exceed any tolerance once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.correctness import Expectation, Step
from cudagraph_gate.pilot.describing import described
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.records import Comparison, Finding, Method, Phase

REQUESTS: Final = 192
"""What is wrong for one request in 64 is met with 95 %."""
BUDGET_S: Final = 4.0
"""Slow requests are fewer."""
AT_ONCE: Final = 5
"""Compared as one trajectory."""


def rare_request_finding(
    session: Session, replay: Step, expected: Expectation, seed: int, method: Method = "capture"
) -> Finding | None:
    """What refuses a graph that is wrong for one of many requests; None: for none that was tried."""
    if expected.start.changing or any(expected.tolerances.values()) or session.workload.check is not None:
        return None
    tried, end = 0, time.monotonic() + BUDGET_S
    while tried < REQUESTS and time.monotonic() < end:
        made = list(_made(session, expected, range(seed + tried + 1, seed + tried + 1 + AT_ONCE)))
        if wrong := _wrong(session, replay, expected, made):
            return _finding(session, wrong, seed + tried + 1 + wrong.request, method)
        tried += AT_ONCE
    return None


def _made(session: Session, expected: Expectation, seeds: range) -> Iterator[Inputs]:
    """Inputs of further seeds, as far as the workload makes them; those that may not change as captured."""
    first = expected.start.requests[0]
    for seed in seeds:
        try:
            yield from session.baked([session.inputs(seed)], first)
        except WorkloadError:  # it need not accept each seed
            return


def _wrong(
    session: Session, replay: Step, expected: Expectation, requests: list[Inputs]
) -> Comparison | None:
    start = replace(expected.start, requests=requests)
    normal = correctness.follow(session, session.call, start, alone=True)
    actual = correctness.follow(session, replay, start, alone=True)
    wanted = replace(expected, start=start, normal=normal, repeated=normal)
    return next((each for each in correctness.compare_paths(session, wanted, actual) if not each.equal), None)


def _finding(session: Session, wrong: Comparison, seed: int, method: Method) -> Finding:
    return Finding(
        shape=session.shape_name,
        method=method,
        phase=Phase.TRAJECTORY,
        code=Reason.WRONG_OUTPUT,
        message=f"the graph path is wrong for the inputs of seed {seed} ({described(wrong)}), "
        "though it was right for others",
        advice="compare what the graph does for these inputs: a limit, a position or a branch of the host",
    )
