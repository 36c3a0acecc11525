"""What an input must be like before anything is copied into a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from counting_adapter import CountingAdapter, FakeError
from hypothesis import given
from hypothesis import strategies as st
from portable_kernel import numbers

from cudagraph_gate.adapters.cuda_core import ArrayAdapter
from cudagraph_gate.device import Device
from cudagraph_gate.graphs import GraphedStep, InputError, InputRule, InputRules, State
from cudagraph_gate.graphs.update import Layout, same_strides

SQUARE = np.arange(9.0).reshape(3, 3)
NAMES = ("x", "y")


class Tensor:
    """As torch shows an array: a device, and strides in elements by a call."""

    def __init__(self, values: Any, device: str = "cuda:0") -> None:
        self.values = values
        self.shape = values.shape
        self.dtype = values.dtype
        self.device = device

    def stride(self) -> tuple[int, ...]:
        return tuple(each // self.values.itemsize for each in self.values.strides)


class Bare:
    """Memory that tells no more than the standard interface."""

    def __init__(self, values: Any) -> None:
        self.__cuda_array_interface__ = {"shape": values.shape, "typestr": values.dtype.str}


class TensorAdapter(CountingAdapter):
    """Takes everything for an array of the device."""

    def is_device_array(self, value: Any) -> bool:
        return isinstance(value, Tensor | Bare | np.ndarray)


def graphed(**options: Any) -> tuple[GraphedStep, CountingAdapter]:
    """A graph of ``x + y`` that is ready; its calls are counted from here on."""
    adapter = CountingAdapter()
    step = GraphedStep(adapter, lambda x, y: x + y, (SQUARE, SQUARE), **options).prepare()
    adapter.calls.counts.clear()
    return step, adapter


# --- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (np.zeros((3, 4)), r"input 1: shape \(3, 4\) does not fit \(3, 3\)"),
        (np.zeros(()), r"input 1: shape \(\) does not fit \(3, 3\)"),
        (np.zeros((3, 3), np.float32), "input 1: dtype float32 does not fit float64"),
        (SQUARE.T, r"input 1: strides \(1, 3\) does not fit \(3, 1\)"),
        (SQUARE.tolist(), "input 1: a list does not fit: no array of this device"),
    ],
)
def test_one_bad_input_keeps_all_from_being_copied(bad: Any, why: str) -> None:
    step, adapter = graphed()
    with pytest.raises(InputError, match=why):
        step.replay((SQUARE + 5, bad))
    assert not adapter.calls.counts
    np.testing.assert_array_equal(step.variables[0], SQUARE)
    assert step.state is State.READY
    np.testing.assert_array_equal(step(SQUARE, SQUARE), 2 * SQUARE)


def test_an_input_on_another_device_is_refused() -> None:
    rules = InputRules.of((Tensor(SQUARE),), names=("x",))
    adapter = TensorAdapter()
    rules.check(adapter, (Tensor(SQUARE + 1),))
    with pytest.raises(InputError, match="x: device cpu does not fit cuda:0"):
        rules.check(adapter, (Tensor(SQUARE, "cpu"),))


def test_a_host_array_in_place_of_a_device_array_is_refused(device: Device) -> None:
    first, second = device.array(numbers()), device.array(numbers(10))
    out = device.empty((64,), np.float32)

    def step(x: Any, y: Any) -> Any:
        device.copy(out, y)
        return out

    ready = GraphedStep(ArrayAdapter(device), step, (first, second)).prepare()
    with pytest.raises(InputError, match="input 1: a ndarray does not fit: no array of this device"):
        ready.replay((device.array(numbers(7)), numbers(7)))
    np.testing.assert_array_equal(ready.variables[0].to_host(), numbers())
    np.testing.assert_array_equal(ready(first, device.array(numbers(3))).to_host(), numbers(3))


def test_too_few_or_many_inputs_are_refused() -> None:
    with pytest.raises(InputError, match="1 inputs for a graph of 2"):
        InputRules.of((SQUARE, SQUARE)).check(CountingAdapter(), (SQUARE,))


def test_what_tells_no_shape_is_read_by_its_interface() -> None:
    rules = InputRules.of((Bare(SQUARE),))
    rules.check(TensorAdapter(), (Bare(SQUARE + 1),))
    with pytest.raises(InputError, match="shape"):
        rules.check(TensorAdapter(), (Bare(np.zeros(9)),))


def test_what_tells_nothing_is_held_to_its_size() -> None:
    rule = InputRule("x", nbytes=72)
    rule.check_layout(CountingAdapter(), SQUARE)
    with pytest.raises(InputError, match="x: size in bytes 36 does not fit 72"):
        rule.check_layout(CountingAdapter(), SQUARE.astype(np.float32))


def test_a_compiled_check_refuses_what_the_rule_refuses() -> None:
    adapter, example = TensorAdapter(), Tensor(SQUARE)
    check = InputRules.of((example,)).rules[0].compiled(adapter, example)
    check(Tensor(SQUARE * 3))
    for bad in (
        Tensor(SQUARE.T),
        Tensor(SQUARE, "cpu"),
        Tensor(np.zeros(9)),
        SQUARE.tolist(),
        Bare(np.zeros(9)),
    ):
        with pytest.raises(InputError):
            check(bad)


# --- strides ----------------------------------------------------------------------------------------


def test_other_strides_are_taken_where_they_are_allowed() -> None:
    step, _adapter = graphed(rules=InputRules.of((SQUARE, SQUARE), strides=False))
    np.testing.assert_array_equal(step(SQUARE, SQUARE.T), SQUARE + SQUARE.T)


@pytest.mark.parametrize(
    ("shape", "one", "other", "same"),
    [
        ((3, 1), (1, 1), (1, 7), True),
        ((3, 2), (2, 1), (1, 3), False),
        ((0, 2), (2, 1), (9, 9), True),
        ((), (), (), True),
    ],
)
def test_strides_count_where_there_is_something_to_stride_over(
    shape: tuple[int, ...], one: tuple[int, ...], other: tuple[int, ...], same: bool
) -> None:
    assert same_strides(shape, one, other) is same


def test_layouts_read_torchs_and_numpys_strides_in_elements() -> None:
    assert Layout.of(Tensor(SQUARE.T)).strides == Layout.of(SQUARE.T).strides == (1, 3)
    assert Layout.of(object()) == Layout(None, None, None, None)


# --- ranges -----------------------------------------------------------------------------------------


def test_values_are_read_only_where_limits_are_given() -> None:
    class Reading(CountingAdapter):
        def to_host(self, value: Any) -> Any:
            self.calls("to_host")
            return np.array(value)

    adapter = Reading()
    rules = InputRules.of((SQUARE, SQUARE), names=NAMES, ranges={"y": (0, None)})
    rules.check(adapter, (SQUARE - 100, SQUARE))
    assert adapter.calls.counts == {"to_host": 1}


@pytest.mark.parametrize(
    ("limits", "value", "why"),
    [
        ((0.0, 8.0), 8.5, r"y: the value 8.5 does not fit \[0.0, 8.0\]"),
        ((None, 8.0), 9.0, r"\[-inf, 8.0\]"),
        ((0.0, None), -1.0, r"\[0.0, inf\]"),
        ((0.0, 8.0), np.nan, "the value nan"),
        ((None, 8.0), np.nan, "the value nan"),
    ],
)
def test_a_value_out_of_range_is_refused_and_nothing_is_copied(
    limits: tuple[float | None, float | None], value: float, why: str
) -> None:
    step, adapter = graphed(rules=InputRules.of((SQUARE, SQUARE), names=NAMES, ranges={"y": limits}))
    bad = SQUARE.copy()
    bad[1, 1] = value
    with pytest.raises(InputError, match=why):
        step.replay((SQUARE, bad))
    assert not adapter.calls.counts
    np.testing.assert_array_equal(step(SQUARE, SQUARE), 2 * SQUARE)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=5), st.floats(-5, 5))
def test_limits_hold_for_exactly_the_values_between_them(values: list[float], low: float) -> None:
    rule = InputRule("x", minimum=low, maximum=low + 2)
    fits = all(low <= value <= low + 2 for value in values)
    if fits:
        rule.check_values(CountingAdapter(), np.array(values))
    else:
        with pytest.raises(InputError):
            rule.check_values(CountingAdapter(), np.array(values))


def test_a_device_that_fails_while_values_are_read_gives_the_graph_up() -> None:
    class Lost(CountingAdapter):
        def to_host(self, value: Any) -> Any:
            raise FakeError("to_host")

    rules = InputRules.of((SQUARE,), names=("x",), ranges={"x": (0, 9)})
    step = GraphedStep(Lost(), lambda x: x + 1, (SQUARE,), rules=rules).prepare()
    with pytest.raises(FakeError):
        step.copy_in((SQUARE,))
    assert step.state is State.FALLBACK


# --- whitelist --------------------------------------------------------------------------------------


def test_only_whitelisted_inputs_change() -> None:
    step, adapter = graphed(rules=InputRules.of((SQUARE, SQUARE), names=NAMES, updatable=["x"]))
    np.testing.assert_array_equal(step(SQUARE + 1, "ignored"), 2 * SQUARE + 1)
    assert adapter.calls.counts["copy_into"] == 1


def test_the_whitelist_may_be_empty_or_leave_everything_open() -> None:
    assert InputRules.of((SQUARE, SQUARE), names=NAMES, updatable=[]).updatable == (False, False)
    assert InputRules.of((SQUARE, SQUARE)).updatable == (True, True)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"updatable": ["z"]}, "no input z: known are x, y"),
        ({"ranges": {"z": (0, 1)}}, "no input z"),
        ({"ranges": {"x": (2, 1)}}, r"x: nothing lies in \[2, 1\]"),
        ({"names": ("x", "x")}, "1 names for 2 inputs"),
    ],
)
def test_rules_that_make_no_sense_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        InputRules.of((SQUARE, SQUARE), **{"names": NAMES, **options})


def test_rules_and_flags_are_not_given_together() -> None:
    rules = InputRules.of((SQUARE,))
    with pytest.raises(ValueError, match="give one of both"):
        GraphedStep(CountingAdapter(), lambda x: x, (SQUARE,), rules=rules, updatable=(True,))
    with pytest.raises(ValueError, match="rules for 1 inputs, not 2"):
        GraphedStep(CountingAdapter(), lambda x, y: x, (SQUARE, SQUARE), rules=rules)
