"""CPU time of threads: exact rows from readings, and threads that compute told from threads that sleep."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.timeline.cpu_times import CpuSampler, Samples, own_threads, thread_cpu_ns
from cudagraph_gate.timeline.table import CPU_TIME_COLUMNS

Row = tuple[int, int, int, int]


def sampled(*readings: tuple[int, dict[int, int | None]]) -> Samples:
    """Samples of readings: the time, and the CPU time of each thread (None: it is gone)."""
    moment: Iterator[int] = iter(time for time, threads in readings for _ in threads)
    current: dict[int, int | None] = {}
    samples = Samples(lambda thread: current[thread], lambda: next(moment))
    for _, threads in readings:
        current.update(threads)
        samples.read(list(threads))
    return samples


def rows(samples: Samples, **chosen: object) -> list[Row]:
    table = samples.table(process=7, **chosen)  # type: ignore[arg-type]
    return list(table[["thread", "start_ns", "end_ns", "on_cpu_ns"]].itertuples(index=False, name=None))


def test_each_reading_ends_an_interval_of_its_thread() -> None:
    found = sampled((10, {1: 100, 2: 0}), (20, {1: 104, 2: 0}), (35, {1: 106}), (50, {1: 107, 2: 5}))
    assert rows(found) == [(1, 10, 20, 4), (2, 10, 20, 0), (1, 20, 35, 2), (2, 20, 50, 5), (1, 35, 50, 1)]


def test_neighbouring_intervals_on_the_cpu_all_the_time_or_never_are_one_row() -> None:
    on = sampled((10, {1: 0}), (20, {1: 10}), (30, {1: 20}), (40, {1: 25}))
    assert rows(on) == [(1, 10, 30, 20), (1, 30, 40, 5)]
    off = sampled((10, {1: 5}), (20, {1: 5}), (30, {1: 5}), (40, {1: 9}))
    assert rows(off) == [(1, 10, 30, 0), (1, 30, 40, 4)]


def test_a_thread_was_never_longer_on_a_cpu_than_time_passed() -> None:
    assert rows(sampled((10, {1: 0}), (20, {1: 11}))) == [(1, 10, 20, 10)]


def test_a_thread_that_ends_has_no_interval_across_its_end() -> None:
    found = sampled((10, {1: 0}), (20, {1: 5}), (30, {1: None}), (40, {1: 3}), (50, {1: 6}))
    assert rows(found) == [(1, 10, 20, 5), (1, 40, 50, 3)]


def test_only_named_threads_are_given_on_the_other_clock() -> None:
    found = sampled((10, {1: 0, 2: 0}), (20, {1: 5, 2: 5}))
    assert rows(found, threads={2}, offset_ns=1000) == [(2, 1010, 1020, 5)]
    nothing = found.table(process=7, threads=set())
    assert (len(nothing), dict(nothing.dtypes.astype(str))) == (0, dict(CPU_TIME_COLUMNS))


def test_threads_that_did_something_are_busy() -> None:
    assert sampled((10, {1: 0, 2: 0}), (20, {1: 5, 2: 0})).busy == {1}
    assert sampled((10, {1: 0}), (20, {1: 5}), (30, {1: 5})).busy == set()


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 1000)), max_size=40))
def test_intervals_cover_the_time_and_add_up_to_the_cpu_time(steps: list[tuple[int, int]]) -> None:
    readings, now, cpu = [(5, {1: 0})], 5, 0
    for passed, share in steps:
        now, cpu = now + passed, cpu + passed * share // 1000
        readings.append((now, {1: cpu}))
    found = rows(sampled(*readings))  # type: ignore[arg-type]
    assert sum(on_cpu for *_, on_cpu in found) == cpu
    assert sum(end - start for _, start, end, _ in found) == now - 5
    assert all(before[2] == after[1] for before, after in pairwise(found))


# --- this process -----------------------------------------------------------------------------------


def test_the_clock_of_a_thread_is_its_cpu_time() -> None:
    own = threading.get_native_id()
    assert own in own_threads()
    before, reading, after = time.thread_time_ns(), thread_cpu_ns(own), time.thread_time_ns()
    assert reading is not None
    assert before <= reading <= after
    assert thread_cpu_ns(2**22 + 1) is None


def test_a_computing_thread_is_told_from_a_sleeping_one() -> None:
    numbers: dict[str, int] = {}

    def sleep() -> None:
        numbers["sleeping"] = threading.get_native_id()
        time.sleep(0.2)

    sampler = CpuSampler(period_s=0.002)
    sampler.start()
    sleeper = threading.Thread(target=sleep)
    sleeper.start()
    began = time.thread_time_ns()
    while time.thread_time_ns() - began < 100_000_000:
        pass
    sleeper.join()
    samples = sampler.stop()
    computing = samples.table(process=1, threads={threading.get_native_id()})
    assert computing["on_cpu_ns"].sum() >= 90_000_000
    sleeping = samples.table(process=1, threads={numbers["sleeping"]})
    assert sleeping["on_cpu_ns"].sum() < 50_000_000
