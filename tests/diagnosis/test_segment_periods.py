"""The period of a sequence, and where its unit begins."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.diagnosis.segment_alike import groups_of_alike
from cudagraph_gate.diagnosis.segment_boundaries import parts
from cudagraph_gate.diagnosis.segment_periods import find_period
from cudagraph_gate.timeline.intervals import Int64


def codes(text: str) -> Int64:
    return np.array([ord(letter) for letter in text], dtype=np.int64)


def period(text: str, gaps: dict[str, int] | None = None, shortest: int = 1) -> tuple[int, list[int]]:
    """Length and places; ``gaps`` are those before each letter."""
    waits = np.array([(gaps or {}).get(letter, 1) for letter in text], dtype=np.int64)
    found = find_period(codes(text), lambda part: waits[part], shortest)
    return (found.length, found.places.tolist()) if found else (0, [])


def test_the_smallest_period_that_explains_the_sequence_wins() -> None:
    assert period("abc" * 6) == (3, [0, 3, 6, 9, 12, 15])


def test_an_outer_loop_wins_where_it_explains_more() -> None:
    assert period(("ab" * 10 + "c") * 5)[0] == 21


def test_the_unit_begins_after_the_longest_pause() -> None:
    assert period("abc" * 6, {"b": 50}) == (3, [1, 4, 7, 10, 13, 16])


def test_a_unit_below_the_shortest_is_taken_so_many_times() -> None:
    assert period("a" * 8, shortest=2) == (2, [0, 2, 4, 6])


def test_units_of_varying_length_have_a_period_too() -> None:
    text = "".join("Habcdef" + "x" * (number % 3) + "ghi" for number in (0, 1, 2, 1, 0, 2, 2, 0, 1, 1))
    length, places = period(text, {"H": 50})
    assert 9 <= length <= 13
    assert places == [place for place, letter in enumerate(text) if letter == "H"]


def test_no_repetition_has_no_period() -> None:
    assert period("the quick brown fox jumps over a lazy dog")[0] == 0


def test_borders_equal_nothing() -> None:
    values = np.arange(-1, -41, -1, dtype=np.int64)
    assert find_period(values, lambda part: np.ones(len(values[part]), dtype=np.int64)) is None


def test_a_long_warm_up_does_not_hide_the_period() -> None:
    rng = np.random.default_rng(1)
    warm_up = rng.integers(1000, 2000, 400)
    values = np.concatenate([warm_up, np.tile(np.arange(50), 20)]).astype(np.int64)
    found = find_period(values, lambda part: np.ones(len(values[part]), dtype=np.int64))
    assert found is not None
    assert (found.length, found.places.tolist()) == (50, list(range(400, 1400, 50)))


def test_slices_are_alike_from_half_of_their_tokens_on() -> None:
    values = codes("abcd" + "abce" + "wxyz" + "abzz" + "abcd")
    first = np.arange(0, 20, 4)
    groups = groups_of_alike(values, first, first + 4)
    # abce shares 3 of 5 tokens with abcd; abzz only 2 of 6.
    assert [group.members.tolist() for group in groups] == [[0, 1, 4], [2], [3]]
    assert groups[0].common_share == 2 / 3


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40), min_size=2))
def test_parts_cover_their_slices(cuts: set[int], borders: set[int]) -> None:
    edges = np.array(sorted(borders), dtype=np.int64)
    edges = edges[: len(edges) // 2 * 2]
    first, beyond = edges[::2], edges[1::2]
    starts, ends, place = parts(first, beyond, np.array(sorted(cuts), dtype=np.int64))
    covered = [token for start, end in zip(starts, ends, strict=True) for token in range(start, end)]
    assert covered == [token for start, end in zip(first, beyond, strict=True) for token in range(start, end)]
    assert not set(cuts) & {
        token for start, end in zip(starts, ends, strict=True) for token in range(start + 1, end)
    }
    assert all(place[np.isin(starts, first)] == 0)
