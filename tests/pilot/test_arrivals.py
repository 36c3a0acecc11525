"""When requests are due: recorded times, repeated or cut, and Poisson ones."""

from __future__ import annotations

import statistics
from collections import Counter

import pytest

from cudagraph_gate.pilot.arrivals import arrivals, has_rate
from cudagraph_gate.workload.shapes import Mix


def recorded(*arrivals_ns: int) -> Mix:
    return Mix(weights={"s": 1.0}, shapes=("s",) * len(arrivals_ns), arrivals_ns=arrivals_ns)


def test_fewer_recorded_requests_are_repeated_and_more_are_cut() -> None:
    mix = recorded(0, 100, 400)
    assert arrivals(mix, 5, 0).due_ns == (0, 100, 400, 600, 700)
    assert arrivals(mix, 2, 0).due_ns == (0, 100)
    assert arrivals(mix, 5, 0).mean_gap_ns == 175


def test_a_burst_is_followed_to_its_end() -> None:
    assert arrivals(recorded(0, 0, 0, 0, 100), 2, 0).due_ns == (0, 0, 0, 0, 100)


def test_requests_that_all_came_at_once_have_no_rate_of_their_own() -> None:
    assert not has_rate(recorded(0, 0))
    assert arrivals(recorded(0, 0), 50, 3) == arrivals(Mix(weights={"s": 1.0}), 50, 3)


def test_scaling_keeps_the_rhythm() -> None:
    scaled = arrivals(recorded(0, 100, 400), 3, 0).at_mean_gap(1_000)
    assert scaled.due_ns == (0, 500, 2_000)


def test_fewer_drawn_requests_are_the_beginning_of_more() -> None:
    mix = Mix(weights={"s": 0.5, "m": 0.5})
    few, more = arrivals(mix, 10, 3), arrivals(mix, 20, 3)
    assert (few.requests, few.due_ns) == (more.requests[:10], more.due_ns[:10])


def test_one_request_has_no_rate() -> None:
    with pytest.raises(ValueError, match="no rate"):
        arrivals(recorded(0, 1), 1, 0)


def test_drawn_requests_keep_the_weights_and_are_a_poisson_process() -> None:
    mix = Mix(weights={"m": 0.75, "s": 0.25})
    drawn = arrivals(mix, 4_000, 1)
    assert drawn == arrivals(mix, 4_000, 1) != arrivals(mix, 4_000, 2)
    assert Counter(drawn.requests)[0] == pytest.approx(3_000, abs=120)
    gaps = [after - before for before, after in zip(drawn.due_ns, drawn.due_ns[1:], strict=False)]
    assert min(gaps) > 0
    assert statistics.stdev(gaps) == pytest.approx(statistics.fmean(gaps), rel=0.1)
