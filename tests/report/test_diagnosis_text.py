"""What a person sees of a diagnosis, from real recordings of an H200 (tests/golden)."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.gates import Evidence
from cudagraph_gate.model import (
    Diagnosis,
    Histogram,
    HostWork,
    HtaIdle,
    HtaTemporal,
    HtaView,
    Limiter,
    NotMeasured,
    Prediction,
    QueueDepth,
)
from cudagraph_gate.report import next_command, print_diagnosis, print_hta
from cudagraph_gate.report.console_diagnosis import host_work_text, launch_rows
from cudagraph_gate.report.console_segments import segment_notes, segment_rows, variation_text
from cudagraph_gate.report.html_diagnosis import bars, depth_picture, diagnosis_parts, histogram_picture
from cudagraph_gate.timeline.table import load

GOLDEN = Path(__file__).parents[1] / "golden" / "h200"
WIDTH = 80


@cache
def found(name: str) -> Diagnosis:
    return diagnose(load(GOLDEN / f"{name}.parquet"), NotMeasured(reason="a script is not timed"))


def evidence(diagnosis: Diagnosis | None) -> Evidence:
    return Evidence(workload="model.py", run="r", fingerprint=None, profile=None, diagnosis=diagnosis)


def printed(diagnosis: Diagnosis, *, details: bool = False) -> str:
    console = Console(file=io.StringIO(), width=WIDTH, highlight=False)
    print_diagnosis(console, diagnosis, None, details=details)
    text = console.file.getvalue()
    assert isinstance(text, str)
    assert max(map(len, text.splitlines())) <= WIDTH
    return text


# --- order and parts --------------------------------------------------------------------------------


def test_the_conclusion_comes_first_and_the_idle_table_adds_up() -> None:
    text = printed(found("eager"))
    assert " ".join(text.split()).startswith(found("eager").conclusion[:60])
    assert "100.0 %" in text
    assert text.index("GPU time") < text.index("longest idle") < text.index("repeating segments")


def test_a_wait_is_shown_with_its_line() -> None:
    assert "at eager.py:14 request" in printed(found("eager"))


@pytest.mark.parametrize("words", ["API time P50", "queue depth, mean and maximum", "map of segment 1"])
def test_what_takes_longer_to_read_is_a_detail(words: str) -> None:
    assert words not in printed(found("eager"))
    assert words in printed(found("eager"), details=True)


def test_ranges_are_shown_with_what_they_wait_for() -> None:
    text = printed(found("nvtx_threads"))
    assert "user ranges" in text
    assert "across" in text
    many = msgspec.structs.replace(found("nvtx_threads"), ranges=3 * found("nvtx_threads").ranges)
    assert "more ranges: 4, in diagnosis.json" in printed(many)


# --- segments ----------------------------------------------------------------------------------------


def test_a_segment_is_a_row_and_what_ends_it_a_note() -> None:
    segments = found("eager").segments
    assert not isinstance(segments, NotMeasured)
    number, operations, repeats, *_, varies = segment_rows(segments)[0]
    assert (number, operations, repeats, varies) == ("1", "18", "12", "count 8.3 %")
    notes = segment_notes(segments)
    waits = "cudaStreamSynchronize 12 x, cuCtxSynchronize 1 x"
    assert f"segment 1: the host waits at its end ({waits} for 12 repeats)" in notes
    assert "segment 1: cudaMalloc inside it (5 x) can't be captured" in notes


def test_a_segment_that_is_a_graph_says_so_and_one_that_never_varies_too() -> None:
    segments = found("graph").segments
    assert not isinstance(segments, NotMeasured)
    graph = next(one for one in segments if one.graph_launches)
    assert segment_rows([graph])[0][1] == "16 (1 graph)"
    assert variation_text(graph) == "no"


def test_a_repeated_unit_is_shown_as_such() -> None:
    segments = found("graph").segments
    assert not isinstance(segments, NotMeasured)
    unit = msgspec.structs.replace(segments[0], operations=16, unit_operations=2)
    assert segment_rows([unit])[0][1] == "16 (8 x 2)"


@pytest.mark.parametrize(
    ("segments", "words"),
    [((), "no sequence of operations repeats"), (NotMeasured(reason="lost"), "segments: not measured: lost")],
)
def test_without_segments_the_reason_is_said(segments: object, words: str) -> None:
    assert words in printed(msgspec.structs.replace(found("eager"), segments=segments))


# --- host work, launches, other definitions ------------------------------------------------------------


def test_host_work_is_divided_and_what_was_not_sampled_is_said() -> None:
    work = HostWork(on_cpu_ns=2_000_000, waiting_ns=3_000_000, unsampled_ns=0)
    assert host_work_text(work) == "host_work: 2.00 ms on the CPU, 3.00 ms waiting"
    partly = msgspec.structs.replace(work, unsampled_ns=4_000_000)
    assert host_work_text(partly).endswith("waiting, 4.00 ms not sampled")


def test_launch_phases_and_threads_have_rows() -> None:
    rows = dict(launch_rows(found("graph")))
    assert "API time P50" in rows
    assert rows["cudaGraphLaunch"].startswith("10 x, ")
    assert any(name.startswith("thread ") for name in rows)


def test_the_other_definitions_are_a_table_a_stream() -> None:
    console = Console(file=io.StringIO(), width=WIDTH)
    waits = {
        "operations": 2,
        "idle_ns": 4_000,
        "host_wait_ns": 3_000,
        "kernel_wait_ns": 1_000,
        "other_wait_ns": 0,
    }
    spans = {"span_ns": 10_000, "compute_ns": 5_000, "non_compute_ns": 1_000, "idle_ns": 4_000}
    streams = (HtaIdle(process=7, device=0, stream=13, **waits),)
    print_hta(console, HtaView(streams=streams, devices=(HtaTemporal(process=7, device=0, **spans),)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "HolisticTraceAnalysis" in text
    assert "13" in text
    assert "3.00 µs" in text
    assert "compute 50.0 %, other operations 10.0 %, idle 40.0 %" in " ".join(text.split())


# --- the next command ------------------------------------------------------------------------------------


def predicted(gain: float) -> Prediction:
    return Prediction(
        normal_ns=1000,
        replay_ns=100,
        replay_low_ns=90,
        replay_high_ns=110,
        copy_in_ns=0,
        request_ns=100,
        gain=gain,
        upper_bound_ns=900,
        assumptions=(),
    )


@pytest.mark.parametrize(
    ("limiter", "gain", "words"),
    [
        (Limiter.SUBMISSION, 0.9, "cgate run workload.py"),
        (Limiter.SUBMISSION, -0.1, "a graph is no candidate"),
        (Limiter.SYNC, 0.9, "a graph is no candidate"),
    ],
)
def test_a_trial_is_proposed_only_where_it_promises_a_gain(limiter: Limiter, gain: float, words: str) -> None:
    diagnosis = msgspec.structs.replace(found("eager"), limiter=limiter, prediction=predicted(gain))
    assert words in next_command(evidence(diagnosis))


def test_without_any_gpu_work_the_doctor_is_next() -> None:
    assert "cgate doctor" in next_command(evidence(None))


# --- pictures ----------------------------------------------------------------------------------------------


def test_bars_are_as_high_as_their_values() -> None:
    picture = bars([1, 2], ["one", "two"], "numbers", "first")
    assert 'y="60.00"' in picture
    assert 'height="120.00"' in picture
    assert "<title>two</title>" in picture


def test_a_histogram_and_a_queue_depth_are_drawn() -> None:
    histogram = histogram_picture(Histogram(lower_ns=(0, 1_000), counts=(3, 1)))
    assert "<title>from 1.00 µs: 1</title>" in histogram
    depth = depth_picture(QueueDepth(mean=1.0, maximum=2, empty_share=0.5, over_time=(0.0, 2.0)))
    assert depth.count("<rect") == 2


@pytest.mark.parametrize("name", ["eager", "graph", "two_streams", "nvtx_threads"])
def test_the_page_has_segments_submission_and_pictures(name: str) -> None:
    page = "".join(diagnosis_parts(evidence(found(name))))
    assert "Repeating segments" in page
    assert "Map of segment 1" in page
    assert "Queue depth over the window" in page
    assert page.count("<svg") == page.count("</svg>") >= 3
