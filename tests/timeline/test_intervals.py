"""Interval arithmetic against bitmaps of single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.timeline.intervals import (
    BLOCK,
    EARLIEST,
    SEARCHED,
    Intervals,
    Pieces,
    blocks,
    clip,
    complement,
    expand,
    grouped_union_ns,
    int64,
    overlap_ns,
    pieces_of,
    places_in,
    reach_before,
    split,
    taken,
    union,
)

LIMIT = 40
moments = st.integers(0, LIMIT)
pairs = st.lists(st.tuples(moments, moments), max_size=12)
windows = st.tuples(moments, moments).map(lambda pair: (min(pair), max(pair)))


def merged(some: list[tuple[int, int]]) -> Intervals:
    return union(*columns(some))


def columns(some: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return int64([start for start, _ in some]), int64([end for _, end in some])


def covered(some: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in some for moment in range(start, end)}


def moments_of(intervals: Intervals | Pieces) -> list[int]:
    return [m for start, end in zip(intervals.starts, intervals.ends, strict=True) for m in range(start, end)]


def test_union_merges_overlapping_and_touching_intervals() -> None:
    result = merged([(5, 8), (0, 3), (3, 4), (6, 9), (2, 2)])
    assert list(result.starts) == [0, 5]
    assert list(result.ends) == [4, 9]
    assert result.length_ns == 8


def test_nanoseconds_beyond_2_to_the_53_stay_exact() -> None:
    base = 2**60 + 1
    result = complement(merged([(base, base + 1), (base + 2, base + 3)]), (base, base + 4))
    assert [int(start) - base for start in result.starts] == [1, 3]
    assert overlap_ns(result, int64([base]), int64([base + 4])).tolist() == [2]


def test_expand_lists_each_row_with_its_indices() -> None:
    rows, index = expand(int64([3, 0, 7]), int64([2, 0, 1]))
    assert rows.tolist() == [0, 0, 2]
    assert index.tolist() == [3, 4, 7]


@given(pairs)
def test_union_covers_each_moment_once_and_leaves_gaps_between(some: list[tuple[int, int]]) -> None:
    result = merged(some)
    assert moments_of(result) == sorted(covered(some))
    assert (result.starts[1:] > result.ends[:-1]).all()


@given(pairs, windows)
def test_complement_and_clip_share_out_the_window(
    some: list[tuple[int, int]], window: tuple[int, int]
) -> None:
    inside, outside = clip(merged(some), window), complement(merged(some), window)
    assert sorted(moments_of(inside) + moments_of(outside)) == list(range(*window))
    assert set(moments_of(inside)) <= covered(some)


@given(pairs, pairs)
def test_overlap_counts_covered_moments(some: list[tuple[int, int]], queries: list[tuple[int, int]]) -> None:
    expected = [len(covered(some) & set(range(start, end))) for start, end in queries]
    assert overlap_ns(merged(some), *columns(queries)).tolist() == expected


@given(pairs, pairs)
def test_split_keeps_every_moment_and_its_owner(
    some: list[tuple[int, int]], cut: list[tuple[int, int]]
) -> None:
    whole = pieces_of(merged(some))
    inside, outside = split(whole, merged(cut))
    assert set(moments_of(inside)) == covered(some) & covered(cut)
    assert sorted(moments_of(inside) + moments_of(outside)) == moments_of(whole)
    for part in (inside, outside):
        assert (whole.starts[part.owners] <= part.starts).all()
        assert (part.ends <= whole.ends[part.owners]).all()


@given(pairs, st.data())
def test_grouped_union_is_the_union_of_each_group(some: list[tuple[int, int]], data: st.DataObject) -> None:
    groups = data.draw(st.lists(st.integers(0, 3), min_size=len(some), max_size=len(some)))
    expected = [
        len(covered([pair for pair, group in zip(some, groups, strict=True) if group == number]))
        for number in range(4)
    ]
    assert grouped_union_ns(int64(groups), *columns(some), 4).tolist() == expected


@given(pairs, st.data())
def test_the_reach_before_a_row_is_the_latest_end_of_its_group(
    some: list[tuple[int, int]], data: st.DataObject
) -> None:
    groups = data.draw(st.lists(st.integers(0, 2), min_size=len(some), max_size=len(some)))
    found = reach_before(int64(groups), int64([end for _, end in some]))
    earlier = [
        [end for (_, end), group in zip(some[:row], groups, strict=False) if group == groups[row]]
        for row in range(len(some))
    ]
    assert found.tolist() == [max(ends, default=EARLIEST) for ends in earlier]


def test_the_reach_goes_on_from_block_to_block() -> None:
    groups = np.arange(BLOCK + 3) % 2
    ends = np.zeros(BLOCK + 3, dtype=np.int64)
    ends[:2] = 90, 70
    found = reach_before(groups, ends)
    assert found[:3].tolist() == [EARLIEST, EARLIEST, 90]
    assert found[BLOCK:].tolist() == [90, 70, 90]


def test_blocks_hold_each_row_once_and_lengths_add_up_over_them() -> None:
    count = 2 * BLOCK + 1
    assert [(part.start, part.stop) for part in blocks(count)] == [
        (0, BLOCK),
        (BLOCK, 2 * BLOCK),
        (2 * BLOCK, count),
    ]
    starts = np.arange(count, dtype=np.int64) * 10
    assert union(starts, starts + 3).length_ns == 3 * count


@given(st.lists(moments, max_size=12), st.lists(moments, max_size=12))
def test_places_in_order_are_those_of_a_search(values: list[int], wanted: list[int]) -> None:
    ordered, some = int64(sorted(values)), int64(sorted(wanted))
    assert places_in(ordered, some, "left").tolist() == np.searchsorted(ordered, some, "left").tolist()
    assert places_in(ordered, some, "right").tolist() == np.searchsorted(ordered, some, "right").tolist()


def test_places_are_found_part_by_part_among_equal_values_too() -> None:
    ordered = int64(np.arange(3 * SEARCHED) // 5)
    wanted = int64(np.sort(np.arange(2 * SEARCHED + 7) * 7 % SEARCHED))
    assert (places_in(ordered, wanted, "left") == np.searchsorted(ordered, wanted, "left")).all()
    assert (places_in(ordered, wanted, "right") == np.searchsorted(ordered, wanted, "right")).all()


def test_all_rows_in_order_are_taken_without_a_copy() -> None:
    values = int64([5, 6, 7])
    assert taken(values, int64([0, 1, 2])) is values
    assert taken(values, int64([2, 0, 1])).tolist() == [7, 5, 6]
    assert taken(values, int64([0, 2])).tolist() == [5, 7]


def test_intervals_that_need_no_cut_are_not_copied() -> None:
    apart = union(int64([0, 10, 20]), int64([5, 15, 25]))
    assert np.shares_memory(clip(apart, (0, 25)).starts, apart.starts)
    assert np.shares_memory(complement(apart, (0, 25)).ends, apart.starts)
