"""The rule for a gain: beyond its interval, the noise and the minimum, and never otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.gates.gain import GainAnswer, gain_check, judge_gain, tail_check
from cudagraph_gate.gates.latency import QuantilePair, pair_of
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.stats import NoiseFloor, QuantileRatio

QUIET = NoiseFloor(0.0, 0.0)


def ratio(low: float, high: float) -> QuantileRatio:
    return QuantileRatio((low + high) / 2, low, high)


def pair(low: float, high: float, noise: float = 0.0) -> QuantilePair:
    """A normal path of 1 ms."""
    found = ratio(low, high)
    return QuantilePair(1_000_000, round(1_000_000 * found.ratio), found, NoiseFloor(noise, noise))


# --- the rule -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "noise", "answer"),
    [
        (0.60, 0.70, 0.00, GainAnswer.ENOUGH),
        (0.60, 0.70, 0.29, GainAnswer.ENOUGH),
        (0.60, 0.70, 0.31, GainAnswer.UNSURE),  # the noise reaches into the interval
        (0.90, 0.94, 0.00, GainAnswer.ENOUGH),
        (0.90, 0.96, 0.00, GainAnswer.UNSURE),
        (0.90, 1.10, 0.00, GainAnswer.UNSURE),
        (0.95, 0.99, 0.00, GainAnswer.UNSURE),
        (0.96, 0.99, 0.00, GainAnswer.TOO_SMALL),
        (1.01, 1.02, 0.00, GainAnswer.SLOWER),
        (1.01, 1.02, 0.05, GainAnswer.TOO_SMALL),  # slower, but by no more than the noise
    ],
)
def test_the_interval_the_noise_and_the_minimum_decide(
    low: float, high: float, noise: float, answer: GainAnswer
) -> None:
    assert judge_gain(ratio(low, high), NoiseFloor(noise, noise), 0.05) is answer


shares = st.floats(0.01, 2.0)


@given(shares, shares, st.floats(0, 1), st.floats(0, 1))
def test_a_gain_inside_the_noise_or_below_the_minimum_is_never_one(
    one: float, other: float, noise: float, minimum: float
) -> None:
    found = ratio(min(one, other), max(one, other))
    if judge_gain(found, NoiseFloor(noise, noise), minimum) is GainAnswer.ENOUGH:
        assert 1 - found.high > max(0.0, noise, minimum)


BETTER = {"slower": 0, "too_small": 0, "unsure": 1, "enough": 2}


@given(shares, shares, st.floats(0, 1), st.floats(0, 0.5), st.floats(0, 1))
def test_a_slower_graph_never_gets_a_better_answer(
    one: float, other: float, noise: float, slower: float, minimum: float
) -> None:
    low, high = min(one, other), max(one, other)
    floor = NoiseFloor(noise, noise)
    was, is_now = (judge_gain(ratio(low + by, high + by), floor, minimum) for by in (0.0, slower))
    assert BETTER[is_now] <= BETTER[was]


@given(shares, shares, st.floats(0, 1), st.floats(0, 1))
def test_more_noise_never_makes_a_gain(one: float, other: float, noise: float, more: float) -> None:
    found = ratio(min(one, other), max(one, other))
    was, is_now = (judge_gain(found, NoiseFloor(each, each), 0.05) for each in (noise, noise + more))
    assert (is_now is GainAnswer.ENOUGH) <= (was is GainAnswer.ENOUGH)


# --- in words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_pair", "status", "code", "sentence"),
    [
        (
            pair(0.5, 0.6),
            GateStatus.PASS,
            None,
            "P50 1.00 ms normal, 550 µs graph, gain 45.0 % (40.0 % to 50.0 %)",
        ),
        (
            pair(1.2, 1.4),
            GateStatus.FAIL,
            Reason.REGRESS,
            "the graph is slower: P50 1.00 ms normal, 1.30 ms graph, gain -30.0 % (-40.0 % to -20.0 %)!0.0",
        ),
        (
            pair(0.96, 1.0),
            GateStatus.FAIL,
            Reason.NO_GAIN,
            "P50 1.00 ms normal, 980 µs graph, gain 2.0 % (0.0 % to 4.0 %), below the minimum 5.0 %!0.05",
        ),
        (
            pair(0.8, 1.0),
            GateStatus.UNKNOWN,
            Reason.UNMEASURABLE,
            "P50 1.00 ms normal, 900 µs graph, gain 10.0 % (0.0 % to 20.0 %): "
            "not clearly beyond the minimum 5.0 %, later",
        ),
        (
            pair(0.8, 0.8, noise=0.25),
            GateStatus.UNKNOWN,
            Reason.UNMEASURABLE,
            "P50 1.00 ms normal, 800 µs graph, gain 20.0 % (20.0 % to 20.0 %): "
            "not clearly beyond the noise floor 25.0 %, later",
        ),
    ],
)
def test_each_answer_has_its_sentence_and_code(
    given_pair: QuantilePair, status: GateStatus, code: Reason | None, sentence: str
) -> None:
    found = gain_check("P50", given_pair, Policy(), cause=lambda gain: f"!{gain}", outlook=", later")
    assert (found.status, found.code, found.sentence) == (status, code, sentence)


@pytest.mark.parametrize(
    ("given_pair", "status"),
    [
        (pair(0.9, 1.2), GateStatus.PASS),  # exactly the limit
        (pair(1.04, 1.08), GateStatus.UNKNOWN),
        (pair(1.06, 1.08), GateStatus.FAIL),
        (pair(1.06, 1.08, noise=0.07), GateStatus.UNKNOWN),
    ],
)
def test_a_tail_is_too_long_only_beyond_its_interval_and_noise(
    given_pair: QuantilePair, status: GateStatus
) -> None:
    assert tail_check("P95", given_pair, Policy()).status is status


# --- pairs from blocks ----------------------------------------------------------------------------


def test_the_noise_is_that_of_the_normal_paths_halves() -> None:
    normal = [(100,), (125,)] * 4
    found = pair_of(normal, [(50,)] * 8, 0.5, paired=True)
    assert isinstance(found, QuantilePair)
    assert found.noise.upper == pytest.approx(0.25)  # 125 over 100
    quiet = pair_of(normal, [(50,)] * 8, 0.5, paired=True, halves=(normal[:4], normal[4:]))
    assert isinstance(quiet, QuantilePair)
    assert quiet.noise.value == 0
    assert quiet.ratio.ratio == pytest.approx(50 / 112.5)


@pytest.mark.parametrize(
    ("normal", "graph", "reason"),
    [
        ([(1,)] * 3, [(1,)] * 4, "3 blocks of the normal path, 4 are needed"),
        ([(1,)] * 4, [], "0 blocks of the graph path, 4 are needed"),
        ([(0,)] * 4, [(1,)] * 4, "a path takes no time: the clock is too coarse"),
        ([(1,)] * 4, [(0,)] * 4, "a path takes no time: the clock is too coarse"),
    ],
)
def test_too_little_gives_no_pair(
    normal: list[tuple[int, ...]], graph: list[tuple[int, ...]], reason: str
) -> None:
    assert pair_of(normal, graph, 0.5) == NotMeasured(reason=reason)
