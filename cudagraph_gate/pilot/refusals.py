"""What refuses a graph whose outputs agree over a trajectory."""

from __future__ import annotations

from collections.abc import Iterator

from cudagraph_gate.pilot.correctness import Expectation, Step
from cudagraph_gate.pilot.host_metadata import metadata_finding
from cudagraph_gate.pilot.many_requests import rare_request_finding
from cudagraph_gate.pilot.own_path_use import own_path_findings
from cudagraph_gate.pilot.session import Session
from cudagraph_gate.pilot.steadiness import odd_call_finding
from cudagraph_gate.records import Finding, Method


def refusals(
    session: Session, replay: Step, expected: Expectation, seed: int, sets: int, method: Method
) -> Iterator[Finding]:
    """What shows where requests come otherwise than the trajectory's, or more often.

    ``seed`` and ``sets`` are those of the trajectory's inputs. Raises what a path raises.
    """
    if found := odd_call_finding(session, expected, method):
        yield found
    if found := metadata_finding(session, replay, expected, seed, sets, method):
        yield found
    if found := rare_request_finding(session, replay, expected, seed, method):
        yield found
    if method == "own":
        yield from own_path_findings(session, replay, expected)
