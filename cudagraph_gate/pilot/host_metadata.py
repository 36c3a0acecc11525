"""What ``inputs()`` leaves on the host for the step, which reads it when it is called: lengths, positions.

The trajectory's inputs are made before its first request, so that all requests find what the last call left.
In an application each request finds its own, and a graph keeps that of its capture.
"""

from __future__ import annotations

from dataclasses import replace

from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.correctness import TRAJECTORY_REQUESTS, Expectation, Step, beginning
from cudagraph_gate.pilot.describing import first_unequal
from cudagraph_gate.pilot.session import Session
from cudagraph_gate.records import Finding, Method, Phase


def metadata_finding(
    session: Session, replay: Step, expected: Expectation, seed: int, sets: int, method: Method = "capture"
) -> Finding | None:
    """What refuses a graph that is wrong once each request's inputs are made right before it; None: nothing.

    ``seed`` and ``sets`` say which inputs the requests have: ``seed + request % sets``.
    """
    known = beginning(expected, TRAJECTORY_REQUESTS)

    def made(request: int) -> None:
        session.inputs(seed + request % sets)

    own = correctness.follow(session, session.call, known.start, before_each=made)
    if not first_unequal(session, known, own):
        return None
    actual = correctness.follow(session, replay, known.start, before_each=made)
    difference = first_unequal(session, replace(known, normal=own), actual)
    if not difference:
        return None
    return Finding(
        shape=session.shape_name,
        method=method,
        phase=Phase.TRAJECTORY,
        code=Reason.FROZEN_HOST_STATE,
        message=f"inputs() leaves something on the host that the step reads: made right before its request, "
        f"{difference}",
        advice="pass what differs from request to request to the step in device memory",
    )
