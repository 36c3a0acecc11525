"""What the simulated device records."""

from __future__ import annotations

import numpy as np
import pytest
from device_programs import ADD, ONE_BLOCK, SCALE, blank, numbers
from simulated_programs import LONG, SHORT, Recording, chain, launch

from cudagraph_gate.device.port import LaunchShape
from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.timeline.table import CALL_COLUMNS, OPERATION_COLUMNS, RANGE_COLUMNS


def test_trace_rows_have_the_timelines_columns(exact: SimulatedDevice) -> None:
    with Recording(exact) as seen, exact.annotate("request"):
        launch(exact, SHORT, exact.current_stream())
    trace = seen.trace
    assert [list(row) for row in trace.operations] == [list(OPERATION_COLUMNS)]
    assert [list(row) for row in trace.calls] == [list(CALL_COLUMNS)]
    assert [list(row) for row in trace.ranges] == [list(RANGE_COLUMNS)]


def test_calls_say_which_stream_and_event_they_are_about(exact: SimulatedDevice) -> None:
    first, second = exact.create_stream(), exact.create_stream()
    with Recording(exact) as seen:
        event = first.record()
        second.wait(event)
        second.synchronize()
        launch(exact, SHORT, second)
    recorded, waited, synchronised, launched = [(row["stream"], row["event"]) for row in seen.trace.calls]
    assert recorded[0] != waited[0]
    assert recorded[1] == waited[1] > 0
    assert synchronised == (waited[0], 0)
    assert launched == (0, 0)


def test_computing_is_told_from_waiting(exact: SimulatedDevice) -> None:
    exact.host_work(5)
    with Recording(exact) as seen:
        start = exact.clock_ns()
        exact.host_work(100)
        exact.host_wait(40)
    spans = [
        (row["start_ns"] - start, row["end_ns"] - start, row["on_cpu_ns"]) for row in seen.trace.cpu_times
    ]
    assert spans == [(0, 100, 100), (100, 140, 0)]


def test_operations_share_the_correlation_of_their_call(exact: SimulatedDevice) -> None:
    executable, stream = chain(exact, SHORT, 2), exact.create_stream()
    with Recording(exact) as seen:
        launch(exact, SHORT, stream)
        executable.launch(stream)
    launched, replayed = [row["correlation"] for row in seen.trace.calls]
    assert launched != replayed
    rows = [(row["correlation"], row["graph"], row["node"]) for row in seen.trace.operations]
    graph = rows[1][1]
    assert graph > 0
    assert rows == [(launched, 0, 0), (replayed, graph, 1), (replayed, graph, 2)]


def test_a_kernel_row_says_where_and_when_it_was_submitted(exact: SimulatedDevice) -> None:
    with Recording(exact) as seen:
        exact.launch(SHORT, LaunchShape((4, 2, 1), (32, 1, 1)), ())
    (row,) = seen.trace.operations
    assert (row["queued_ns"] - seen.start_ns, row["submitted_ns"] - seen.start_ns) == (3_750, 5_000)
    assert [row[f"grid_{axis}"] for axis in "xyz"] == [4, 2, 1]
    assert [row[f"block_{axis}"] for axis in "xyz"] == [32, 1, 1]
    assert (row["kind"], row["name"], row["stream"], row["bytes"]) == ("kernel", "busy2000", 13, 0)


def test_streams_are_numbered_as_cupti_does(exact: SimulatedDevice) -> None:
    stream = exact.create_stream()
    with Recording(exact) as seen:
        launch(exact, SHORT, exact.legacy_stream, stream)
    assert [row["stream"] for row in seen.trace.operations] == [7, 14]


def test_waiting_calls_are_marked_as_blocking(exact: SimulatedDevice) -> None:
    array, stream = blank(exact), exact.current_stream()
    with Recording(exact) as seen:
        event = stream.record()
        exact.launch(ADD, ONE_BLOCK, (array, array, array))
        event.synchronize()
        stream.synchronize()
        exact.synchronize()
        array.to_host()
    blocking = [row["name"] for row in seen.trace.calls if row["blocking"]]
    assert blocking == ["cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize", "cuMemcpyDtoH"]


def test_reading_an_array_waits_for_the_device_and_is_a_copy(exact: SimulatedDevice) -> None:
    array = blank(exact)
    with Recording(exact) as seen:
        launch(exact, LONG, exact.current_stream())
        array.to_host()
    # 256 bytes at 50 bytes per ns take 5 ns, 1 us after the device is done.
    assert seen.operations == [(6_000, 26_000), (27_000, 27_005)]
    assert seen.calls[-1] == ("cuMemcpyDtoH", 5_000, 27_005)


def test_a_failed_call_is_recorded_with_its_status(exact: SimulatedDevice) -> None:
    with Recording(exact) as seen, pytest.raises(Exception, match="ILLEGAL_STATE"):
        exact.end_capture(exact.current_stream())
    assert [(row["name"], row["status"]) for row in seen.trace.calls] == [("cuStreamEndCapture", 401)]


def test_nested_ranges_hold_their_work(exact: SimulatedDevice) -> None:
    with Recording(exact) as seen, exact.annotate("request"), exact.annotate("step", domain="app"):
        launch(exact, SHORT, exact.current_stream())
    ranges = [(row["name"], row["domain"], row["end_ns"] - row["start_ns"]) for row in seen.trace.ranges]
    assert ranges == [("step", "app", 5_000), ("request", "cgate", 5_000)]


def test_recording_twice_or_never_is_an_error(exact: SimulatedDevice) -> None:
    with pytest.raises(Exception, match="does not record"):
        exact.stop_trace()
    exact.start_trace()
    with pytest.raises(Exception, match="records already"):
        exact.start_trace()


def test_a_copy_row_says_its_direction_and_size(exact: SimulatedDevice) -> None:
    array = blank(exact)
    with Recording(exact) as seen:
        exact.fill(array, 1)
        exact.launch(SCALE, ONE_BLOCK, (array, array, np.float32(2)))
        exact.copy(array, numbers())
    rows = [(row["kind"], row["name"], row["bytes"]) for row in seen.trace.operations]
    assert rows == [("memset", "memset", 256), ("kernel", "scale", 0), ("memcpy", "HtoD", 256)]
