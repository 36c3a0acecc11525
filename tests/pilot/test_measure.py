"""Block order and timing, exact on the simulated device without jitter."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.device.simulated import SimulatedDevice, SimulatedSpec
from cudagraph_gate.pilot.measure import (
    BLOCK_REQUESTS,
    BLOCKS_PER_PATH,
    PATHS,
    block_order,
    requests_for,
    timed,
)
from cudagraph_gate.pilot.session import Inputs

seeds = st.integers(0, 2**32 - 1)


@pytest.fixture
def device() -> SimulatedDevice:
    return SimulatedDevice(SimulatedSpec(jitter=0))


# --- order ----------------------------------------------------------------------------------------


@given(seeds)
@settings(deadline=None, max_examples=30)
def test_every_round_holds_each_path_once(seed: int) -> None:
    paths = [path for path, _half in block_order(seed)]
    rounds = [paths[start : start + 3] for start in range(0, len(paths), 3)]
    assert len(rounds) == BLOCKS_PER_PATH
    assert all(sorted(each) == sorted(PATHS) for each in rounds)


@given(seeds)
@settings(deadline=None, max_examples=30)
def test_halves_of_each_path_are_equally_large(seed: int) -> None:
    counts = Counter(block_order(seed))
    assert counts == {(path, half): BLOCKS_PER_PATH // 2 for path in PATHS for half in ("a", "b")}


def test_the_seed_decides_the_order() -> None:
    assert list(block_order(7)) == list(block_order(7))
    assert list(block_order(7)) != list(block_order(8))


# --- timing ---------------------------------------------------------------------------------------


def test_latencies_and_cpu_time_are_those_of_the_devices_clock(device: SimulatedDevice) -> None:
    seen: list[int] = []

    def request(inputs: Inputs) -> None:
        seen.append(inputs[0])
        device.host_work(1_000 * inputs[0])

    sample = timed(device, request, [(1,), (2,), (3,)], 4)
    assert seen == [1, 2, 3, 1]
    assert sample.latencies_ns == (1_000, 2_000, 3_000, 1_000)
    assert sample.cpu_ns == 7_000


def test_waiting_for_the_device_is_latency_but_no_cpu_time(device: SimulatedDevice) -> None:
    array, spec = device.empty((20_000_000,), np.uint8), device.spec

    def request(inputs: Inputs) -> None:
        del inputs
        device.fill(array, 0)
        device.synchronize()

    sample = timed(device, request, [()], 2)
    fill_ns = 20_000_000 // spec.d2d_bytes_per_ns
    assert fill_ns == 10_000
    assert sample.latencies_ns == (spec.copy_call_ns + spec.start_latency_ns + fill_ns,) * 2
    assert sample.cpu_ns == 2 * (spec.copy_call_ns + spec.sync_call_ns)


@pytest.mark.parametrize(
    ("request_ns", "target_ns", "expected"),
    [
        (10_000_000, 200_000_000, 20),
        (10_000_000, 10_000_000, BLOCK_REQUESTS[0]),
        (10_000_000, 10_000_000_000, BLOCK_REQUESTS[1]),
        (0, 10**12, BLOCK_REQUESTS[1]),
    ],
)
def test_so_many_requests_as_fill_a_block_within_limits(
    device: SimulatedDevice, request_ns: int, target_ns: int, expected: int
) -> None:
    def request(inputs: Inputs) -> None:
        del inputs
        device.host_work(request_ns)

    assert requests_for(device, request, [()], target_ns) == expected


def test_one_slow_request_of_three_does_not_decide(device: SimulatedDevice) -> None:
    durations = iter([900_000_000, 10_000_000, 10_000_000])

    def request(inputs: Inputs) -> None:
        del inputs
        device.host_work(next(durations))

    assert requests_for(device, request, [()], 200_000_000) == 20
