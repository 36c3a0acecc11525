"""Operations in order of submission, one token a submission, and the hashes that compare them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from made_segments import Program
from made_timelines import Row, call, kernel, timeline

from cudagraph_gate.diagnosis.segment_hashing import operation_hashes, reduced, sequence_hashes
from cudagraph_gate.diagnosis.segment_tokens import Lane, lanes_of, token_hashes
from cudagraph_gate.diagnosis.submission import operations_with_submission
from cudagraph_gate.timeline.table import Timeline

EVER = (0, 10**9)


def lanes(made: Timeline, window: tuple[int, int] = EVER) -> list[Lane]:
    return list(lanes_of(made, operations_with_submission(made), window, 1, 0))


def names(made: Timeline, lane: Lane) -> str:
    return "".join(operations_with_submission(made)["name"].astype(str).to_numpy()[lane.rows])


def test_operations_come_in_order_of_submission_not_of_start() -> None:
    rows = [kernel(500, 510, 1, name="A", stream=7), kernel(100, 110, 2, name="B", stream=8)]
    made = timeline(rows, [call(10, 20, 1), call(30, 40, 2)])
    (lane,) = lanes(made)
    assert names(made, lane) == "AB"
    assert (lane.begin_ns.tolist(), lane.end_ns.tolist()) == ([10, 30], [510, 110])


def test_without_calls_the_correlation_tells_the_order() -> None:
    made = timeline([kernel(500, 510, 1, name="A"), kernel(100, 110, 2, name="B")])
    (lane,) = lanes(made)
    assert names(made, lane) == "AB"
    assert (lane.begin_ns.tolist(), lane.moment_ns.tolist()) == ([500, 100], [500, 500])
    assert not lane.is_submission_known


def test_without_correlations_starts_do_and_a_launch_stays_together() -> None:
    rows = [kernel(100, 110, 5, name="A"), kernel(120, 130, name="X"), kernel(140, 150, 5, name="B")]
    made = timeline(rows)
    (lane,) = lanes(made)
    assert names(made, lane) == "ABX"
    assert lane.first.tolist() == [0, 2, 3]


def test_a_graph_launch_is_one_token_whatever_the_order_of_its_nodes() -> None:
    def nodes(start: int, correlation: int, letters: str) -> list[Row]:
        return [
            kernel(start + 10 * place, start + 10 * place + 5, correlation, name=name, graph=4)
            for place, name in enumerate(letters)
        ]

    rows = [*nodes(100, 1, "AB"), *nodes(200, 2, "BA"), *nodes(300, 3, "AA"), kernel(400, 410, 4)]
    calls = [call(10 * number, 10 * number + 5, number, "cuGraphLaunch") for number in (1, 2, 3)]
    made = timeline(rows, [*calls, call(40, 45, 4)])
    (lane,) = lanes(made)
    assert lane.first.tolist() == [0, 2, 4, 6, 7]
    assert lane.is_graph.tolist() == [True, True, True, False]
    assert lane.end_ns.tolist() == [115, 215, 315, 410]
    first, second, third, _ = lane.codes.tolist()
    assert first == second != third
    hashes = token_hashes(operations_with_submission(made), lane)
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_graph_without_ids_is_known_by_its_call() -> None:
    rows = [kernel(100, 110, 1), kernel(120, 130, 1), kernel(140, 150, 2)]
    (lane,) = lanes(timeline(rows, [call(0, 10, 1, "hipGraphLaunch"), call(20, 30, 2)]))
    assert lane.is_graph.tolist() == [True, False]


def test_operations_outside_the_window_are_left_out() -> None:
    made = Program().run("ABCD").timeline()
    (lane,) = lanes(made, (1160, 1370))
    assert names(made, lane) == "BCD"


def test_gaps_are_between_submissions() -> None:
    made = Program().run("AB").wait(500).run("C").timeline()
    (lane,) = lanes(made)
    gaps = lane.gaps_ns(operations_with_submission(made), np.arange(3))
    assert gaps.tolist() == [-1, 60, 560]


def test_each_column_alone_makes_another_operation() -> None:
    rows = [kernel(0, 1), kernel(2, 3, grid_x=2), kernel(4, 5, bytes=8), kernel(6, 7, stream=9)]
    made = timeline([*rows, kernel(8, 9, name="other"), kernel(10, 11, kind="memset"), kernel(12, 13)])
    rows_of = np.arange(7)
    hashes = operation_hashes(made.operations, rows_of, ("grid_x", "bytes", "stream"))
    assert hashes[0] == hashes[6]
    assert len(set(hashes.tolist())) == 6
    assert len(set(operation_hashes(made.operations, rows_of, ()).tolist())) == 3


slices_of_a_sequence = st.lists(st.integers(0, 3), min_size=1, max_size=60).flatmap(
    lambda values: (
        st.tuples(st.just(values), st.lists(st.integers(0, len(values)), unique=True, min_size=2).map(sorted))
        if len(values) > 1
        else st.just((values, [0, len(values)]))
    )
)


@given(slices_of_a_sequence, st.integers(1, 9))
def test_slices_have_equal_hashes_exactly_where_they_are_equal(
    found: tuple[list[int], list[int]], spread: int
) -> None:
    values, borders = found
    pairs = list(pairwise(borders))[::spread]
    first, beyond = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    hashes = sequence_hashes(np.array(values, dtype=np.uint64), first, beyond).tolist()
    texts = [tuple(values[start:end]) for start, end in pairs]
    assert len(set(hashes)) == len(set(texts))
    assert len(set(zip(texts, hashes, strict=True))) == len(set(texts))


@given(slices_of_a_sequence)
def test_slices_are_reduced_each_on_its_own(found: tuple[list[int], list[int]]) -> None:
    values, borders = found
    pairs = list(pairwise(borders))[::2]
    first, beyond = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    sums = reduced(np.add, np.array(values, dtype=np.int64), first, beyond)
    assert sums.tolist() == [sum(values[start:end]) for start, end in pairs]
