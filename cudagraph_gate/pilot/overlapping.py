"""Requests that are submitted without waiting for each other: does a replay overtake what it depends on?

An application that waits after each request never sees this. One that keeps the stream filled may: a copy of
pageable memory, a side stream or a kernel that is not ordered then reads what the next request has written.
The stream is kept busy first, so that the host really runs ahead.
"""

from __future__ import annotations

from typing import Final

from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.comparing import compare_values
from cudagraph_gate.pilot.correctness import Expectation, Step
from cudagraph_gate.pilot.describing import described
from cudagraph_gate.pilot.scenarios.kernels import delay
from cudagraph_gate.pilot.session import Session
from cudagraph_gate.records import Finding, Method, Phase
from cudagraph_gate.workload import flatten

AHEAD_NS: Final = 5_000_000
"""For so long the stream is busy before the first request: submitting a whole trajectory by graphs takes
less, and by the normal path mostly too."""


def overlapped(session: Session, step: Step, expected: Expectation) -> str:
    """The first output of requests submitted without waiting that differs from the normal path; empty: none.

    Each request's outputs are copied on the stream before the next one is submitted, as an application
    would. Raises what the step raises.
    """
    adapter, shape = session.adapter, session.shape_name
    correctness.restore(session, expected.start)
    requests = [
        tuple(correctness.placed(session, value, number) for value in values)
        for number, values in enumerate(expected.start.requests)
    ]
    session.device.synchronize()
    delay(session.device, adapter.current_stream(), AHEAD_NS)
    kept = [correctness.copied(adapter, step(values)) for values in requests]
    adapter.synchronize()
    session.device.synchronize()
    for number, (moment, returned) in enumerate(zip(expected.normal.moments, kept, strict=True)):
        wanted = {f"output {name}": leaf for name, leaf in moment.outputs.items()}
        given = {
            f"output {name}": adapter.to_host(leaf)
            for name, leaf in flatten(returned)
            if adapter.is_device_array(leaf) and f"output {name}" in wanted
        }
        wanted = {name: leaf for name, leaf in wanted.items() if name in given}
        found = compare_values(shape, number, "outputs", wanted, given, expected.tolerances)
        if not found.equal:
            return described(found)
    return ""


def overlap_finding(
    session: Session, replay: Step, expected: Expectation, method: Method = "capture"
) -> Finding | None:
    """A condition of use where only replays go wrong without waiting; None where both paths are alike.

    Not tried where the application does something between requests.
    """
    if session.workload.between is not None:
        return None
    on_graph = overlapped(session, replay, expected)
    if not on_graph or overlapped(session, session.call, expected):
        return None
    return Finding(
        shape=session.shape_name,
        method=method,
        phase=Phase.TRAJECTORY,
        code=Reason.REPLAY_RACE,
        message=f"replays that do not wait for each other go wrong, the normal path does not ({on_graph})",
        advice="synchronise after each replay, or order what it reads by events of its stream",
        blocks=False,
    )
