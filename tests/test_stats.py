"""Percentiles, ratios with intervals, and when there are too few requests to say anything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.model import NotMeasured
from cudagraph_gate.stats import (
    MOST_FURTHER_BLOCKS,
    Blocks,
    NoiseFloor,
    QuantileRatio,
    compare_blocks,
    distribution,
    enough_requests,
    faster,
    further_blocks,
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


# --- pairs ----------------------------------------------------------------------------------------


def test_a_drift_that_moves_neighbours_alike_cancels():
    drifting = [[ns] * 3 for ns in (1_000, 1_100, 1_250, 1_400)]
    halved = [[ns // 2 for ns in block] for block in drifting]
    together = compare_blocks(drifting, halved, 0.5, seed=0, paired=True)
    assert (together.low, together.high) == (0.5, 0.5)
    apart = compare_blocks(drifting, halved, 0.5, seed=0)
    assert apart.low < 0.45 < 0.55 < apart.high


def test_a_drift_is_no_noise_between_halves_that_share_it():
    one, other = ([[ns + step] * 3 for ns in (1_000, 1_100, 1_250, 1_400)] for step in (0, 1))
    assert noise_floor(one, other, 0.5, seed=0, paired=True).upper < 0.0011
    assert noise_floor(one, other, 0.5, seed=0).upper > 0.1


def test_unequal_numbers_of_blocks_are_drawn_apart():
    uneven = [[50], [60], [75]]
    assert compare_blocks(FLAT, uneven, 0.5, seed=3, paired=True) == compare_blocks(FLAT, uneven, 0.5, seed=3)


# --- faster ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("high", "noise", "answer"),
    [(0.96, 0.03, True), (0.96, 0.05, False), (1.01, 0.0, False), (1.0, 0.0, False), (0.999, 0.0, True)],
)
def test_faster_is_a_whole_interval_beyond_the_noise(high: float, noise: float, answer: bool):
    assert faster(QuantileRatio(0.9, 0.85, high), NoiseFloor(0.0, noise)) is answer


RATIO = QuantileRatio(ratio=0.9, low=0.82, high=0.98)
"""A gain of 10 %, give or take 8 %."""


def test_half_widths_shrink_with_the_root_of_the_blocks():
    # 8 % must become 5 %: (8 / 5)^2 = 2.56 times the blocks, 51.2 of 20.
    assert further_blocks(RATIO, NoiseFloor(0.0, 0.0), 0.05, 20) == 52 - 20


def test_the_noise_must_shrink_below_the_gain_too():
    # 8 % and 12 % must together become 10 %: four times the blocks.
    assert further_blocks(RATIO, NoiseFloor(0.0, 0.12), 0.05, 20) == 60


def test_a_gain_below_the_minimum_is_cleared_from_the_other_side():
    # The optimistic end is 18 %, 8 % above; it must come below 14 %: four times the blocks.
    assert further_blocks(RATIO, NoiseFloor(0.0, 0.0), 0.14, 20) == 60


@pytest.mark.parametrize("min_gain", [0.1, 0.0999, 0.1001])
def test_a_gain_at_the_minimum_is_never_told_from_it(min_gain: float):
    assert further_blocks(RATIO, NoiseFloor(0.0, 0.0), min_gain, 20) == MOST_FURTHER_BLOCKS


@given(st.floats(0.5, 1.2), st.floats(0, 0.3), st.floats(0, 0.3), st.floats(0, 0.3), st.integers(4, 100))
def test_so_many_further_blocks_decide(gain_at: float, below: float, above: float, noise: float, blocks: int):
    ratio = QuantileRatio(gain_at, gain_at - below, gain_at + above)
    further = further_blocks(ratio, NoiseFloor(0.0, noise), 0.05, blocks)
    assert 1 <= further <= MOST_FURTHER_BLOCKS
    if further < MOST_FURTHER_BLOCKS:
        shrink = 1.000001 * ((blocks + further) / blocks) ** 0.5
        then = QuantileRatio(gain_at, gain_at - below / shrink, gain_at + above / shrink)
        holds = faster(then, NoiseFloor(0.0, noise / shrink)) and 1 - then.high > 0.05
        assert holds or 1 - then.low < 0.05 + 1e-6


# --- how often the decision is right --------------------------------------------------------------

TRIALS = 100
JITTER, BLOCK_SD, WALK_SD = 0.02, 0.01, 0.01


def one_trial(seed: int, gain: float, walk_sd: float = 0.0, rounds: int = 20) -> bool:
    """Whether one trial with jitter, uneven blocks and a slow drift calls the graph path faster."""
    chance = np.random.default_rng(seed)
    drift = 1 + np.cumsum(chance.normal(0, walk_sd, rounds))

    def path(share: float) -> Blocks:
        level = 1e6 * share * drift * (1 + chance.normal(0, BLOCK_SD, rounds))
        jitter = 1 + JITTER * np.clip(chance.standard_normal((rounds, 5)), -3, 3)
        return np.rint(level[:, None] * jitter).astype(int).tolist()

    normal, graph = path(1), path(1 - gain)
    first = [2 * pair + int(chance.integers(2)) for pair in range(rounds // 2)]
    halves = [normal[turn] for turn in first], [normal[turn ^ 1] for turn in first]
    ratio = compare_blocks(normal, graph, 0.5, seed=0, paired=True)
    return faster(ratio, noise_floor(*halves, 0.5, seed=0, paired=True))


@pytest.mark.parametrize(("walk_sd", "rounds"), [(0.0, 20), (WALK_SD, 20), (0.0, 4)])
def test_equal_paths_are_called_faster_in_one_trial_of_a_hundred_at_most(walk_sd: float, rounds: int):
    assert sum(one_trial(seed, 0.0, walk_sd, rounds) for seed in range(TRIALS)) <= TRIALS // 100


@pytest.mark.parametrize("walk_sd", [0.0, WALK_SD])
def test_a_gain_of_five_percent_is_found_in_nineteen_trials_of_twenty(walk_sd: float):
    assert sum(one_trial(seed, 0.05, walk_sd) for seed in range(TRIALS)) >= TRIALS * 95 // 100
