"""When requests are due: recorded times, repeated or cut, and Poisson ones."""

from __future__ import annotations

import statistics
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cudagraph_gate.pilot.arrivals import arrivals, has_rate, with_every_shape
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


# --- rare shapes ----------------------------------------------------------------------------------


WEIGHTS = st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=8)


@given(WEIGHTS, st.integers(2, 60), st.integers(0, 2**32 - 1))
@example([0.999, 0.001], 2, 0)
@example([1.0, 1e-9, 1e-9, 1e-9], 2, 1)
@settings(max_examples=100, deadline=None)
def test_every_shape_of_the_mix_is_drawn(weights: list[float], count: int, seed: int) -> None:
    mix = Mix(weights={f"s{index}": weight for index, weight in enumerate(weights)})
    drawn = arrivals(mix, count, seed)
    assert set(drawn.requests) == set(range(len(weights)))
    assert len(drawn.requests) == len(drawn.due_ns) == max(count, len(weights))
    assert drawn == arrivals(mix, count, seed)


@given(WEIGHTS, st.data(), st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_only_shapes_that_are_left_out_replace_requests(
    weights: list[float], data: st.DataObject, seed: int
) -> None:
    shape = st.integers(0, len(weights) - 1)
    before = data.draw(st.lists(shape, min_size=len(weights), max_size=60))
    after = with_every_shape(before, weights, seed)
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert sorted(changed) == sorted(set(range(len(weights))) - set(before))
    assert set(after) == set(range(len(weights)))


def test_the_shape_furthest_above_its_share_gives_a_request_away() -> None:
    shares = [0.5, 0.45, 0.05]  # of ten requests 5, 4.5 and 0.5: the second has 2.5 too many
    made = with_every_shape((0, 1, 1, 0, 1, 1, 0, 1, 1, 1), shares, 4)
    assert Counter(made) == {0: 3, 1: 6, 2: 1}
    assert made == with_every_shape((0, 1, 1, 0, 1, 1, 0, 1, 1, 1), shares, 4)


def test_a_rare_shape_late_in_the_recording_is_among_the_first_requests_at_their_times() -> None:
    mix = Mix(
        weights={"s": 0.9, "rare": 0.1}, shapes=("s",) * 9 + ("rare",), arrivals_ns=tuple(range(0, 100, 10))
    )
    cut, whole = arrivals(mix, 4, 0), arrivals(mix, 10, 0)
    assert Counter(cut.requests) == {0: 3, 1: 1}
    assert cut.due_ns == (0, 10, 20, 30)
    assert whole.requests == (0,) * 9 + (1,)


def test_more_shapes_than_requests_get_one_request_each() -> None:
    mix = Mix(weights=dict.fromkeys("abcde", 0.2))
    assert sorted(arrivals(mix, 2, 5).requests) == [0, 1, 2, 3, 4]
