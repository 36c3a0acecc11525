"""When updating an executable graph stops paying, from measured points."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.graphs import UpdateWorth, update_worth
from cudagraph_gate.model import Measured, NotMeasured
from cudagraph_gate.records import UpdateCost

UNKNOWN = NotMeasured(reason="the driver refused: ERROR at node 3")


def cost(changed: int, elapsed: Measured, kind: Any = "kernel") -> UpdateCost:
    return UpdateCost(
        shape="b1", kind=kind, changed_nodes=changed, nodes=100, elapsed=elapsed, result="CUDA_SUCCESS"
    )


LINE = [cost(nodes, 1_000 * nodes) for nodes in (1, 2, 4, 8, 10)]
"""1 us a node."""


def only(costs: list[UpdateCost], reinstantiate: Measured, saved: Measured) -> UpdateWorth:
    (worth,) = update_worth(costs, reinstantiate, saved)
    return worth


def test_limits_between_points_are_read_off_the_line() -> None:
    assert only(LINE, 5_500, 3_000) == UpdateWorth(
        "kernel",
        10,
        rebuild_from_nodes=6,
        whole_from_nodes=NotMeasured(reason="no whole update was measured"),
        pays_up_to_nodes=3,
    )


def test_updating_that_never_costs_more_is_said_to() -> None:
    worth = only(LINE, 10_000, 99_000)
    assert (worth.rebuild_from_nodes, worth.pays_up_to_nodes, worth.loses_every_time) == (None, 10, False)


@pytest.mark.parametrize(("saved", "nodes"), [(999, 0), (0, 0), (-50, 0), (1_000, 1), (1_999, 1), (2_000, 2)])
def test_an_update_before_every_request_must_cost_no_more_than_it_saves(saved: int, nodes: int) -> None:
    worth = only(LINE, 10_000, saved)
    assert worth.pays_up_to_nodes == nodes
    assert worth.loses_every_time is (nodes == 0)


def test_whole_updates_cost_the_same_however_much_changes() -> None:
    kernels, whole = update_worth([*LINE, cost(100, 4_200, "whole")], 4_000, 5_000)
    assert kernels.whole_from_nodes == 5
    assert whole == UpdateWorth(
        "whole", 100, rebuild_from_nodes=1, whole_from_nodes=None, pays_up_to_nodes=100
    )
    assert update_worth([cost(100, 4_200, "whole")], 4_300, 4_100) == (
        UpdateWorth("whole", 100, rebuild_from_nodes=None, whole_from_nodes=None, pays_up_to_nodes=0),
    )


def test_each_kind_of_node_has_a_worth_of_its_own() -> None:
    costs = [cost(1, 900, "memset"), cost(1, 3_000, "memcpy"), *LINE]
    assert [(worth.kind, worth.pays_up_to_nodes) for worth in update_worth(costs, 9_000, 2_500)] == [
        ("kernel", 2),
        ("memcpy", 0),
        ("memset", 1),
    ]


def test_a_point_below_an_earlier_one_is_noise() -> None:
    assert only([cost(1, 2_000), cost(2, 5_000), cost(4, 3_000)], 4_000, 4_999).rebuild_from_nodes == 2


def test_what_was_not_measured_is_not_judged() -> None:
    refused = only([cost(1, 900), cost(2, UNKNOWN)], 9_000, 2_500)
    assert refused.rebuild_from_nodes == refused.pays_up_to_nodes == refused.loses_every_time == UNKNOWN
    worth = only(LINE, UNKNOWN, UNKNOWN)
    assert (worth.rebuild_from_nodes, worth.pays_up_to_nodes, worth.loses_every_time) == (UNKNOWN,) * 3
    assert update_worth([], 1, 1) == ()


@given(
    st.lists(st.integers(1, 50), min_size=2, max_size=6),
    st.integers(0, 300),
)
def test_the_limit_lies_where_the_line_crosses_it(steps: list[int], limit: int) -> None:
    points = [(1 << place, sum(steps[: place + 1])) for place in range(len(steps))]
    worth = only([cost(nodes, elapsed) for nodes, elapsed in points], limit, limit)

    def line(nodes: int) -> float:
        for (low, below), (high, above) in pairwise(points):
            if low <= nodes <= high:
                return below + (above - below) * (nodes - low) / (high - low)
        raise AssertionError(nodes)

    pays = [nodes for nodes in range(1, points[-1][0] + 1) if line(nodes) <= limit]
    assert worth.pays_up_to_nodes == len(pays)
    assert worth.rebuild_from_nodes == (len(pays) + 1 if len(pays) < points[-1][0] else None)
