"""Gaps in 1-2-5 buckets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.diagnosis.gap_histogram import EDGES_NS, buckets_of, histogram
from cudagraph_gate.model import Histogram
from cudagraph_gate.timeline.intervals import int64


def test_the_buckets_are_round_times_from_nothing_to_five_seconds() -> None:
    assert EDGES_NS[:5] == (0, 100, 200, 500, 1_000)
    assert EDGES_NS[-1] == 5_000_000_000


def test_a_bucket_holds_its_lower_end_and_not_its_upper_end() -> None:
    found = histogram(int64([99, 100, 199, 200, 200]))
    assert found == Histogram(lower_ns=(0, 100, 200), counts=(1, 2, 2))


def test_empty_buckets_are_left_out_at_both_ends_only() -> None:
    assert histogram(int64([600, 7_000])) == Histogram(
        lower_ns=(500, 1_000, 2_000, 5_000), counts=(1, 0, 0, 1)
    )


def test_the_last_bucket_is_open_and_negative_gaps_count_as_nothing() -> None:
    assert buckets_of(int64([10**12, -5])).tolist() == [len(EDGES_NS) - 1, 0]


def test_no_gaps_have_no_histogram() -> None:
    with pytest.raises(ValueError, match="zero-size"):
        histogram(int64([]))


@given(st.integers(0, 10**11))
def test_every_gap_lies_in_its_bucket(gap: int) -> None:
    (bucket,) = buckets_of(int64([gap])).tolist()
    assert EDGES_NS[bucket] <= gap
    assert bucket == len(EDGES_NS) - 1 or gap < EDGES_NS[bucket + 1]
