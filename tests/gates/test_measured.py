"""What gate 6 reports of all shapes: gains, the smallest set that keeps them, the explicit graph beside."""

from __future__ import annotations

from evidence_builder import passing, shape_records, started, trial
from msgspec import structs

from cudagraph_gate.gates import Evidence, Policy
from cudagraph_gate.gates.judged_trial import JudgedTrial
from cudagraph_gate.gates.measured import measured_ladder, measured_shapes, shape_costs
from cudagraph_gate.records import Record

MS = 1_000_000


def with_shapes(*records: tuple[Record, ...], values: dict[str, str]) -> Evidence:
    """A log of several shapes with their values as text."""
    whole = trial(*records, shapes=tuple(values))
    first = structs.replace(started(*values), shape_values=values)
    return passing(records=(first, *whole[1:]))


def three() -> Evidence:
    """Gains of 400, 600 and 10 µs; each graph takes 64 MiB."""
    return with_shapes(
        shape_records("b1", normal_ns=1 * MS, graph_ns=600_000),
        shape_records("b4", normal_ns=2 * MS, graph_ns=1_400_000),
        shape_records("b8", normal_ns=4 * MS, graph_ns=3_990_000),
        values={"b1": "(1, 128)", "b4": "(4, 128)", "b8": "model.Big()"},
    )


def test_each_timed_shape_has_its_gain_and_memory() -> None:
    costs = {cost.name: cost for cost in shape_costs(three())}
    assert {name: round(cost.gain_ns) for name, cost in costs.items()} == {
        "b1": round(400_000 / 3),
        "b4": round(600_000 / 3),
        "b8": round(10_000 / 3),
    }
    assert {cost.nbytes for cost in costs.values()} == {64 << 20}
    assert (costs["b1"].value, costs["b8"].value) == ((1, 128), None)  # what is no literal can't be padded


def test_the_smallest_set_that_keeps_the_gain_is_named() -> None:
    found = measured_shapes(three(), Policy())
    assert found["capture"].shapes == ("b1", "b4")  # 1000 of 1010 µs: 99 %
    assert found["capture"].nbytes == 128 << 20


def test_the_memory_budget_bounds_the_set() -> None:
    found = measured_shapes(three(), Policy(max_shapes_memory_bytes=64 << 20))
    assert found["capture"].shapes == ("b4",)


def test_padding_is_told_for_shapes_of_numbers_alone() -> None:
    pairs = {(pair.shape, pair.by): pair for pair in measured_shapes(three(), Policy())["padding"]}
    assert set(pairs) == {("b1", "b4")}
    assert pairs["b1", "b4"].waste == 0.75


def test_one_shape_has_nothing_to_choose() -> None:
    assert measured_shapes(passing(), Policy()) == {}


def test_the_explicit_graph_stands_beside_the_captured_one() -> None:
    explicit = tuple(structs.replace(record, method="explicit") for record in shape_records(graph_ns=300_000))
    found = measured_ladder(JudgedTrial(passing(records=trial(shape_records(), explicit)), Policy()))
    assert found["explicit"] == {
        "b1": {
            "nodes": 8,
            "explicit_ns": 300_000,
            "captured_ns": 600_000,
            "outputs_agree": True,
            "wrong": "",
        }
    }
