"""What keeps the GPU from doing more."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from made_timelines import Row, call, diagnosed, kernel, overhead, request, sync, timeline, times

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.diagnosis.gap_histogram import EDGES_NS
from cudagraph_gate.diagnosis.gaps import LATE_START_NS, LONG_GAP_NS, SHORT_GAP_NS
from cudagraph_gate.diagnosis.idle import IdleOfDevice, idle_of_devices
from cudagraph_gate.diagnosis.limiter import Limits, idle_gaps_of, limits_of
from cudagraph_gate.diagnosis.submission import operations_with_submission
from cudagraph_gate.model import Cause, Histogram, HostWork, IdleGaps, Limiter, NotMeasured

NOT_MARKED = NotMeasured(reason="not marked")


def launched(*spans: tuple[int, int], ahead: int = 10) -> tuple[list[Row], list[Row]]:
    """Kernels, and for each a call of 5 ns that begins ``ahead`` ns before it."""
    rows = [kernel(start, end, number) for number, (start, end) in enumerate(spans, start=1)]
    return rows, [
        call(row["start_ns"] - ahead, row["start_ns"] - ahead + 5, row["correlation"]) for row in rows
    ]


def device_of(*rows: list[Row], window: tuple[int, int], **meta: Any) -> IdleOfDevice:
    made = timeline(*rows, **meta)
    (device,) = idle_of_devices(made, operations_with_submission(made), window)
    return device


def limits(device: IdleOfDevice) -> Limits:
    return limits_of(device, timeline().requests(), NOT_MARKED, requests_only=False)


def test_many_short_gaps_before_launches_are_submission() -> None:
    rows, calls = launched(*((at, at + 20) for at in range(0, 1_000, 100)))
    assert diagnosed(rows, calls).limiter is Limiter.SUBMISSION


def test_a_gpu_that_is_nearly_always_busy_is_the_limiter() -> None:
    rows, calls = launched(*((at, at + 96) for at in range(0, 1_000, 100)), ahead=3)
    assert diagnosed(rows, calls).limiter is Limiter.GPU


def test_a_wait_before_each_kernel_is_synchronisation_though_submission_takes_longer() -> None:
    rows, calls = launched(*((at, at + 20) for at in range(0, 1_000, 100)))
    waits = [sync(row["start_ns"] - 2, row["end_ns"] + 5) for row in rows]
    found = diagnosed(rows, [*calls, *waits])
    assert found.devices[0].causes[Cause.SYNC] == 9 * 5
    assert found.limiter is Limiter.SYNC


def test_one_wait_among_many_launches_leaves_submission_the_limiter() -> None:
    rows, calls = launched(*((at, at + 20) for at in range(0, 1_000, 100)))
    assert diagnosed(rows, [*calls, sync(300, 325)]).limiter is Limiter.SUBMISSION


def test_the_wait_that_ends_a_request_is_no_limiter() -> None:
    rows, calls = launched((10, 30), (110, 130), (210, 230))
    waits = [sync(row["start_ns"] - 2, row["end_ns"] + 5) for row in rows]
    marks = [request(at, at + 100) for at in (0, 100, 200)]
    assert diagnosed(rows, [*calls, *waits], marks).limiter is Limiter.SUBMISSION


def test_long_gaps_before_launches_are_other_host_work() -> None:
    gap = 20 * LONG_GAP_NS
    rows, calls = launched(*((at, at + 1_000) for at in range(0, 19 * gap, gap)))
    assert diagnosed(rows, calls).limiter is Limiter.HOST_WORK


def test_host_work_off_the_cpu_is_a_wait_and_is_taken_from_the_long_gaps_first() -> None:
    device = device_of(
        *launched((0, 10), (110, 120), (2 * LONG_GAP_NS, 2 * LONG_GAP_NS + 10)), window=(0, 2_000_010)
    )
    waited = HostWork(on_cpu_ns=0, waiting_ns=LONG_GAP_NS, unsampled_ns=0)
    summary = msgspec.structs.replace(device.summary, host_work=waited)
    found = limits(dataclasses.replace(device, summary=summary))
    assert found.limiter is Limiter.HOST_WAIT
    assert found.parts_ns[Limiter.HOST_WAIT] == LONG_GAP_NS
    assert found.parts_ns[Limiter.SUBMISSION] == 100


def test_a_gap_of_many_times_the_median_is_no_launching() -> None:
    # Launches every 30 µs, and once in ten a loader of 0.8 ms.
    starts = [n * 30_000 + n // 10 * 800_000 for n in range(100)]
    rows, calls = launched(*((at, at + 1_000) for at in starts))
    found = limits(device_of(rows, calls, window=(0, starts[-1])))
    assert found.limiter is Limiter.HOST_WORK
    assert found.parts_ns[Limiter.HOST_WORK] > 9 * 800_000


def test_a_late_start_is_no_submission() -> None:
    waited = 3 * LATE_START_NS
    rows = [kernel(0, 10, 1), kernel(10 + waited, 20 + waited, 2)]
    found = diagnosed(rows, [call(-9, -5, 1), call(1, 5, 2)])
    assert found.devices[0].causes[Cause.LAUNCH_LATENCY] == waited
    assert found.limiter is Limiter.UNKNOWN


def test_time_without_requests_is_no_request() -> None:
    rows, calls = launched((10, 30), (1_010, 1_030))
    assert diagnosed(rows, calls, [request(0, 40), request(1_000, 1_040)]).limiter is Limiter.NO_REQUEST


def test_time_between_requests_that_were_timed_one_by_one_does_not_count() -> None:
    rows, calls = launched((10, 30), (60, 70), (1_010, 1_030), (1_060, 1_070))
    made = timeline(rows, calls, [request(0, 80), request(1_000, 1_080)])
    assert diagnose(made, times(80)).limiter is Limiter.SUBMISSION


def test_waits_for_other_streams_are_dependency() -> None:
    rows = [kernel(0, 10, 1), kernel(500, 510, 2, stream=8)]
    assert diagnosed(rows, [call(-9, -5, 1), call(1, 5, 2)]).limiter is Limiter.DEPENDENCY


def test_overhead_of_the_recorder_is_named() -> None:
    rows, calls = launched((0, 10), (500, 510))
    assert diagnosed(rows, calls, [], [overhead(20, 480)]).limiter is Limiter.PROFILER


def test_idle_without_a_known_submission_has_no_known_limiter() -> None:
    assert diagnosed([kernel(0, 10), kernel(500, 510)]).limiter is Limiter.UNKNOWN


def test_a_start_long_after_an_early_launch_has_no_known_limiter() -> None:
    rows = [kernel(0, 10, 1), kernel(30 + 2 * LONG_GAP_NS, 40 + 2 * LONG_GAP_NS, 2)]
    assert diagnosed(rows, [call(-9, -5, 1), call(20, 25, 2)]).limiter is Limiter.UNKNOWN


@pytest.mark.parametrize("rows", [[], [kernel(0, 10, 1), kernel(90, 100, 2)]])
def test_idle_that_is_not_measurable_has_no_known_limiter(rows: list[Row]) -> None:
    assert diagnosed(rows, dropped_records=2).limiter is Limiter.UNKNOWN


def test_the_parts_add_up_to_the_idle_time() -> None:
    rows, calls = launched((10, 30), (60, 70), (1_010, 1_030), (5_000_000, 5_000_010))
    device = device_of(rows, [*calls, sync(61, 75)], window=(0, 6_000_000))
    assert sum(limits(device).parts_ns.values()) == device.summary.idle_ns


def test_gaps_are_told_by_length() -> None:
    rows = [kernel(0, 10), kernel(60, 70), kernel(220, 230), kernel(5_000_000, 5_000_010)]
    (device,) = diagnosed(rows).devices
    assert device.idle_gaps == IdleGaps(
        count=3,
        median_ns=150,
        longest_ns=4_999_770,
        long_ns=SHORT_GAP_NS,
        short_ns=200,
        histogram=Histogram(lower_ns=EDGES_NS[:15], counts=(1, 1, *[0] * 12, 1)),
        idle_ns=(50, 150, *[0] * 12, 4_999_770),
    )


def test_a_device_without_gaps_has_no_distribution_of_them() -> None:
    assert idle_gaps_of(device_of([kernel(0, 10)], window=(0, 10))) == NotMeasured(
        reason="the device was never idle in the window"
    )
    blind = device_of([kernel(0, 10)], window=(0, 20), dropped_records=1)
    assert idle_gaps_of(blind) == blind.summary.idle_ns
