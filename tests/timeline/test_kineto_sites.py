"""The innermost interval around a call."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.timeline.kineto_sites import NOWHERE, function_site, innermost_around

Span = tuple[int, int]


def rows(spans: list[Span], threads: list[int] | None = None) -> dict[str, np.ndarray]:
    starts, ends = (np.array([span[side] for span in spans], dtype=np.int64) for side in (0, 1))
    tid = np.array(threads or [1] * len(spans), dtype=np.int64)
    return {"start_ns": starts, "end_ns": ends, "tid": tid, "name": np.arange(len(spans))}


def nested(depth: int, start: int, end: int, draw: st.DrawFn) -> list[Span]:
    if depth == 0 or end - start < 4:
        return [(start, end)]
    middle = draw(st.integers(start + 1, end - 2))
    inner = nested(depth - 1, start + 1, middle, draw) + nested(depth - 1, middle, end - 1, draw)
    return [(start, end), *inner]


@st.composite
def nestings(draw: st.DrawFn) -> list[Span]:
    return draw(st.permutations(nested(4, 0, draw(st.integers(1, 80)), draw)))


@settings(max_examples=60, deadline=None)
@given(intervals=nestings(), calls=st.lists(st.tuples(st.integers(0, 80), st.integers(1, 20)), max_size=8))
def test_it_is_the_shortest_that_encloses_the_call(intervals: list[Span], calls: list[Span]) -> None:
    spans = [(start, start + length) for start, length in calls]
    found = innermost_around(rows(spans), rows(intervals))
    for (start, end), row in zip(spans, found, strict=True):
        around = [each for each in intervals if each[0] <= start and each[1] >= end]
        expected = min((high - low for low, high in around), default=None)
        assert (None if row == NOWHERE else intervals[row][1] - intervals[row][0]) == expected


def test_other_threads_enclose_nothing() -> None:
    assert innermost_around(rows([(2, 3)], [1]), rows([(0, 9)], [2])).tolist() == [NOWHERE]


def test_an_interval_without_length_hides_none_around_the_call() -> None:
    found = innermost_around(rows([(3, 8)]), rows([(0, 9), (1, 8), (3, 3), (3, 7)]))
    assert found.tolist() == [1]


def test_each_call_is_looked_up_on_its_own_thread() -> None:
    found = innermost_around(rows([(2, 3), (2, 3)], [2, 1]), rows([(0, 9), (1, 8)], [1, 2]))
    assert found.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "site"),
    [
        ("torch/cuda/__init__.py(975): synchronize", "__init__.py:975 synchronize"),
        ("../../home/alice/secret/train.py(5): f", "train.py:5 f"),
        ("..\\alice\\secret/deep\\train.py(5): f", "train.py:5 f"),
        ("alice/my job (2)/train.py(5): f", "train.py:5 f"),
        ("C:train.py(5): f", "train.py:5 f"),
        ("<string>(1): f", "<string>:1 f"),
        ("train.py(12): <module>", "train.py:12 <module>"),
        ("/home/someone/job/train.py(3): step", "train.py:3 step"),
        ("C:\\Users\\someone\\train.py(3): step", "train.py:3 step"),
        ("~/train.py(3): step", "train.py:3 step"),
        ("<built-in method item of Tensor object at 0x7f>", ""),
        ("nn.Module: Linear_0", ""),
    ],
)
def test_functions_are_named_without_the_users_folders(name: str, site: str) -> None:
    assert function_site(name) == site
