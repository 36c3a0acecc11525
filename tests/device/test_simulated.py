"""Exact times of the simulated device, computed by hand from its spec, and its order of operations."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from device_programs import ONE_BLOCK, blank, numbers, scale
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_programs import LONG, SHORT, Recording, chain, launch

from cudagraph_gate.device.port import DeviceArray, Kernel, LaunchShape, Stream
from cudagraph_gate.device.simulated import SimulatedDevice, SimulatedSpec

# --- host and stream time -------------------------------------------------------------------------


def test_a_launch_and_a_synchronisation_take_their_time(exact: SimulatedDevice) -> None:
    cpu_ns = exact.cpu_time_ns()
    with Recording(exact) as seen:
        exact.launch(SHORT, ONE_BLOCK, ())
        exact.current_stream().synchronize()
    assert seen.operations == [(6_000, 8_000)]
    assert seen.calls == [("cuLaunchKernel", 0, 5_000), ("cuStreamSynchronize", 5_000, 8_000)]
    # The device wait is no CPU time; the first 1 500 ns are the synchronisation that begins a recording.
    assert exact.cpu_time_ns() - cpu_ns == 1_500 + 5_000 + 1_500


def test_short_kernels_wait_for_their_submission(exact: SimulatedDevice) -> None:
    with Recording(exact) as seen:
        launch(exact, SHORT, *[exact.current_stream()] * 3)
    assert seen.operations == [(6_000, 8_000), (11_000, 13_000), (16_000, 18_000)]


def test_long_kernels_follow_each_other_without_a_gap(exact: SimulatedDevice) -> None:
    with Recording(exact) as seen:
        launch(exact, LONG, *[exact.current_stream()] * 3)
    assert seen.operations == [(6_000, 26_000), (26_000, 46_000), (46_000, 66_000)]


def test_kernels_of_two_streams_overlap(exact: SimulatedDevice) -> None:
    streams = exact.create_stream(), exact.create_stream()
    with Recording(exact) as seen:
        launch(exact, LONG, *streams)
    assert seen.operations == [(6_000, 26_000), (11_000, 31_000)]


def test_copies_in_one_direction_queue_for_their_engine(exact: SimulatedDevice) -> None:
    first, second, host = exact.create_stream(), exact.create_stream(), np.zeros(500_000, np.uint8)
    targets = [exact.empty((500_000,), np.uint8) for _ in range(2)]
    with Recording(exact) as seen:
        exact.copy(targets[0], host, first)
        exact.copy(targets[1], host, second)
        exact.copy(host, targets[0], second)
    # 500 000 bytes at 50 bytes per ns take 10 us; the way back has an engine of its own.
    assert seen.operations == [(3_000, 13_000), (13_000, 23_000), (23_000, 33_000)]
    assert [row["name"] for row in seen.trace.operations] == ["HtoD", "HtoD", "DtoH"]


def test_a_stream_waits_for_an_event_of_another(exact: SimulatedDevice) -> None:
    first, second = exact.create_stream(), exact.create_stream()
    with Recording(exact) as seen:
        launch(exact, LONG, first)
        second.wait(first.record())
        launch(exact, SHORT, second)
    assert seen.operations == [(6_000, 26_000), (26_000, 28_000)]


def test_blocking_streams_and_the_legacy_stream_take_turns(exact: SimulatedDevice) -> None:
    blocking, free = exact.create_stream(blocking=True), exact.create_stream()
    with Recording(exact) as seen:
        launch(exact, LONG, blocking, exact.legacy_stream, blocking, free)
    assert seen.operations == [(6_000, 26_000), (26_000, 46_000), (46_000, 66_000), (21_000, 41_000)]


def test_events_measure_device_time(exact: SimulatedDevice) -> None:
    stream = exact.create_stream()
    before = stream.record()
    launch(exact, LONG, stream)
    after = stream.record()
    after.synchronize()
    # The first event happens 1 us after its call; the launch call takes 5 us of the stream's idle time.
    assert after.elapsed_ns(before) == 5_000 + 20_000


def test_elapsed_time_of_an_event_to_come_is_not_ready(exact: SimulatedDevice) -> None:
    stream = exact.create_stream()
    before = stream.record()
    launch(exact, LONG, stream)
    with pytest.raises(Exception, match="CUDA_ERROR_NOT_READY"):
        stream.record().elapsed_ns(before)


def test_a_full_queue_blocks_the_launching_thread() -> None:
    device = SimulatedDevice(SimulatedSpec(jitter=0, queue_depth=2))
    with Recording(device) as seen:
        launch(device, LONG, *[device.current_stream()] * 4)
    # The third launch waits for the first kernel (26 us), the fourth for the second (46 us).
    assert [end for _name, _start, end in seen.calls] == [5_000, 10_000, 26_000, 46_000]


def test_a_cost_model_sees_shape_and_values(exact: SimulatedDevice) -> None:
    work = Kernel("sized", "", lambda *_: None, lambda shape, array, n: shape.grid[0] * array.size * int(n))
    array = exact.empty((10,), np.float32)
    with Recording(exact) as seen:
        exact.launch(work, LaunchShape((3, 1, 1), (1, 1, 1)), (array, np.int32(7)))
    assert seen.operations == [(6_000, 6_210)]


def test_host_work_is_cpu_time_of_the_calling_thread(exact: SimulatedDevice) -> None:
    wall, cpu = exact.clock_ns(), exact.cpu_time_ns()
    exact.host_work(12_345)
    assert (exact.clock_ns() - wall, exact.cpu_time_ns() - cpu) == (12_345, 12_345)


def test_each_thread_has_a_clock_that_starts_at_the_opening_threads(exact: SimulatedDevice) -> None:
    exact.host_work(1_000)
    seen: list[int] = []

    def work() -> None:
        seen.append(exact.clock_ns())
        exact.host_work(500)
        seen.append(exact.clock_ns())

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == [1_000, 1_500] * 2
    assert exact.clock_ns() == 1_000


# --- graph time -----------------------------------------------------------------------------------


def test_a_replay_costs_one_call_and_a_gap_between_nodes(exact: SimulatedDevice) -> None:
    executable, stream = chain(exact, SHORT, 3), exact.create_stream()
    executable.upload(stream)
    with Recording(exact) as seen:
        executable.launch(stream)
        stream.synchronize()
    assert seen.operations == [(4_000, 6_000), (6_300, 8_300), (8_600, 10_600)]
    assert seen.calls == [("cuGraphLaunch", 0, 3_000), ("cuStreamSynchronize", 3_000, 10_600)]


def test_branches_of_a_graph_run_side_by_side(exact: SimulatedDevice) -> None:
    graph, stream = exact.create_graph(), exact.create_stream()
    left = graph.add_kernel(SHORT, ONE_BLOCK, ())
    right = graph.add_kernel(LONG, ONE_BLOCK, ())
    graph.add_kernel(SHORT, ONE_BLOCK, (), after=[left, right])
    executable = graph.instantiate()
    executable.upload(stream)
    with Recording(exact) as seen:
        executable.launch(stream)
    assert seen.operations == [(4_000, 6_000), (4_000, 24_000), (24_300, 26_300)]


def test_the_first_replay_uploads_unless_that_was_done(exact: SimulatedDevice) -> None:
    executable, stream = chain(exact, SHORT, 10), exact.create_stream()
    with Recording(exact) as first:
        executable.launch(stream)
    with Recording(exact) as second:
        executable.launch(stream)
    assert first.operations[0] == (4_000 + 10 * 1_500, 6_000 + 10 * 1_500)
    assert second.operations[0] == (4_000, 6_000)


def test_replays_of_one_executable_do_not_overlap(exact: SimulatedDevice) -> None:
    executable, streams = chain(exact, LONG, 1), (exact.create_stream(), exact.create_stream())
    executable.upload(streams[0])
    with Recording(exact) as seen:
        for stream in streams:
            executable.launch(stream)
    assert seen.operations == [(4_000, 24_000), (24_000, 44_000)]


def test_building_and_updating_cost_by_node(exact: SimulatedDevice) -> None:
    graph = exact.create_graph()
    for _ in range(10):
        graph.add_kernel(SHORT, ONE_BLOCK, ())
    times = [exact.clock_ns()]
    executable = graph.instantiate()
    times.append(exact.clock_ns())
    assert executable.update(graph).ok
    times.append(exact.clock_ns())
    executable.update_kernel(graph.nodes()[0], SHORT, ONE_BLOCK, ())
    times.append(exact.clock_ns())
    assert np.diff(times).tolist() == [35_000, 1_800, 1_080]


def test_a_captured_call_costs_half_a_launch(exact: SimulatedDevice) -> None:
    stream = exact.create_stream()
    with Recording(exact) as seen:
        exact.begin_capture(stream)
        launch(exact, LONG, stream)
        exact.end_capture(stream)
    assert [end for _name, _start, end in seen.calls] == [2_500, 5_000, 7_500]
    assert seen.operations == []


# --- determinism ----------------------------------------------------------------------------------


def program(spec: SimulatedSpec) -> list[tuple[int, int]]:
    """Times of a small program on a new device."""
    device = SimulatedDevice(spec)
    source, out = device.array(numbers()), blank(device)
    with Recording(device) as seen:
        for _ in range(20):
            scale(device, out, source, 2.0, device.current_stream())
        out.to_host()
    return seen.operations


def test_the_same_seed_gives_the_same_times() -> None:
    assert program(SimulatedSpec(seed=3)) == program(SimulatedSpec(seed=3))
    assert program(SimulatedSpec(seed=3)) != program(SimulatedSpec(seed=4))


def test_jitter_stays_within_three_deviations_of_the_cost() -> None:
    durations = [end - start for start, end in program(SimulatedSpec(jitter=0.02))[:-1]]
    assert len(set(durations)) > 1
    assert all(1_880 <= duration <= 2_120 for duration in durations)


def test_too_much_jitter_is_refused() -> None:
    with pytest.raises(ValueError, match="jitter"):
        SimulatedSpec(jitter=0.5)


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["short", "long", "HtoD", "DtoH", "DtoD", "join", "graph"]), st.integers(0, 3)),
    max_size=30,
)


@settings(deadline=None, max_examples=60)
@given(steps=STEPS)
def test_operations_keep_stream_order_and_engines_run_one_copy_at_a_time(steps: list[Step]) -> None:
    device = SimulatedDevice()
    streams = [
        device.legacy_stream,
        *(device.create_stream(blocking=blocking) for blocking in (True, False, False)),
    ]
    arrays = device.empty((4_096,), np.uint8), device.empty((4_096,), np.uint8)
    executable = chain(device, SHORT, 2)
    device.start_trace()
    for name, index in steps:
        act(device, name, streams, index, arrays, executable)
    rows = device.stop_trace().operations
    for key in ("stream", "name"):
        for value in {row[key] for row in rows if key == "stream" or row["kind"] == "memcpy"}:
            lane = [row for row in rows if row[key] == value]
            assert all(a["end_ns"] <= b["start_ns"] for a, b in pairwise(lane))
    kernels = [row for row in rows if row["kind"] == "kernel"]
    assert all(row["queued_ns"] <= row["submitted_ns"] <= row["start_ns"] for row in kernels)


def act(
    device: SimulatedDevice,
    name: str,
    streams: list[Stream],
    index: int,
    arrays: tuple[DeviceArray, DeviceArray],
    executable: Any,
) -> None:
    stream, host = streams[index], np.zeros(4_096, np.uint8)
    copies = {"HtoD": (arrays[0], host), "DtoH": (host, arrays[0]), "DtoD": arrays}
    if name in copies:
        device.copy(*copies[name], stream)
    elif name == "join":
        stream.wait(streams[(index + 1) % len(streams)].record())
    elif name == "graph":
        executable.launch(stream)
    else:
        launch(device, {"short": SHORT, "long": LONG}[name], stream)
