"""Percentiles, ratios with intervals, and when there are too few requests to say anything."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.model import NotMeasured
from cudagraph_gate.stats import (
    compare_blocks,
    distribution,
    enough_requests,
    noise_floor,
    quantile_ns,
    requests_needed,
)

FLAT = [[100] * 5] * 4
latencies = st.integers(min_value=1, max_value=10**9)
blocks = st.lists(st.lists(latencies, min_size=1, max_size=5), min_size=1, max_size=4)


def test_percentiles_interpolate_between_neighbours():
    found = distribution(range(101))
    assert (found.count, found.p50, found.p95, found.p99) == (101, 50, 95, 99)
    assert (found.minimum, found.maximum) == (0, 100)


def test_percentiles_are_rounded_to_whole_ns():
    assert distribution([1, 2, 4, 4]).p50 == 3
    assert distribution([0, 10]).p95 == round(9.5)


def test_one_value_is_every_percentile():
    found = distribution([7])
    assert {found.p50, found.p95, found.p99, found.minimum, found.maximum} == {7}


def test_an_empty_sample_has_no_percentiles():
    with pytest.raises(ValueError, match="empty"):
        distribution([])


@given(st.lists(latencies, min_size=1, max_size=50))
def test_percentiles_are_in_order(sample: list[int]):
    found = distribution(sample)
    assert found.minimum <= found.p50 <= found.p95 <= found.p99 <= found.maximum


def test_a_quantile_is_taken_over_the_requests_of_all_blocks():
    assert quantile_ns([[1, 2], [3], [4, 5]], 0.5) == 3


def test_a_quantile_of_no_requests_is_refused():
    with pytest.raises(ValueError, match="no requests"):
        quantile_ns([[], []], 0.5)


def test_without_spread_the_interval_is_the_ratio():
    found = compare_blocks(FLAT, [[60] * 5] * 4, 0.5, seed=0)
    assert (found.ratio, found.low, found.high) == (0.6, 0.6, 0.6)


def test_spread_between_blocks_widens_the_interval():
    found = compare_blocks(FLAT, [[50] * 5, [60] * 5, [60] * 5, [70] * 5], 0.5, seed=0)
    assert found.ratio == 0.6
    assert 0.5 <= found.low < 0.6 < found.high <= 0.7


def test_blocks_are_resampled_whole():
    # Spread within blocks alone: every resample holds the same values, so the interval has no width.
    same = [[90, 100, 110]] * 5
    found = compare_blocks(same, same, 0.5, seed=0)
    assert (found.low, found.high) == (1.0, 1.0)


def test_the_same_seed_gives_the_same_interval():
    uneven = [[50], [60], [75], [90]]
    assert compare_blocks(FLAT, uneven, 0.5, seed=3) == compare_blocks(FLAT, uneven, 0.5, seed=3)


def test_blocks_may_differ_in_length_and_be_empty():
    assert compare_blocks([[100], []], [[50, 50, 50], [50]], 0.95, seed=0).ratio == 0.5


@pytest.mark.parametrize(("normal", "graph"), [([], [[1]]), ([[1]], [[]]), ([[0, 0]], [[1]])])
def test_no_ratio_without_requests_or_to_zero(normal: list[list[int]], graph: list[list[int]]):
    with pytest.raises(ValueError, match=r"no requests|zero"):
        compare_blocks(normal, graph, 0.5, seed=0)


@settings(max_examples=15, deadline=None)
@given(blocks, blocks, st.sampled_from([0.5, 0.95, 0.99]))
def test_the_ratio_lies_in_its_interval(normal: list[list[int]], graph: list[list[int]], quantile: float):
    found = compare_blocks(normal, graph, quantile, seed=0)
    assert 0 < found.low <= found.ratio <= found.high


def test_equal_halves_have_no_noise():
    assert noise_floor(FLAT, FLAT, 0.5, seed=0).upper == 0


def test_noise_is_the_distance_from_one_in_either_direction():
    slower = [[110] * 5] * 4
    assert noise_floor(FLAT, slower, 0.5, seed=0).value == pytest.approx(0.1)
    assert noise_floor(slower, FLAT, 0.5, seed=0).value == pytest.approx(1 - 100 / 110)


def test_the_bound_of_the_noise_is_its_farther_end():
    found = noise_floor(FLAT, [[90] * 5, [100] * 5, [100] * 5, [120] * 5], 0.5, seed=0)
    assert found.value == 0
    assert found.upper == pytest.approx(0.2)


@pytest.mark.parametrize(("quantile", "needed"), [(0.5, 2), (0.95, 20), (0.99, 100)])
def test_a_quantile_needs_a_request_beyond_it(quantile: float, needed: int):
    assert requests_needed(quantile) == needed
    assert enough_requests(needed, quantile) is None
    assert isinstance(enough_requests(needed - 1, quantile), NotMeasured)


def test_too_few_requests_are_named():
    absent = enough_requests(40, 0.99)
    assert absent is not None
    assert absent.reason == "P99 needs 100 requests per path, there are 40"
