"""Whole requests as a person reads them, in 80 columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from evidence_builder import MS, REQUESTS, spread

from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.gates.whole_request import WholeRequest, view_whole_request
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.records import Phase, PhaseStarted, StepShare, WholeRequests
from cudagraph_gate.report.console_whole_request import (
    print_whole_request,
    whole_request_notes,
    whole_request_rows,
)

Printed = Callable[..., str]
TRIAL = ShapeTrial(
    "b1",
    (
        PhaseStarted(shape="b1", phase=Phase.WHOLE_REQUEST),
        StepShare(shape="b1", requests=10, request_ns=100 * MS, step_ns=25 * MS, step_calls=10),
        *(
            WholeRequests(
                shape="b1",
                path=path,
                order=order,
                half="ab"[order % 2],
                latencies_ns=spread(p50_ns),
                cpu_ns=cpu_ns * REQUESTS,
                step_calls=REQUESTS,
            )
            for path, p50_ns, cpu_ns in (("normal", 10 * MS, 80_000), ("graph", 8 * MS, 20_000))
            for order in range(6)
        ),
    ),
)


def seen() -> WholeRequest:
    """The view of the trial."""
    view = view_whole_request(TRIAL)
    assert isinstance(view, WholeRequest)
    return view


def test_each_quantile_and_the_cpu_time_are_a_row() -> None:
    assert whole_request_rows(seen()) == [
        ("P50", "10.0 ms", "8.00 ms", "0.800", "0.800 to 0.800"),
        ("P95", "10.1 ms", "8.07 ms", "0.800", "0.800 to 0.800"),
        ("P99", "10.1 ms", "8.08 ms", "0.800", "0.800 to 0.800"),
        ("CPU", "80.0 µs", "20.0 µs", "", ""),
    ]


def test_a_quantile_of_too_few_requests_says_how_many_are_needed() -> None:
    few = replace(seen(), paths=replace(seen().paths, p99=NotMeasured(reason="P99 needs 100 requests")))
    assert whole_request_rows(few)[2] == ("P99", "P99 needs 100 requests", "", "", "")


def test_the_notes_say_what_the_graph_can_touch_and_what_it_did_not_serve() -> None:
    assert whole_request_notes(seen()) == [
        "1 call of the step in a request: the graph can touch 25.0 % of it"
    ]
    refused = replace(seen(), step_calls=32.5, refused_share=0.125, refusal="x has the shape (32,)")
    assert whole_request_notes(refused) == [
        "32.5 calls of the step in a request: the graph can touch 25.0 % of it",
        "12.5 % of the calls were not served by the graph: x has the shape (32,)",
    ]


def test_the_table_fits_and_names_the_shape(printed: Printed) -> None:
    lines = printed(print_whole_request, TRIAL).splitlines()
    assert lines[0].strip() == "whole request, shape b1"
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "1 call of the step in a request: the graph can touch 25.0 % of it"


def test_what_was_not_timed_is_said_and_what_was_not_to_be_is_not(printed: Printed) -> None:
    begun = ShapeTrial("b1", TRIAL.records[:1])
    assert printed(print_whole_request, begun).startswith("no whole request was timed: ")
    assert printed(print_whole_request, ShapeTrial("b1")) == ""
