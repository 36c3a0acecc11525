"""Pieces of idle time as rows."""

from __future__ import annotations

from made_timelines import call, example, kernel, timeline

from cudagraph_gate.diagnosis.pieces import idle_pieces
from cudagraph_gate.timeline.perfetto import IDLE_COLUMNS


def test_the_pieces_of_the_example_fill_its_idle_time_in_order() -> None:
    pieces = idle_pieces(example(), (0, 2000))
    assert dict(pieces.dtypes.astype(str)) == dict(IDLE_COLUMNS)
    rows = list(zip(pieces["cause"], pieces["start_ns"], pieces["end_ns"], strict=True))
    assert rows == [
        ("ramp", 0, 150),
        ("launch_latency", 350, 360),
        ("host_work", 560, 600),
        ("host_api", 600, 650),
        ("launch_latency", 650, 670),
        ("sync", 770, 790),
        ("host_work", 790, 1000),
        ("no_request", 1000, 1200),
        ("host_work", 1200, 1220),
        ("profiler", 1220, 1250),
        ("host_work", 1250, 1300),
        ("host_api", 1300, 1350),
        ("launch_latency", 1350, 1380),
        ("ramp", 1780, 2000),
    ]


def test_devices_follow_each_other_and_one_that_is_not_measurable_has_none() -> None:
    rows = [kernel(0, 10), kernel(0, 20, device=1), kernel(5, 10, process=2)]
    blind = call(2, 3, 9, name="cudaGraphLaunch", process=2)
    pieces = idle_pieces(timeline(rows, [blind]), (0, 30))
    assert pieces[["process", "device", "start_ns"]].to_numpy().tolist() == [[1, 0, 10], [1, 1, 20]]
    assert idle_pieces(timeline(), (0, 30)).empty
