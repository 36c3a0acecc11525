"""What counts as equal, how far apart values are, and which tolerance the normal path's own noise gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.device.port import HostArray
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.pilot.comparing import (
    Moment,
    Trajectory,
    compare_final_state,
    compare_repeats,
    compare_values,
    difference,
    repeat_tolerances,
    uninformative,
)

NAN, INF = float("nan"), float("inf")


def f32(*values: float) -> HostArray:
    return np.array(values, np.float32)


def trajectory(*outputs: object, state: object = None) -> Trajectory:
    kept = {} if state is None else {"acc": state}
    return Trajectory(tuple(Moment(outputs={"y": value}, state=kept) for value in outputs), {})


# --- one value ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "actual", "error"),
    [
        (f32(1, 2), f32(1, 2), 0.0),
        (f32(1, 2), f32(1, 2.5), 0.5),
        (f32(NAN, 1), f32(NAN, 1), 0.0),
        (f32(NAN, 1), f32(NAN, 1.25), 0.25),
        (f32(INF, -INF), f32(INF, -INF), 0.0),
        (f32(0.0), f32(-0.0), 0.0),
        (np.array([1 + 1j]), np.array([1 + 3j]), 2.0),
        (np.array([200], np.uint8), np.array([250], np.uint8), 50.0),
        (np.array([True, False]), np.array([True, True]), 1.0),
        (f32(), f32(), 0.0),
        (3, 3, 0.0),
        ("tokens", "tokens", 0.0),
        (NAN, NAN, 0.0),
    ],
)
def test_difference_of_what_can_be_subtracted(expected: object, actual: object, error: float) -> None:
    assert difference(expected, actual).error == error
    assert difference(expected, actual).why_infinite == ""


@pytest.mark.parametrize(
    ("expected", "actual", "why"),
    [
        (f32(1, 2), f32(1), "float32(1,) for float32(2,)"),
        (f32(1), np.array([1.0]), "float64(1,) for float32(1,)"),
        (f32(1), f32(NAN), "NaN or infinity where the other is a number"),
        (f32(NAN), f32(1), "NaN or infinity where the other is a number"),
        (f32(INF), f32(-INF), "NaN or infinity where the other is a number"),
        (3, 4, "4 for 3"),
        (1, True, "True for 1"),
        (1, 1.0, "1.0 for 1"),
        (f32(1), None, "None for float32(1,)"),
    ],
)
def test_what_cannot_be_subtracted_is_infinitely_far_and_says_why(
    expected: object, actual: object, why: str
) -> None:
    found = difference(expected, actual)
    assert (found.error, found.why_infinite) == (INF, why)


class Unjudgeable:
    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "<unjudgeable>"


def test_values_that_refuse_to_be_compared_are_not_called_equal() -> None:
    assert difference(Unjudgeable(), Unjudgeable()).error == INF


finite = st.floats(-1e6, 1e6, width=32)


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=6))
@settings(deadline=None)
def test_difference_is_symmetric_and_zero_only_for_equal_arrays(pairs: list[tuple[float, float]]) -> None:
    left, right = f32(*(a for a, _ in pairs)), f32(*(b for _, b in pairs))
    found = difference(left, right)
    assert found == difference(right, left)
    assert (found.error == 0) == bool(np.all(left == right))
    assert found.error == max(abs(float(a) - float(b)) for a, b in zip(left, right, strict=True))


# --- tolerances -----------------------------------------------------------------------------------


def test_tolerance_is_four_times_the_worst_repetition() -> None:
    one = trajectory(f32(1.0), f32(2.0), state=f32(8))
    other = trajectory(f32(1.5), f32(2.25), state=f32(8))
    assert repeat_tolerances(one, other) == {"output y": 2.0, "state acc": 0.0}


def test_what_cannot_be_compared_with_itself_gives_no_leave() -> None:
    assert repeat_tolerances(trajectory(f32(1)), trajectory(f32(NAN))) == {"output y": 0.0}


@given(st.lists(finite, min_size=1, max_size=5))
@settings(deadline=None)
def test_a_path_that_repeats_itself_exactly_gives_no_tolerance(values: list[float]) -> None:
    same = trajectory(*(f32(value) for value in values))
    assert set(repeat_tolerances(same, same).values()) == {0.0}
    assert all(comparison.exact for comparison in compare_repeats("b1", same, same))


@pytest.mark.parametrize(("again", "equal"), [(100.0, True), (101.0, True), (101.5, False), (NAN, False)])
def test_the_normal_path_may_stray_by_one_percent_of_the_largest_value(again: float, equal: bool) -> None:
    (found,) = compare_repeats("b1", trajectory(f32(1, 100)), trajectory(f32(1, again)))
    assert (found.subject, found.equal, found.exact) == ("normal_repeat", equal, again == 100)


def test_the_limit_of_repeats_ignores_infinities_and_flags() -> None:
    infinite = compare_repeats("b1", trajectory(f32(INF, 1)), trajectory(f32(INF, 2)))
    flags = compare_repeats("b1", trajectory(np.array([True])), trajectory(np.array([False])))
    assert [next(infinite).equal, next(flags).equal] == [False, False]


# --- records --------------------------------------------------------------------------------------


def test_the_record_names_the_value_that_is_furthest_beyond_its_tolerance() -> None:
    found = compare_values(
        "b1",
        3,
        "outputs",
        {"loose": f32(0), "tight": f32(0), "same": f32(0)},
        {"loose": f32(5), "tight": f32(1), "same": f32(0)},
        {"loose": 6.0},
    )
    assert (found.detail, found.max_abs_error, found.tolerance) == ("tight", 1.0, 0.0)
    assert (found.shape, found.request, found.equal, found.exact) == ("b1", 3, False, False)


def test_a_difference_within_tolerance_is_equal_but_not_exact() -> None:
    found = compare_values("b1", 0, "outputs", {"y": f32(1)}, {"y": f32(1.5)}, {"y": 0.5})
    assert (found.equal, found.exact, found.max_abs_error) == (True, False, 0.5)


def test_an_infinite_difference_is_recorded_with_its_reason() -> None:
    found = compare_values("b1", 0, "outputs", {"y": f32(1)}, {}, {"y": 9.0})
    assert not found.equal
    assert isinstance(found.max_abs_error, NotMeasured)
    assert found.max_abs_error.reason.startswith("None for")


def test_nothing_to_compare_is_equal() -> None:
    found = compare_values("b1", 0, "state", {}, {}, {})
    assert (found.equal, found.exact, found.max_abs_error) == (True, True, 0.0)


def test_final_state_names_three_entries_that_differ_and_counts_the_rest() -> None:
    want = dict.fromkeys("abcde", "1") | {"gone": "1"}
    found = compare_final_state("b1", 4, want, dict.fromkeys("abcde", "2") | {"new": "1"})
    assert (found.equal, found.request) == (False, 4)
    assert found.detail == "state after the last request: a, b, c and 4 more"
    assert compare_final_state("b1", 4, want, want).equal


# --- values that are easily taken for equal, and requests that show nothing -----------------------


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_large_whole_numbers_that_floats_cannot_tell_apart_differ(kind: type[np.generic]) -> None:
    one, other = np.array([2**60], kind), np.array([2**60 + 1], kind)
    assert [difference(one, other).error, difference(other, one).error] == [1.0, 1.0]


def test_the_widest_difference_of_whole_numbers_is_no_overflow() -> None:
    ends = np.iinfo(np.int64)
    assert difference(np.array([ends.min]), np.array([ends.max])).error == float(2**64 - 1)


def test_a_poisoned_bool_is_not_true() -> None:
    poisoned = np.array([0xFB], np.uint8).view(np.bool_)
    assert difference(np.array([True]), poisoned).error > 0
    assert difference(np.array([True]), np.array([True])).error == 0


def test_host_arrays_that_cannot_be_subtracted_are_different() -> None:
    found = difference(np.array(["a"]), np.array(["b"]))
    assert (found.error, found.why_infinite) == (INF, "other values of type <U1")


@pytest.mark.parametrize(
    ("outputs", "why"),
    [
        ((f32(1), f32(2)), ""),
        ((f32(1), f32(1)), "all requests give the same outputs"),
        ((f32(), f32()), "no output holds a value"),
        ((1, 2), "no output holds a value"),
        ((f32(NAN), f32(NAN)), "output y is NaN throughout"),
        ((f32(NAN), f32(1)), ""),
        ((f32(NAN, 1), f32(NAN, 2)), ""),
    ],
)
def test_requests_that_would_show_nothing(outputs: tuple[object, ...], why: str) -> None:
    found = uninformative(trajectory(*outputs), inputs_vary=True)
    assert found.startswith(why)
    assert bool(found) == bool(why)


def test_equal_requests_show_enough_where_no_input_may_change() -> None:
    assert uninformative(trajectory(f32(1), f32(1)), inputs_vary=False) == ""
