"""Segments of public traces that others recorded: what they show, and what they must not."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from made_segments import segments

from cudagraph_gate.model import NotMeasured, Segment
from cudagraph_gate.timeline.kineto import read_kineto
from cudagraph_gate.timeline.nsys import read_nsys

TRACES: Final = Path(__file__).parents[3] / "shared" / "data" / "traces"
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the public traces are not here")


def found(name: str) -> tuple[Segment, ...]:
    read = read_nsys if name.endswith(".sqlite") else read_kineto
    return segments(read(TRACES / name))


def test_a_loop_without_any_boundary_is_told_by_its_unit() -> None:
    (segment,) = found("own_h200_mlp64_torch_profiler.json.gz")
    assert (segment.operations, segment.repeats, segment.variant_count) == (2, 12_800, 1)
    assert segment.coverage > 0.99
    assert not isinstance(segment.prediction, NotMeasured)
    # The window has 601 ms of submission idle, 47 µs a unit.
    assert segment.prediction.upper_bound_ns == pytest.approx(601_018_403 / 12_800, rel=0.1)


def test_training_steps_are_found_on_both_threads() -> None:
    backward, forward = sorted(found("linear_kineto.json.gz"), key=lambda one: one.thread)
    assert [one.repeats for one in (backward, forward)] == [pytest.approx(40, abs=1)] * 2
    assert backward.operation_share + forward.operation_share > 0.99


def test_graph_launches_are_told_as_such() -> None:
    (segment,) = found("trace_with_manual_capture.json.gz")
    assert (segment.marked_by, segment.repeats, segment.graph_launches) == ("ProfilerStep", 7, 1)


def test_piecewise_graphs_are_one_step_each() -> None:
    (segment,) = found("vllm_piecewise_graph.json.gz")
    assert (segment.graph_launches, segment.operations, segment.repeats) == (1, 17, 23)


@pytest.mark.parametrize(
    "name",
    [
        "sglang_Qwen3-8B_decode_graph.json.gz",
        "report2_2024.6.2_h200.sqlite",
        "critical_path_alexnet.json.gz",
        "nsight-2025.5.2.sqlite",
    ],
)
def test_idle_that_nothing_repeats_is_nobody_s_gain(name: str) -> None:
    assert found(name) == ()


def test_kernels_that_each_end_in_a_synchronisation_leave_little_to_gain() -> None:
    for segment in found("perlmutter-cloverleaf-cuda.sqlite"):
        assert segment.operation_share < 0.05
        assert [one.name for one in segment.blocking_calls] == ["cudaDeviceSynchronize"]
