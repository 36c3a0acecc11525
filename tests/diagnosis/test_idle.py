"""Busy and idle time per device and process, the longest idle intervals, and when idle is not measurable."""

from __future__ import annotations

import pytest
from made_timelines import call, diagnosed, kernel, request, span, sync

from cudagraph_gate.model import Cause, NotMeasured
from cudagraph_gate.timeline.table import GRAPH

LAUNCH = "cudaGraphLaunch"


def copy(start: int, end: int, **others: object) -> dict[str, object]:
    return kernel(start, end, kind="memcpy", name="HtoD", **others)


def test_busy_is_the_union_over_streams_and_engines() -> None:
    rows = [kernel(0, 50), kernel(30, 60, stream=8), copy(40, 100, stream=9), copy(150, 160, stream=9)]
    (device,) = diagnosed(rows).devices
    assert (device.window_ns, device.busy_ns, device.sum_ns) == (160, 110, 150)
    assert (device.compute_ns, device.copy_ns, device.idle_ns) == (60, 70, 50)
    assert (device.operations, device.streams) == (4, 3)


def test_streams_of_other_contexts_are_other_streams() -> None:
    (device,) = diagnosed([kernel(0, 10, context=1), kernel(10, 20, context=2)]).devices
    assert device.streams == 2


def test_only_time_inside_the_window_counts() -> None:
    rows = [kernel(0, 50), kernel(60, 80), kernel(90, 200), kernel(300, 400)]
    (device,) = diagnosed(rows, window=(40, 100)).devices
    assert (device.busy_ns, device.sum_ns, device.idle_ns, device.operations) == (40, 40, 20, 3)


def test_devices_are_idle_apart() -> None:
    rows = [kernel(0, 40), kernel(0, 10, device=1), kernel(30, 50, 2, device=1), kernel(80, 100)]
    first, second = diagnosed(rows, [call(12, 20, 2)]).devices
    assert (first.device, first.busy_ns, first.causes[Cause.UNKNOWN]) == (0, 60, 40)
    assert (second.device, second.busy_ns, second.causes[Cause.RAMP]) == (1, 30, 50)
    assert second.causes[Cause.HOST_WORK] == 2
    assert second.causes[Cause.HOST_API] == 8
    assert second.causes[Cause.LAUNCH_LATENCY] == 10


def test_calls_of_another_process_with_the_same_correlation_are_foreign() -> None:
    rows = [kernel(0, 10, 1), kernel(50, 60, 2), kernel(0, 20, 1, process=2), kernel(50, 60, 2, process=2)]
    mine, other = diagnosed(rows, [call(30, 50, 2, process=2), sync(0, 50, process=1)]).devices
    assert (mine.process, mine.causes[Cause.UNKNOWN]) == (1, 40)
    assert (other.process, other.causes[Cause.HOST_WORK], other.causes[Cause.HOST_API]) == (2, 10, 20)


def test_a_request_of_any_process_asks_for_work() -> None:
    rows = [kernel(0, 10, process=2), kernel(30, 40, process=2)]
    (worker,) = diagnosed(rows, [], [request(0, 20, process=1), request(35, 40, process=1)]).devices
    assert worker.causes[Cause.NO_REQUEST] == 10
    assert worker.causes[Cause.UNKNOWN] == 10


def test_a_device_without_work_in_the_window_is_left_out() -> None:
    diagnosis = diagnosed([kernel(0, 10), kernel(50, 60, device=1)], window=(0, 20))
    assert [device.device for device in diagnosis.devices] == [0]


def test_operations_of_no_length_are_counted_but_end_no_idle() -> None:
    (device,) = diagnosed([kernel(0, 10), kernel(15, 15, 2), kernel(20, 30, 3)], [call(12, 20, 3)]).devices
    assert device.operations == 3
    assert device.causes[Cause.HOST_WORK] == 2
    assert device.causes[Cause.HOST_API] == 8


def test_dropped_records_make_idle_not_measurable() -> None:
    diagnosis = diagnosed([kernel(0, 10), kernel(20, 30)], dropped_records=3)
    (device,) = diagnosis.devices
    assert isinstance(device.idle_ns, NotMeasured)
    assert "3 records" in device.idle_ns.reason
    assert (device.busy_ns, device.causes, device.top_idle) == (20, {}, ())
    assert "3 records are missing" in diagnosis.problems


