"""The request mix and the choice of shapes as a person reads them, in 80 columns."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from cudagraph_gate.gates.shape_choice import (
    Choice,
    Padding,
    ShapeCost,
    choose_buckets,
    choose_shapes,
    paddings,
)
from cudagraph_gate.gates.traffic import LoadLevel, PathLoad, Traffic
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.report.console_traffic import (
    choice_note,
    padding_notes,
    shapes_table,
    traffic_notes,
    traffic_table,
)

Printed = Callable[..., str]
MIB = 1 << 20
US = 1_000


def load(p50_us: int, utilisation: float, *, requests: int = 200) -> PathLoad:
    few = NotMeasured(reason="P99 needs 100 requests per path, there are 50")
    return PathLoad(
        runs=2,
        requests=requests,
        p50_ns=p50_us * US,
        p95_ns=2 * p50_us * US,
        p99_ns=3 * p50_us * US if requests >= 100 else few,
        noise_p50=0.01,
        noise_p95=0.02,
        utilisation=utilisation,
        growth=1.0,
    )


TRAFFIC = Traffic(
    shapes={"b1": 0.9, "b8": 0.1},
    captured=("b1",),
    levels=(
        LoadLevel(0.25, True, load(500, 0.25), load(200, 0.1, requests=50)),
        LoadLevel(0.8, False, load(900, 0.8), NotMeasured(reason="the graph path was not run at this level")),
        LoadLevel(1.1, False, load(90_000, 1.1), load(400, 0.44)),
    ),
)
COSTS = (
    ShapeCost("b1", 0.6, 1_000 * US, 500 * US, 10 * MIB, (1, 128)),
    ShapeCost("b2", 0.3, 1_200 * US, 700 * US, 20 * MIB, (2, 128)),
    ShapeCost("b8", 0.1, 2_000 * US, 2_100 * US, 80 * MIB, (8, 128)),
)
BUDGET = 1 << 30


def rows(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if "│" in line
    ]


def show(table: Table) -> Callable[[Console], None]:
    return lambda console: console.print(table)


# --- traffic --------------------------------------------------------------------------------------


def test_each_level_has_both_paths(printed: Printed):
    text = printed(show(traffic_table(TRAFFIC)))
    found = rows(text)
    assert found[0] == ["25.0 % (recorded)", "normal", "500 µs", "1.00 ms", "1.50 ms", "25.0 %"]
    assert found[1] == ["", "graph", "200 µs", "400 µs", "–", "10.0 %"]
    assert found[-2] == ["110.0 %", "normal", "90.0 ms", "180 ms", "270 ms", "saturated"]
    assert found[-1] == ["", "graph", "400 µs", "800 µs", "1.20 ms", "44.0 %"]
    assert found[3] == ["", "graph", "–", "–", "–", "not run"]
    assert max(map(len, text.splitlines())) <= 80


def test_notes_say_what_the_load_means_and_where_each_path_saturates():
    assert traffic_notes(TRAFFIC) == [
        "load 100 % is what the normal path can just serve",
        "served by a graph in the graph path: 90.0 % of the requests (b1)",
        "normal path saturated at 110.0 %; by its busy time it can serve 100.0 %",
        "graph path saturated: not up to level 1.10; by its busy time it can serve 250.0 %",
    ]


# --- shapes ---------------------------------------------------------------------------------------


def test_shapes_are_shown_by_gain_with_the_chosen_ones(printed: Printed):
    text = printed(show(shapes_table(COSTS, choose_shapes(COSTS, BUDGET))))
    assert rows(text) == [
        ["b1", "60.0 %", "1.00 ms", "500 µs", "300 µs", "10.0 MiB", "yes"],
        ["b2", "30.0 %", "1.20 ms", "700 µs", "150 µs", "20.0 MiB", "yes"],
        ["b8", "10.0 %", "2.00 ms", "2.10 ms", "-10.0 µs", "80.0 MiB", "no"],
    ]
    assert max(map(len, text.splitlines())) <= 80


def test_long_shape_names_stay_within_80_columns(printed: Printed):
    costs = [ShapeCost("batch_32_sequence_length_4096_bf16", 1.0, 10**9, 10**8, 10 * BUDGET)]
    text = printed(show(shapes_table(costs, choose_shapes(costs, 11 * BUDGET))))
    assert max(map(len, text.splitlines())) <= 80


def test_the_choice_is_one_sentence():
    assert choice_note(choose_shapes(COSTS, BUDGET), BUDGET) == (
        "capture b1, b2: keeps 100.0 % of the gain in 30.0 MiB (a budget of 1.00 GiB)"
    )
    assert choice_note(choose_shapes(COSTS, MIB), MIB) == (
        "capture no shape: no graph that gains fits a budget of 1.00 MiB"
    )
    assert choice_note(choose_shapes(COSTS[2:], BUDGET), BUDGET) == (
        "capture no shape: no shape gains from a graph"
    )


def test_a_greedy_choice_says_so():
    greedy = Choice(("b1",), {"b1": "b1"}, 1.0, 0.5, MIB, exact=False)
    assert choice_note(greedy, BUDGET).endswith("; a greedy choice, a smaller set may do")


def test_padding_is_an_answer_of_its_own():
    chosen = choose_buckets(COSTS, BUDGET, keep=0.7)
    assert padding_notes(chosen, paddings(COSTS), BUDGET) == [
        "if the application pads: capture b2: keeps 73.3 % of the gain in 20.0 MiB (a budget of 1.00 GiB)",
        "  b1 by the graph of b2: saves 180 µs per average request, 50.0 % of its work is padding",
    ]


def test_only_the_best_paddings_are_named():
    pairs = [Padding(f"s{index}", "l", float(index), 0.5) for index in range(5)]
    choice = Choice(("l",), {"l": "l"} | {pair.shape: "l" for pair in pairs}, 9.0, 0.96, MIB, exact=True)
    notes = padding_notes(choice, pairs, BUDGET)
    assert [note.split()[0] for note in notes[1:4]] == ["s4", "s3", "s2"]
    assert notes[4] == "  and 2 more shapes are padded"


def test_shapes_that_can_not_be_padded_say_nothing():
    assert padding_notes(choose_buckets(COSTS, BUDGET), [], BUDGET) == []
