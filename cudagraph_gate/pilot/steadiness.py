"""Many calls of the normal path from one state on one request: does the host decide otherwise now and then?

A counter, a log that is written at every fiftieth call, a rate that is lowered now and then: a trajectory of
a few requests never meets it, and replays leave it out for ever.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np

from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.comparing import REPEAT_LIMIT, difference
from cudagraph_gate.pilot.correctness import Expectation
from cudagraph_gate.pilot.digests import changed_state
from cudagraph_gate.pilot.session import Session
from cudagraph_gate.records import Finding, Method, Phase
from cudagraph_gate.workload import flatten

CALLS: Final = 128
"""What happens at every 50th or 100th call has happened then."""
BUDGET_S: Final = 5.0
"""Slow steps are called less often."""


def odd_call(session: Session, expected: Expectation) -> tuple[int, str] | None:
    """The first call whose outputs stray far from the first one's, and which output; None: there is none.

    Or the first one that changes state, and which: a trajectory did not. Where requests change state anyway
    their outputs follow from it, and nothing is said. Noise of the device, which may show up late, stays far
    below the limit. Raises what the step raises.
    """
    if expected.start.changing:
        return None
    correctness.restore(session, expected.start)
    given, first = expected.start.requests[0], dict[str, Any]()
    end = time.monotonic() + BUDGET_S
    for number in range(CALLS):
        session.adapter.set_random_state(expected.start.random)
        outputs = session.call(tuple(map(session.adapter.static_like, given)))
        session.adapter.synchronize()
        leaves = {name: leaf for name, leaf in flatten(outputs) if session.adapter.is_device_array(leaf)}
        if number == 0:
            first = {name: session.adapter.static_like(leaf) for name, leaf in leaves.items()}
        for name, leaf in leaves.items():
            if name not in first or _strays(session, first[name], leaf):
                return number, name
        if changed := changed_state(session, expected.start.state):
            return number, f"state {min(changed)}"
        if time.monotonic() > end:
            break
    return None


def odd_call_finding(session: Session, expected: Expectation, method: Method = "capture") -> Finding | None:
    """What refuses a graph of such a step."""
    found = odd_call(session, expected)
    if found is None:
        return None
    number, name = found
    which = name if name == "output" or name.startswith("state ") else f"output {name}"
    return Finding(
        shape=session.shape_name,
        method=method,
        phase=Phase.TRAJECTORY,
        code=Reason.FROZEN_HOST_STATE,
        message=f"call {number + 1} of the normal path gives another {which} than those before it, from the "
        "same state and inputs: something on the host decides, and replays leave it out",
        advice="keep what changes from call to call (counters, schedules) in device memory",
    )


def _strays(session: Session, first: Any, now: Any) -> bool:
    if session.adapter.same_values(first, now):
        return False
    want, got = session.adapter.to_host(first), session.adapter.to_host(now)
    error = difference(want, got).error
    finite = np.abs(want[np.isfinite(want)]) if want.dtype.kind in "fc" else np.abs(want.astype(np.float64))
    return bool(error > REPEAT_LIMIT * float(np.max(finite, initial=0.0)))
