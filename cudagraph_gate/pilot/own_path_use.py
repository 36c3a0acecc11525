"""What only a graph path of the workload's own can get wrong: when it takes its inputs, and where it runs.

A path of ours copies every input and launches on the current stream. What ``build_graphed`` returns may leave
a copy out because it knows the array, or launch on a stream that nobody waits for.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any, Final

from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.correctness import Expectation, Step
from cudagraph_gate.pilot.describing import first_difference
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.records import Finding, Phase

LEFT_NS: Final = 20_000
"""Waiting for an idle device takes a few microseconds."""
LEFT_FACTOR: Final = 3
"""Of what is left of the normal path's requests, which may use streams of their own as well."""


def own_path_findings(session: Session, replay: Step, expected: Expectation) -> Iterator[Finding]:
    """What refuses such a path although its outputs agree, each input being new and the device idle."""
    if stale := stale_inputs(session, replay, expected):
        yield _finding(
            session,
            Reason.UNSTABLE_ADDRESS,
            f"where each request's values come in the arrays of the last one, {stale}: "
            "the path does not take them anew",
            "copy the inputs at every request, whatever arrays they come in",
        )
    if lost := lost_inputs(session, replay, expected):
        yield _finding(
            session,
            Reason.STATE_MUTATION,
            f"the path overwrites the caller's input {', '.join(lost)}, the normal path does not",
            "copy the inputs into buffers of the path's own, and work on those",
        )
    left_ns = left_running(session, replay, expected)
    if left_ns > max(LEFT_NS, LEFT_FACTOR * left_running(session, session.call, expected)):
        yield _finding(
            session,
            Reason.REPLAY_RACE,
            f"when the caller's stream is idle, work of a request still runs for {left_ns / 1e3:.0f} us: "
            "its outputs may be read too early, and its times are too short",
            "launch on the current stream, or let the current stream wait for the other one (an event)",
        )


def stale_inputs(session: Session, replay: Step, expected: Expectation) -> str:
    """How the path differs where all requests come in the same arrays, unless the normal path does too."""
    if difference := _in_same_arrays(session, replay, expected):
        return "" if _in_same_arrays(session, session.call, expected) else difference
    return ""


def lost_inputs(session: Session, replay: Step, expected: Expectation) -> tuple[str, ...]:
    """Inputs that the path changes and does not return, and that the normal path leaves as they are."""
    lost: dict[str, None] = {}

    def watch(given: Inputs, passed: Inputs, returned: Any) -> None:
        lost.update(dict.fromkeys(correctness.changed_unseen(session, given, passed, returned)))

    correctness.follow(session, replay, expected.start, after_each=watch)
    return tuple(name for name in lost if name not in expected.lost_inputs)


def left_running(session: Session, step: Step, expected: Expectation) -> int:
    """Median time that the device still works when the current stream is idle after a request, in ns."""
    clock, left = session.device.clock_ns, list[int]()

    def wait(_given: Inputs, _passed: Inputs, _returned: Any) -> None:
        start = clock()
        session.device.synchronize()
        left.append(clock() - start)

    correctness.follow(session, step, expected.start, after_each=wait)
    return round(statistics.median(left))


def _in_same_arrays(session: Session, step: Step, expected: Expectation) -> str:
    held: list[Inputs] = []

    def again(passed: Inputs) -> Any:
        if not held:
            held.append(passed)
        for target, source in zip(held[0], passed, strict=True):
            if target is not source:
                session.adapter.copy_into(target, source)
        return step(held[0])

    return first_difference(session, expected, again)


def _finding(session: Session, code: Reason, message: str, advice: str) -> Finding:
    return Finding(
        shape=session.shape_name,
        method="own",
        phase=Phase.TRAJECTORY,
        code=code,
        message=message,
        advice=advice,
    )
