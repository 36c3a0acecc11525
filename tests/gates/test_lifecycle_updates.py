"""What updates cost, in gate 4's measured values, and where they cost more than they save."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_builder import COSTS, Gate, shape_records, trial

from cudagraph_gate.gates.update_cost import per_node_ns
from cudagraph_gate.model import GateStatus, NotMeasured
from cudagraph_gate.records import Phase, Record, UpdateCost


def update(kind: str, changed_nodes: int, elapsed: Any, **change: Any) -> UpdateCost:
    given = {"shape": "b1", "nodes": 8, "result": "CUDA_SUCCESS"}
    return UpdateCost(kind=kind, changed_nodes=changed_nodes, elapsed=elapsed, **(given | change))


KERNELS = [update("kernel", nodes, 1_000 + 2_000 * nodes) for nodes in (1, 2, 4, 8)]
"""A straight line: 2 us a node, 1 us to begin with."""


def log(*more: Record, reinstantiate: int | None = None) -> tuple[Record, ...]:
    costs = COSTS | ({} if reinstantiate is None else {Phase.REINSTANTIATE: reinstantiate})
    return trial(shape_records(costs=costs, more=more))


def test_the_slope_of_a_curve_is_the_cost_of_a_node() -> None:
    assert per_node_ns(KERNELS) == pytest.approx(2_000)


def test_a_whole_graph_update_costs_its_share_for_each_node() -> None:
    assert per_node_ns([update("whole", 8, 4_000)]) == 500


def test_one_point_has_no_slope() -> None:
    assert per_node_ns(KERNELS[:1]) == NotMeasured(reason="one number of changed nodes has no slope")


def test_a_refused_update_has_no_cost() -> None:
    absent = NotMeasured(reason="the driver refused")
    assert per_node_ns([update("memset", 1, absent)]) == absent


def test_each_kind_has_its_curve_and_what_it_is_worth(gate: Gate) -> None:
    found = gate(4, records=log(*KERNELS, update("whole", 8, 6_000), reinstantiate=12_000)).measured[
        "updates"
    ]
    assert set(found) == {"kernel", "whole"}
    assert found["kernel"] == {
        "points": [[1, 3_000], [2, 5_000], [4, 9_000], [8, 17_000]],
        "per_node_ns": pytest.approx(2_000),
        "refused": "",
        "rebuild_from_nodes": 6,  # 13 us, where instantiating again takes 12
        "whole_from_nodes": 3,  # 7 us, where the whole graph takes 6
        "pays_up_to_nodes": 8,
    }


def test_the_driver_s_refusal_is_quoted_with_its_node(gate: Gate) -> None:
    refused = update("memcpy", 1, NotMeasured(reason="refused"), result="CUDA_ERROR_INVALID_VALUE", node=3)
    curve = gate(4, records=log(refused)).measured["updates"]["memcpy"]
    assert curve["refused"] == "CUDA_ERROR_INVALID_VALUE at node 3"
    assert curve["points"] == [[1, {"type": "not_measured", "reason": "refused"}]]


def test_an_update_that_costs_more_than_a_request_saves_is_named(gate: Gate) -> None:
    result = gate(4, records=log(*KERNELS, update("whole", 8, 400_001)))
    assert result.status is GateStatus.PASS
    assert "a whole-graph update before every request would cost more than a request saves" in result.reason
    assert "kernel node update" not in result.reason


def test_an_update_that_costs_no_more_than_that_is_not(gate: Gate) -> None:
    assert "update" not in gate(4, records=log(*KERNELS, update("whole", 8, 400_000))).reason


def test_a_log_without_updates_says_nothing_of_them(gate: Gate) -> None:
    result = gate(4)
    assert result.measured["updates"] == {}
    assert result.status is GateStatus.PASS
