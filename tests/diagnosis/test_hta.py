"""Idle time as HolisticTraceAnalysis defines it, by hand and against its own answers on real traces."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from made_timelines import call, kernel, timeline

from cudagraph_gate.diagnosis.hta import US, hta_idle, hta_temporal
from cudagraph_gate.model import HtaIdle, HtaTemporal
from cudagraph_gate.timeline.kineto import read_kineto
from cudagraph_gate.timeline.table import Timeline

TRACES: Final = Path(__file__).parents[3] / "shared" / "data" / "traces"

IDLE: Final = {
    "h100_Falconsai_nsfw.json.gz": [(7, 6_471, 20, 0)],
    "b200_eager.json.gz": [(7, 73_166, 566, 0)],
    "own_h200_mlp64_torch_profiler.json.gz": [(7, 627_811, 0, 0)],
    "mi250_minitoy_ROCm6_2.json.gz": [(0, 8_780, 0, 0)],
}
"""HTA 0.5.0, ``get_idle_time_breakdown``: stream, host wait, kernel wait, other, in µs."""
WHOLE_US_IDLE: Final = {
    "amg_example_1graph.json.gz": [(7, 189_459, 2_423, 0), (164, 0, 280, 0)],
    "critical_path_alexnet.json.gz": [(7, 12_855_007, 104, 0), (20, 12_011_718, 3, 0)],
    "inference_rank_1_oldcats.json.gz": [(7, 1_599, 0, 0)],
}
"""The same of files with whole µs, which HTA does not round."""
TEMPORAL: Final = {
    "h100_Falconsai_nsfw.json.gz": (7_559, 1_065, 3, 6_491),
    "own_h200_mlp64_torch_profiler.json.gz": (650_671, 22_860, 0, 627_811),
    "mi250_minitoy_ROCm6_2.json.gz": (8_911, 96, 35, 8_780),
}
"""HTA 0.5.0, ``get_temporal_breakdown``: span, compute, non-compute, idle, in µs."""


def trace(name: str) -> Timeline:
    if not TRACES.is_dir():
        pytest.skip("the public traces are not here")
    return read_kineto(TRACES / name)


def waits_us(one: HtaIdle) -> tuple[int, float, float, float]:
    return one.stream, one.host_wait_ns / US, one.kernel_wait_ns / US, one.other_wait_ns / US


def test_gaps_are_told_apart_by_launch_and_length() -> None:
    rows = [
        kernel(0, 100, 1),
        kernel(150, 200, 2),
        kernel(210, 300, 3),
        kernel(400, 500, 4),
        kernel(600, 700),
    ]
    calls = [call(0, 5, 1), call(110, 120, 2), call(120, 130, 3), call(130, 140, 4)]
    (found,) = hta_idle(timeline(rows, calls), kernel_wait_below_ns=30)
    assert found == HtaIdle(
        process=1,
        device=0,
        stream=7,
        operations=5,
        idle_ns=260,
        host_wait_ns=50,
        kernel_wait_ns=10,
        other_wait_ns=100 + 100,
    )


def test_a_launch_at_the_very_end_of_the_operation_before_is_no_host_wait() -> None:
    (found,) = hta_idle(timeline([kernel(0, 100, 1), kernel(150, 200, 2)], [call(100, 110, 2)]))
    assert (found.host_wait_ns, found.kernel_wait_ns) == (0, 50)


def test_streams_are_told_apart_and_overlap_is_a_negative_gap() -> None:
    rows = [kernel(0, 100), kernel(20, 30, stream=8), kernel(90, 120), kernel(50, 60, stream=8)]
    assert [(one.stream, one.idle_ns) for one in hta_idle(timeline(rows))] == [(7, -10), (8, 20)]


def test_whole_us_rounds_starts_up_and_ends_down() -> None:
    rows = [kernel(100, 2_900, 1), kernel(3_100, 5_000, 2)]
    made = timeline(rows, [call(2_000, 2_950, 2)])
    (rounded,) = hta_idle(made, whole_us=True)
    assert (rounded.idle_ns, rounded.kernel_wait_ns) == (4_000 - 2_000, 2_000)
    assert hta_idle(made)[0].idle_ns == 200


def test_the_span_is_cut_into_compute_other_work_and_idle() -> None:
    rows = [
        kernel(0, 40),
        kernel(30, 60, name="ncclDevKernel_AllReduce_Sum", stream=8),
        kernel(80, 90, kind="memcpy", name="HtoD"),
        kernel(85, 100),
    ]
    assert hta_temporal(timeline(rows)) == (
        HtaTemporal(process=1, device=0, span_ns=100, compute_ns=55, non_compute_ns=25, idle_ns=20),
    )


def test_no_operations_have_no_waits() -> None:
    assert (hta_idle(timeline()), hta_temporal(timeline())) == ((), ())


@pytest.mark.parametrize("name", IDLE)
def test_rounded_waits_are_those_of_hta(name: str) -> None:
    assert [waits_us(one) for one in hta_idle(trace(name), whole_us=True)] == IDLE[name]


@pytest.mark.parametrize("name", [*IDLE, *WHOLE_US_IDLE])
def test_exact_waits_are_those_of_hta_within_its_rounding(name: str) -> None:
    # Both ends of a gap are rounded, each by less than 1 µs.
    expected = (IDLE | WHOLE_US_IDLE)[name]
    for one, (stream, *waits) in zip(hta_idle(trace(name)), expected, strict=True):
        assert one.stream == stream
        assert abs(one.idle_ns / US - sum(waits)) <= 2 * one.operations
        assert waits_us(one)[1:] == pytest.approx(waits, abs=2 * one.operations)


@pytest.mark.parametrize("name", TEMPORAL)
def test_the_rounded_breakdown_of_the_span_is_that_of_hta(name: str) -> None:
    (one,) = hta_temporal(trace(name), whole_us=True)
    assert (
        tuple(time / US for time in (one.span_ns, one.compute_ns, one.non_compute_ns, one.idle_ns))
        == (TEMPORAL[name])
    )
