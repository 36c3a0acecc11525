"""Which shapes to capture: hand-made mixes, and what must hold for any."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.gates.shape_choice import (
    EXACT_SHAPES,
    KEEP,
    ShapeCost,
    choose_buckets,
    choose_shapes,
    paddings,
)
from cudagraph_gate.model import NotMeasured

MIB = 1 << 20
ROOMY = 1 << 40


def cost(
    name: str, share: float, normal_ns: int, graph_ns: int, mib: int = 1, value: Any = None
) -> ShapeCost:
    return ShapeCost(name, share, normal_ns, graph_ns, mib * MIB, value)


MIX = (
    cost("b1", 0.60, 1_000, 500, 10, (1, 128)),  # 300 ns of the average request
    cost("b2", 0.30, 1_200, 700, 20, (2, 128)),  # 150
    cost("b4", 0.09, 1_500, 1_000, 40, (4, 128)),  # 45
    cost("b8", 0.01, 2_000, 1_500, 80, (8, 128)),  # 5
)


# --- without padding ------------------------------------------------------------------------------


def test_the_fewest_shapes_that_keep_95_percent():
    found = choose_shapes(MIX, ROOMY)
    assert found.shapes == ("b1", "b2", "b4")
    assert found.gain_ns == pytest.approx(495)
    assert found.kept == pytest.approx(0.99)
    assert found.nbytes == 70 * MIB
    assert found.served_by == {"b1": "b1", "b2": "b2", "b4": "b4"}
    assert found.exact


@pytest.mark.parametrize(
    ("budget_mib", "shapes", "kept"),
    [
        (69, ("b1", "b2"), 0.90),
        (29, ("b1",), 0.60),
        (9, (), 0.0),
    ],
)
def test_a_budget_that_does_not_hold_them_keeps_the_most_gain(
    budget_mib: int, shapes: tuple[str, ...], kept: float
):
    found = choose_shapes(MIX, budget_mib * MIB)
    assert (found.shapes, found.kept) == (shapes, pytest.approx(kept))


def test_two_small_graphs_beat_a_large_one_that_fills_the_budget():
    shapes = [cost("big", 0.4, 200, 100, 10), cost("x", 0.3, 200, 100, 5), cost("y", 0.3, 200, 100, 5)]
    assert choose_shapes(shapes, 10 * MIB).shapes == ("x", "y")


def test_of_equally_good_sets_the_one_with_less_memory():
    shapes = [cost("a", 0.5, 200, 100, 9), cost("b", 0.5, 200, 100, 3)]
    assert choose_shapes(shapes, ROOMY, keep=0.5).shapes == ("b",)


def test_shapes_that_lose_are_left_out_and_do_not_count():
    found = choose_shapes([cost("good", 0.1, 200, 100), cost("bad", 0.9, 100, 200)], ROOMY)
    assert (found.shapes, found.kept) == (("good",), 1.0)


@pytest.mark.parametrize("shapes", [[], [cost("bad", 1.0, 100, 100)]])
def test_where_nothing_gains_nothing_is_kept(shapes: list[ShapeCost]):
    found = choose_shapes(shapes, ROOMY)
    assert (found.shapes, found.gain_ns, found.served_by) == ((), 0.0, {})
    assert found.kept == NotMeasured(reason="no shape gains from a graph")


# --- with padding ---------------------------------------------------------------------------------


def test_a_larger_graph_serves_smaller_requests_where_that_gains():
    # b4 for all: 0.6 x (1000 - 1000) + 0.3 x (1200 - 1000) + 0.09 x 500 = 105;
    # b2 for b1 and b2: 0.6 x (1000 - 700) + 0.3 x 500 = 330.
    found = choose_buckets(MIX, ROOMY, keep=0.66)
    assert found.shapes == ("b2",)
    assert found.served_by == {"b1": "b2", "b2": "b2"}
    assert found.gain_ns == pytest.approx(330)
    assert choose_shapes(MIX, ROOMY, keep=0.66).shapes == ("b1", "b2")


def test_padding_pairs_name_gain_and_waste():
    found = {(pair.shape, pair.by): pair for pair in paddings(MIX)}
    assert set(found) == {("b1", "b2"), ("b1", "b4"), ("b1", "b8"), ("b2", "b4"), ("b2", "b8"), ("b4", "b8")}
    assert found["b1", "b2"].gain_ns == pytest.approx(0.6 * 300)
    assert found["b1", "b2"].waste == 0.5
    assert found["b1", "b8"].gain_ns == pytest.approx(0.6 * -500)
    assert found["b1", "b8"].waste == 0.875


@pytest.mark.parametrize(
    ("small", "large", "padded"),
    [
        (4, 8, True),
        (8, 4, False),
        (4, 4, False),
        ((2, 16), (2, 32), True),
        ((2, 64), (4, 32), False),
        ((2,), (2, 2), False),
        ((2,), 4, True),
        ("s", "l", False),
        (None, None, False),
        (True, 4, False),
        (1.5, 4, False),
        ((), (4,), False),
    ],
)
def test_only_whole_dimensions_that_are_no_smaller_can_be_padded_to(small: Any, large: Any, padded: bool):
    shapes = [cost("small", 0.5, 200, 100, value=small), cost("zlarge", 0.5, 200, 150, value=large)]
    assert (("small", "zlarge") in {(pair.shape, pair.by) for pair in paddings(shapes)}) is padded


def test_padding_to_a_shape_without_elements_wastes_nothing():
    (pair,) = paddings([cost("a", 0.5, 2, 1, value=(0, 1)), cost("b", 0.5, 2, 1, value=(0, 2))])
    assert pair.waste == 0


# --- many shapes ----------------------------------------------------------------------------------


def test_many_shapes_that_all_fit_are_still_chosen_exactly():
    shapes = [cost(f"s{index:02}", 0.04, 1_000, 1_000 - 10 * index) for index in range(1, 26)]
    found = choose_shapes(shapes, ROOMY)
    gains = sorted((each.gain_ns for each in shapes), reverse=True)
    needed = next(count for count in range(26) if sum(gains[:count]) >= KEEP * sum(gains))
    assert (len(found.shapes), found.exact) == (needed, True)


@given(st.integers(0, 10_000), st.integers(15, 60))
@settings(deadline=None, max_examples=25)
def test_greedy_gains_at_least_half_of_the_fractional_best(seed: int, budget_mib: int):
    chance = random.Random(seed)
    shapes = [
        cost(f"s{index}", chance.random(), 1_000, chance.randrange(1_000), chance.randint(1, 20))
        for index in range(EXACT_SHAPES + 10)
    ]
    found = choose_shapes(shapes, budget_mib * MIB)
    assert found.nbytes <= budget_mib * MIB
    # The fractional knapsack is an upper bound of every set; greedy stops where 95 % of all gain is kept.
    left, bound = float(budget_mib * MIB), 0.0
    fitting = [each for each in shapes if each.nbytes <= budget_mib * MIB]
    for each in sorted(fitting, key=lambda each: each.gain_ns / each.nbytes, reverse=True):
        taken = min(1.0, left / each.nbytes)
        left, bound = left - taken * each.nbytes, bound + taken * each.gain_ns
    assert found.gain_ns >= min(bound / 2, KEEP * sum(each.gain_ns for each in shapes)) * (1 - 1e-6)


# --- what holds for any mix -----------------------------------------------------------------------

dimension = st.integers(1, 4)
measured = st.builds(
    lambda share, normal, graph, mib, value: (share, normal, graph, mib, value),
    st.integers(0, 20),
    st.integers(1, 100),
    st.integers(1, 100),
    st.integers(0, 8),
    st.one_of(dimension, st.tuples(dimension, dimension), st.none()),
)
mixes = st.lists(measured, max_size=7).map(
    lambda rows: [cost(f"s{index}", *row) for index, row in enumerate(rows)]
)
budgets = st.integers(0, 40)


def gain_of(shapes: list[ShapeCost], chosen: tuple[str, ...]) -> float:
    return sum(each.gain_ns for each in shapes if each.name in chosen)


@given(mixes, budgets)
@settings(deadline=None)
def test_the_answer_keeps_the_budget_and_leaves_losers_out(shapes: list[ShapeCost], budget_mib: int):
    for found in (choose_shapes(shapes, budget_mib * MIB), choose_buckets(shapes, budget_mib * MIB)):
        chosen = [each for each in shapes if each.name in found.shapes]
        assert found.nbytes == sum(each.nbytes for each in chosen) <= budget_mib * MIB
        assert all(each.gain_ns > 0 for each in chosen)
        assert set(found.served_by.values()) <= set(found.shapes)


@given(mixes)
@settings(deadline=None)
def test_a_budget_for_all_keeps_95_percent(shapes: list[ShapeCost]):
    everything = sum(each.nbytes for each in shapes)
    for found in (choose_shapes(shapes, everything), choose_buckets(shapes, everything)):
        assert isinstance(found.kept, NotMeasured) or found.kept >= KEEP * (1 - 1e-6)


@given(mixes, budgets)
@settings(deadline=None)
def test_no_smaller_set_suffices_and_none_of_its_size_gains_more(shapes: list[ShapeCost], budget_mib: int):
    found = choose_shapes(shapes, budget_mib * MIB)
    total = sum(max(0.0, each.gain_ns) for each in shapes)
    names = [each.name for each in shapes]
    nbytes = {each.name: each.nbytes for each in shapes}
    for size in range(len(found.shapes) + 1):
        for other in itertools.combinations(names, size):
            if sum(nbytes[name] for name in other) <= budget_mib * MIB:
                gain = gain_of(shapes, other)
                assert gain <= found.gain_ns + 1e-6
                assert size == len(found.shapes) or gain < KEEP * total or total == 0


@given(mixes, budgets)
@settings(deadline=None)
def test_where_95_percent_is_not_kept_no_set_gains_more(shapes: list[ShapeCost], budget_mib: int):
    found = choose_shapes(shapes, budget_mib * MIB)
    if isinstance(found.kept, NotMeasured) or found.kept >= KEEP * (1 - 1e-6):
        return
    for size in range(len(shapes) + 1):
        for other in itertools.combinations(shapes, size):
            if sum(each.nbytes for each in other) <= budget_mib * MIB:
                assert sum(each.gain_ns for each in other) <= found.gain_ns + 1e-6


@given(mixes, budgets)
@settings(deadline=None)
def test_padding_never_needs_more_shapes_for_the_same_gain(shapes: list[ShapeCost], budget_mib: int):
    plain, padded = choose_shapes(shapes, budget_mib * MIB), choose_buckets(shapes, budget_mib * MIB)
    if isinstance(plain.kept, float) and isinstance(padded.kept, float):
        assert padded.kept >= min(plain.kept, KEEP) * (1 - 1e-6)
        if plain.kept >= KEEP:
            assert len(padded.shapes) <= len(plain.shapes)


@given(mixes, budgets, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_the_shapes_changes_nothing(
    shapes: list[ShapeCost], budget_mib: int, chance: random.Random
):
    shuffled = chance.sample(shapes, len(shapes))
    assert choose_shapes(shuffled, budget_mib * MIB) == choose_shapes(shapes, budget_mib * MIB)
    assert choose_buckets(shuffled, budget_mib * MIB) == choose_buckets(shapes, budget_mib * MIB)
    assert paddings(shuffled) == paddings(shapes)
