"""Host work on the CPU and off it."""

from __future__ import annotations

import dataclasses

from made_timelines import Row, call, diagnosed, kernel, sync, timeline

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.diagnosis.host_time import NO_CPU_TIME, host_work_of
from cudagraph_gate.diagnosis.idle import idle_of_devices
from cudagraph_gate.diagnosis.submission import operations_with_submission
from cudagraph_gate.model import HostWork, Limiter, NotMeasured
from cudagraph_gate.timeline.table import CPU_TIME_COLUMNS, frame_of

ROWS = [kernel(0, 100, 1), kernel(210, 300, 2)]
CALLS = [call(-20, -10, 1), sync(20, 110), call(190, 200, 2)]
"""Host work is 110 to 190."""


def sample(start: int, end: int, on_cpu: int, **others: int) -> Row:
    base = {"process": 1, "thread": 10, "start_ns": start, "end_ns": end, "on_cpu_ns": on_cpu}
    return base | others


def split(*samples: Row, rows: list[Row] = ROWS, calls: list[Row] = CALLS) -> HostWork | NotMeasured:
    recorded = timeline(rows, calls)
    recorded = dataclasses.replace(recorded, cpu_times=frame_of(CPU_TIME_COLUMNS, samples))
    operations = operations_with_submission(recorded)
    (device,) = idle_of_devices(recorded, operations, (0, 300))
    assert device.pieces is not None
    return host_work_of(device.pieces, 1, recorded)


def work(on_cpu: int, waiting: int, unsampled: int = 0) -> HostWork:
    return HostWork(on_cpu_ns=on_cpu, waiting_ns=waiting, unsampled_ns=unsampled)


def test_a_thread_that_was_on_the_cpu_all_the_time_worked() -> None:
    assert split(sample(0, 200, 200)) == work(80, 0)


def test_calls_take_their_time_on_the_cpu_first() -> None:
    # 120 ns on the CPU; the calls inside the sample take 90 + 10 of them.
    assert split(sample(0, 200, 120)) == work(20, 60)


def test_less_time_on_the_cpu_than_in_calls_means_that_all_host_work_waited() -> None:
    assert split(sample(0, 200, 50)) == work(0, 80)


def test_a_sample_of_host_work_alone_is_split_exactly() -> None:
    assert split(sample(120, 180, 15)) == work(15, 45, unsampled=20)


def test_samples_add_up() -> None:
    assert split(sample(100, 150, 30), sample(150, 190, 0)) == work(20, 60)


def test_a_thread_that_is_not_known_is_the_only_one_that_was_sampled() -> None:
    rows = [kernel(0, 100, queued_ns=1), kernel(210, 300, queued_ns=190, submitted_ns=200)]
    assert split(sample(100, 190, 30), rows=rows, calls=[]) == work(30, 60)
    assert split(sample(100, 190, 30), sample(0, 9, 9, thread=11), rows=rows, calls=[]) == NO_CPU_TIME


def test_without_samples_of_the_submitting_thread_nothing_is_said() -> None:
    assert split() == NO_CPU_TIME
    assert split(sample(0, 200, 100, thread=11)) == NO_CPU_TIME
    assert split(sample(0, 200, 100, process=2)) == NO_CPU_TIME


def test_no_host_work_is_split_into_nothing() -> None:
    busy = [kernel(0, 100, 1), kernel(100, 300, 2)]
    assert split(sample(0, 200, 100), rows=busy) == work(0, 0)


def test_each_thread_is_split_by_its_own_samples() -> None:
    rows = [*ROWS[:1], kernel(150, 210, 3), *ROWS[1:]]
    rows[2] = kernel(260, 300, 2)
    calls = [call(-20, -10, 1), call(140, 145, 3), call(240, 250, 2, thread=11)]
    # Thread 10 works from 100 to 140, thread 11 from 210 to 240.
    found = split(sample(100, 140, 40), sample(200, 250, 20, thread=11), rows=rows, calls=calls)
    assert found == work(40 + 10, 20)


def test_a_starved_loader_is_told_from_work_in_the_diagnosis() -> None:
    recorded = dataclasses.replace(
        timeline(ROWS, CALLS), cpu_times=frame_of(CPU_TIME_COLUMNS, [sample(110, 190, 5)])
    )
    found = diagnose(recorded, NotMeasured(reason="not timed"))
    assert found.devices[0].host_work == work(5, 75)
    assert found.limiter is Limiter.HOST_WAIT
    assert "waited off the CPU" in found.conclusion


def test_where_idle_is_not_measurable_host_work_is_not_either() -> None:
    (device,) = diagnosed(ROWS, CALLS, dropped_records=1).devices
    assert device.host_work == device.idle_gaps == device.idle_ns
