"""Host threads that work together: their barriers, their errors, and turns on the simulated device."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

import pytest

from cudagraph_gate.device.simulated import SimulatedDevice, SimulatedSpec
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.pilot.crew import Crew


@pytest.fixture
def device() -> SimulatedDevice:
    return SimulatedDevice(SimulatedSpec(jitter=0))


def working(
    device: SimulatedDevice, crew: Crew, index: int, durations: list[int], served: list[tuple[int, int]]
) -> Callable[[], None]:
    """A thread whose requests compute for so long; notes who begins at which clock."""

    def task() -> None:
        crew.begin()
        cpu_ns = device.cpu_time_ns()
        for duration in durations:
            crew.take_turn(index)
            served.append((device.clock_ns(), index))
            device.host_work(duration)
        crew.end(index, device.cpu_time_ns() - cpu_ns)

    return task


def test_requests_are_served_in_the_order_of_the_threads_clocks(device: SimulatedDevice) -> None:
    crew, served = Crew(device, 2), list[tuple[int, int]]()
    tasks = [working(device, crew, 0, [300, 300], served), working(device, crew, 1, [100] * 5, served)]
    assert crew.run(tasks) is None
    start = served[0][0]
    in_order = [(clock - start, index) for clock, index in served]
    assert in_order == [(0, 0), (0, 1), (100, 1), (200, 1), (300, 0), (300, 1), (400, 1)]


class OnRealTime(SimulatedDevice):
    """A device whose clock is the host's, as a GPU's is."""

    simulated = False

    def clock_ns(self) -> int:
        return time.perf_counter_ns()


@pytest.mark.parametrize("in_turn", [True, False])
def test_one_at_a_time_no_two_requests_overlap(in_turn: bool) -> None:
    crew = Crew(OnRealTime(), 2, one_at_a_time=in_turn)
    served = list[tuple[int, int]]()

    def task(index: int) -> Callable[[], None]:
        def serve() -> None:
            crew.begin()
            for _ in range(5):
                crew.take_turn(index)
                start = time.perf_counter_ns()
                time.sleep(0.004)
                served.append((start, time.perf_counter_ns()))
            crew.leave(index)

        return serve

    assert crew.run([task(0), task(1)]) is None
    in_order = sorted(served)
    overlaps = sum(one[1] > two[0] for one, two in itertools.pairwise(in_order))
    assert len(served) == 10
    assert (overlaps == 0) == in_turn


def test_cpu_time_is_that_of_all_threads(device: SimulatedDevice) -> None:
    crew = Crew(device, 2)
    assert crew.run([working(device, crew, 0, [300], []), working(device, crew, 1, [50, 50], [])]) is None
    assert crew.cpu_ns == 400


def test_threads_begin_with_the_device_idle_and_their_clocks_alike(device: SimulatedDevice) -> None:
    crew, clocks = Crew(device, 2), list[int]()
    array = device.empty((2_000_000,), "u1")

    def task(busy: bool) -> Callable[[], None]:
        def begin() -> None:
            if busy:
                device.fill(array, 0)  # 1 us of device time at 2 000 bytes per ns
            crew.begin()
            clocks.append(device.clock_ns())

        return begin

    assert crew.run([task(True), task(False)]) is None
    assert max(clocks) - min(clocks) <= device.spec.copy_call_ns


def test_the_first_error_is_kept_and_the_others_end(device: SimulatedDevice) -> None:
    crew, ended = Crew(device, 3), list[int]()

    def failing() -> None:
        crew.begin()
        raise SystemExit("no more")

    def waiting() -> None:
        crew.begin()
        crew.end(0, 0)
        ended.append(1)

    error = crew.run([waiting, failing, waiting])
    assert isinstance(error, SystemExit)
    assert ended == []
    assert isinstance(crew.cpu_ns, NotMeasured)


def test_a_thread_that_fails_gives_its_turn_up(device: SimulatedDevice) -> None:
    crew, served = Crew(device, 2), list[tuple[int, int]]()

    def failing() -> None:
        crew.begin()
        crew.take_turn(0)
        raise ValueError("broken")

    error = crew.run([failing, working(device, crew, 1, [100, 100], served)])
    assert isinstance(error, ValueError)
    assert [index for _clock, index in served] == [1, 1]


def test_pace_holds_threads_until_all_have_come(device: SimulatedDevice) -> None:
    crew, seen, lock = Crew(device, 3), list[str](), threading.Lock()

    def task() -> None:
        for step in "ab":
            with lock:
                seen.append(step)
            crew.pace()

    assert crew.run([task] * 3) is None
    assert seen == list("aaabbb")