def test_a_graph_launch_without_nodes_makes_idle_of_its_process_not_measurable() -> None:
    rows = [kernel(0, 10), kernel(20, 30), kernel(0, 10, process=2), kernel(20, 30, process=2)]
    blind, seeing = diagnosed(rows, [call(12, 15, 9, name=LAUNCH)]).devices
    assert isinstance(blind.idle_ns, NotMeasured)
    assert "1 graph launches" in blind.idle_ns.reason
    assert seeing.idle_ns == 10


@pytest.mark.parametrize("recorded", [{"graph": 5, "node": 1}, {"graph": 5}])
def test_nodes_or_a_whole_graph_record_make_a_graph_launch_measurable(recorded: dict[str, int]) -> None:
    (device,) = diagnosed(
        [kernel(0, 10), kernel(20, 30, 9, **recorded)], [call(12, 15, 9, name=LAUNCH)]
    ).devices
    assert device.idle_ns == 10


def test_a_failed_graph_launch_hides_no_work() -> None:
    (device,) = diagnosed([kernel(0, 10), kernel(20, 30)], [call(12, 15, 9, name=LAUNCH, status=719)]).devices
    assert device.idle_ns == 10


def test_the_longest_idle_intervals_say_what_happened() -> None:
    rows = [kernel(0, 10, 1), kernel(20, 30, 2), kernel(90, 100, 3, name="gemm")]
    calls = [call(12, 18, 2), sync(30, 75), call(80, 85, 3), call(30, 90, 9, thread=11, name="cuMemAlloc")]
    ranges = [span("step", 0, 100), span("load", 25, 60), span("copy", 28, 50, thread=11)]
    (device,) = diagnosed(rows, calls, ranges).devices
    longest, shortest = device.top_idle
    assert (longest.start_ns, longest.duration_ns, longest.cause) == (30, 60, Cause.SYNC)
    assert (longest.next_operation, longest.host_call) == ("gemm", "cuStreamSynchronize")
    assert (longest.range_name, shortest.range_name) == ("load", "step")


def test_idle_at_the_end_names_no_operation() -> None:
    (device,) = diagnosed([kernel(0, 10)], window=(0, 30)).devices
    (tail,) = device.top_idle
    assert (tail.next_operation, tail.host_call, tail.range_name, tail.cause) == ("", "", "", Cause.RAMP)


def test_ten_idle_intervals_are_named_longest_first() -> None:
    (device,) = diagnosed([kernel(start * start, start * start + 1) for start in range(15)]).devices
    assert [interval.duration_ns for interval in device.top_idle] == list(range(26, 6, -2))


def test_a_graph_launch_recorded_whole_is_busy_compute_and_hides_its_gaps() -> None:
    rows = [kernel(0, 10, 8), kernel(20, 60, 9, kind=GRAPH, graph=5), copy(80, 90, correlation=10)]
    (device,) = diagnosed(rows, [call(12, 15, 9, name=LAUNCH)]).devices
    assert (device.compute_ns, device.copy_ns, device.busy_ns) == (50, 10, 60)
    assert device.causes[Cause.GRAPH_GAP] == 0
    assert device.causes[Cause.LAUNCH_LATENCY] == 5


def test_a_graph_launch_without_a_correlation_has_no_operation() -> None:
    (device,) = diagnosed([kernel(0, 10), kernel(20, 30)], [call(12, 15, 0, name=LAUNCH)]).devices
    assert isinstance(device.idle_ns, NotMeasured)


CAPTURE = [call(10, 11, name="cudaStreamBeginCapture_v10000"), call(90, 91, name="cudaStreamEndCapture")]


def captured(count: int) -> list[dict[str, object]]:
    return [call(20 + place, 21 + place, 100 + place) for place in range(count)]


def test_a_recording_of_a_capture_tells_nothing_of_idle() -> None:
    (device,) = diagnosed([kernel(0, 5, 1)], [call(0, 1, 1), *CAPTURE, *captured(2)]).devices
    assert isinstance(device.idle_ns, NotMeasured)
    assert device.idle_ns.reason.startswith("2 launches were captured into a graph and 1 operations ran")


def test_idle_is_measured_where_the_captured_graph_ran() -> None:
    nodes = [kernel(110, 115, 9, graph=3), kernel(116, 120, 9, graph=3)]
    replay = call(100, 105, 9, name=LAUNCH)
    (device,) = diagnosed(nodes, [*CAPTURE, *captured(2), replay]).devices
    assert device.idle_ns == 1


def test_a_capture_of_another_process_is_none_of_this_one() -> None:
    others = [row | {"process": 2} for row in (*CAPTURE, *captured(5))]
    (device,) = diagnosed([kernel(0, 5, 1), kernel(7, 9, 2)], [call(0, 1, 1), *others]).devices
    assert device.idle_ns == 2
