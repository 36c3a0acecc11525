"""Where modules, optimisers and generators of a step are looked for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from cudagraph_gate.adapters.reachable import reachable, reachable_of


class Model:
    """What is looked for."""

    def step(self) -> None:
        """A bound method."""


GLOBAL_MODEL = Model()


def names_a_global() -> Model:
    return GLOBAL_MODEL


class Holder:
    def __init__(self) -> None:
        self.inner = Model()

    def step(self) -> None:
        """A method of an object that holds a model."""


def prefixes(step: Callable[..., Any]) -> list[str]:
    return sorted(reachable_of(step, Model))


def test_a_step_is_searched_where_its_author_would_look() -> None:
    model = Model()
    assert prefixes(model.step) == ["self."]
    assert prefixes(Holder().step) == ["self.inner."]
    assert prefixes(names_a_global) == ["GLOBAL_MODEL."]
    assert prefixes(lambda: model) == ["model."]
    assert prefixes(functools.partial(print, model)) == ["argument 0."]
    assert prefixes(functools.partial(print, end=model)) == ["argument end."]
    assert prefixes(len) == []


def test_a_decorated_step_is_searched_behind_its_decorator() -> None:
    model = Model()

    def step() -> Model:
        return model

    @functools.wraps(step)
    def wrapper() -> Model:
        return step()

    assert prefixes(wrapper) == ["model."]


def test_one_object_is_found_once() -> None:
    first = second = Model()
    assert list(reachable_of(lambda: (first, second), Model).values()) == [first]


def test_a_name_that_is_not_assigned_yet_is_nothing() -> None:
    def step() -> object:
        return later

    assert reachable(step)["later."] is None
    later = Model()
    assert reachable(step)["later."] is later
