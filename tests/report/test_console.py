"""What a person reads in a terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from artefact_builder import device_idle, diagnosis, fingerprint, prediction, profile
from captured_map import CAPTURED_MAP
from evidence_builder import (
    FINISHED,
    MS,
    changed,
    compared,
    node_set,
    not_measured,
    passing,
    shape_records,
    timed,
    trial,
)

from cudagraph_gate.gates import Policy, judge
from cudagraph_gate.gates.wording import duration
from cudagraph_gate.model import CallSummary, Cause, Reason
from cudagraph_gate.records import Finding, Phase
from cudagraph_gate.report import print_diagnosis, print_fingerprint, print_trial, print_verdict
from cudagraph_gate.report.console_pieces import SIMULATED_LINE

Printed = Callable[..., str]
LONG = "void_at_native_vectorized_elementwise_kernel<4, " + "std::array<char*, 3>, " * 12 + ">"


def cells(text: str) -> list[list[str]]:
    """The rows of all tables."""
    return [
        [cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if "│" in line
    ]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (12_340, "12.3 µs"),
        (999_400, "999 µs"),
        (999_500, "1.00 ms"),
        (1_920_000, "1.92 ms"),
        (99_960_000, "100 ms"),
        (1_500_000_000, "1.50 s"),
        (-1_920_000, "-1.92 ms"),
    ],
)
def test_a_duration_has_three_digits_and_its_unit(ns: int, text: str):
    assert duration(ns) == text


# --- diagnosis ------------------------------------------------------------------------------------


def test_busy_and_all_causes_add_up_to_the_window(printed: Printed):
    rows = cells(printed(print_diagnosis, diagnosis(), None))
    assert rows[:6] == [
        ["busy", "10.000", "50.0 %"],
        ["host_work", "6.000", "30.0 %"],
        ["host_api", "2.000", "10.0 %"],
        ["launch_latency", "1.000", "5.0 %"],
        ["sync", "1.000", "5.0 %"],
        ["total", "20.000", "100.0 %"],
    ]


def test_shares_that_round_down_still_total_a_hundred(printed: Printed):
    thirds = device_idle(window_ns=3, busy_ns=1, idle_ns=2, causes={Cause.SYNC: 1, Cause.RAMP: 1})
    rows = cells(printed(print_diagnosis, diagnosis(devices=(thirds,)), None))
    assert ["busy", "0.000", "33.3 %"] in rows
    assert ["total", "0.000", "100.0 %"] in rows


def test_idle_that_is_not_measurable_prints_its_reason_and_no_table(printed: Printed):
    device = device_idle(idle_ns=not_measured("records were dropped"), causes={})
    text = printed(print_diagnosis, diagnosis(devices=(device,)), None)
    assert "idle is not measurable: records were dropped" in text
    assert "% of window" not in text


def test_the_longest_idle_and_the_submissions_are_shown(printed: Printed):
    rows = cells(printed(print_diagnosis, diagnosis(), None))
    assert ["3.000", "500 µs", "host_work", "gemm", "cuLaunchKernel", "step"] in rows
    assert ["submissions per request", "8"] in rows
    assert ["submission gap P50", "40.0 µs"] in rows


def test_blocking_calls_are_shown(printed: Printed):
    calls = (CallSummary(name="cuStreamSynchronize", count=20, total_ns=4 * MS),)
    launches = changed(diagnosis().launches, blocking_calls=calls)
    rows = cells(printed(print_diagnosis, diagnosis(launches=launches), None))
    assert ["blocking: cuStreamSynchronize", "20 x, 4.00 ms"] in rows


def test_the_predicted_gain_has_its_interval(printed: Printed):
    rows = cells(printed(print_diagnosis, diagnosis(), None))
    assert ["gain", "40.0 % (38.0 % to 42.0 %)"] in rows
    assert ["replay", "570 µs (550 µs to 590 µs)"] in rows


def test_the_recorders_inflation_is_shown(printed: Printed):
    rows = cells(printed(print_diagnosis, diagnosis(), profile()))
    assert ["recorder's inflation", "1.10 x"] in rows


def test_what_is_absent_prints_its_reason(printed: Printed):
    absent = diagnosis(
        requests=not_measured("no request ranges"),
        prediction=not_measured("no requests"),
        problems=("2 records dropped",),
    )
    text = printed(print_diagnosis, absent, None)
    assert "not measured: no request ranges" in text
    assert "no prediction: no requests" in text
    assert "problem: 2 records dropped" in text


# --- trial ----------------------------------------------------------------------------------------


def test_costs_and_latencies_are_shown(printed: Printed):
    rows = cells(printed(print_trial, passing()))
    assert ["capture", "2.00 ms"] in rows
    assert ["P50", "1.00 ms", "600 µs", "0.600", "0.600 to 0.600"] in rows
    assert ["CPU", "100 µs", "50.0 µs", "", ""] in rows


def test_nodes_and_comparisons_are_counted(printed: Printed):
    wrong = [compared("outputs", i, equal=i > 0, exact=False) for i in range(5)]
    text = printed(print_trial, passing(records=trial(shape_records(comparisons=wrong))))
    assert "graph: 8 nodes (8 kernel)" in text
    assert "outputs: 4 of 5 equal, 0 bit by bit" in text


def test_a_graph_with_a_map_is_shown_as_one(printed: Printed):
    text = printed(print_trial, passing(records=trial(shape_records(more=[CAPTURED_MAP]))))
    assert ["0", "–", "work", "gemm<float> & 3 others", "cuBLAS", "7", "–"] in cells(text)
    assert "8 nodes (7 kernel, 1 memcpy), 7 dependencies; longest chain 8" in text
    assert "graph: 8 nodes" not in text


def test_an_explicit_graph_stands_beside_the_captured_one(printed: Printed):
    explicit = [changed(record, method="explicit") for record in shape_records(graph_ns=500_000)]
    text = printed(print_trial, passing(records=trial(shape_records(), (FINISHED, *explicit))))
    first = text.index("latency, shape b1")
    second = text.index("latency, shape b1, explicit graph")
    assert "600 µs" in text[first:second]
    assert ["P50", "1.00 ms", "500 µs", "0.500", "0.500 to 0.500"] in cells(text[second:])
    assert "the explicit graph" not in text


def test_a_wrong_explicit_graph_is_said_to_be(printed: Printed):
    wrong = [compared("outputs", at, equal=at != 2, max_abs_error=0.5, detail="y") for at in range(6)]
    explicit = [changed(record, method="explicit") for record in shape_records(comparisons=wrong)]
    evidence = passing(records=trial(shape_records(), (FINISHED, *explicit)))
    note = (
        "the explicit graph of shape b1 is wrong: request 2: outputs differ from the normal path, y "
        "(error 0.5, tolerance 1e-06); the captured graph is judged, not this one"
    )
    assert note in " ".join(printed(print_trial, evidence).split())
    assert f"condition: {note}" in " ".join(printed(print_verdict, judge(evidence, Policy())).split())


def test_a_finding_is_shown_with_its_call_and_advice(printed: Printed):
    finding = Finding(
        shape="b1",
        phase=Phase.CAPTURE,
        code=Reason.CAPTURE_ILLEGAL,
        message="a copy to the host",
        call="cuMemcpyDtoH",
        where="model.py:7",
        advice="move it out of step",
    )
    text = printed(print_trial, passing(records=trial(shape_records(more=[finding], completed=False))))
    assert "finding capture-illegal in capture: a copy to the host" in text
    assert "[cuMemcpyDtoH model.py:7]" in " ".join(text.split())
    assert "move it out of step" in text
    assert "not completed: the trial of shape b1 ended in phase destroy" in text
    assert "latency" not in text


def test_too_few_blocks_and_untried_shapes_are_said(printed: Printed):
    few = trial(shape_records(blocks=timed("normal", MS)), shapes=("b1", "b8"))
    text = printed(print_trial, passing(records=few))
    assert "latency, shape b1: 0 timed blocks of the graph path" in text
    assert "shape b8: not tried" in text
    assert "no shape was tried" in printed(print_trial, passing(profile=None, records=()))


# --- verdict and environment ----------------------------------------------------------------------


def test_the_verdict_lists_every_gate(printed: Printed):
    text = printed(print_verdict, judge(passing(), Policy()))
    assert text.startswith("INCONCLUSIVE  model.py\n")
    numbered = [row[:3] for row in cells(text) if row[0].isdigit()]
    assert numbered[0] == ["1", "evidence", "pass"]
    assert numbered[4] == ["5", "hard scenarios", "unknown"]
    assert [row[0] for row in numbered] == list("1234567")


def test_a_stale_verdict_says_so(printed: Printed):
    text = printed(print_verdict, judge(passing(), Policy(), stale=("driver_version",)))
    assert "stale: driver_version differ here" in text
    assert "where it was recorded: INCONCLUSIVE" in text


def test_conditions_are_shown(printed: Printed):
    verdict = judge(passing(records=trial(shape_records(), shapes=("b1", "b8"))), Policy())
    assert "condition: shape b8 excluded: not tried" in printed(print_verdict, verdict)


def test_the_environment_shows_what_is_unknown(printed: Printed):
    given = fingerprint(without=("gpu_uuid",), missing={"gpu_uuid": "NVML failed"})
    rows = cells(printed(print_fingerprint, given))
    assert ["gpu_name", "NVIDIA H200"] in rows
    assert ["gpu_clock_mhz (now)", "1980"] in rows
    assert ["gpu_uuid", "unknown: NVML failed"] in rows


def test_simulated_evidence_says_so_first(printed: Printed):
    simulated = passing(
        fingerprint=fingerprint(simulated=True),
        diagnosis=changed(diagnosis(), simulated=True),
        records=trial(simulated=True),
    )
    verdict = judge(simulated, Policy())
    texts = [
        printed(print_verdict, verdict),
        printed(print_trial, simulated),
        printed(print_diagnosis, simulated.diagnosis, None),
        printed(print_fingerprint, simulated.fingerprint),
    ]
    assert {text.splitlines()[0] for text in texts} == {SIMULATED_LINE}
    assert "rehearsal: INCONCLUSIVE" in texts[0]


def test_long_names_stay_within_80_columns_and_without_colour(printed: Printed):
    nodes = node_set(kernels={LONG: 1}, kinds={LONG: 1})
    finding = Finding(shape="b1", phase=Phase.CAPTURE, code=Reason.CAPTURE_ILLEGAL, message=LONG, where=LONG)
    evidence = passing(
        workload=LONG,
        fingerprint=fingerprint(missing={LONG: LONG}),
        records=trial(shape_records(nodes=nodes, more=[finding])),
    )
    idle = changed(device_idle().top_idle[0], next_operation=LONG, host_call=LONG, range_name=LONG)
    long = diagnosis(devices=(device_idle(top_idle=(idle,)),), conclusion=LONG, prediction=prediction())
    text = "".join(
        [
            printed(print_verdict, judge(evidence, Policy())),
            printed(print_trial, evidence),
            printed(print_diagnosis, long, profile(shape=LONG)),
            printed(print_fingerprint, evidence.fingerprint),
        ]
    )
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text


def test_square_brackets_in_names_are_no_markup(printed: Printed):
    text = printed(print_verdict, judge(passing(workload="[red]w[/red].py"), Policy()))
    assert "[red]w[/red].py" in text


def test_the_prediction_is_compared_with_what_was_measured(printed: Printed):
    text = " ".join(printed(print_trial, passing()).split())
    assert "graph request of shape b1: predicted 600 µs, measured 600 µs (prediction off by 0.0 %)" in text
