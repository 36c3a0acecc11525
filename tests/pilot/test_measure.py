"""Block order and timing, exact on the simulated device without jitter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.adapters.cuda_core import ArrayAdapter
from cudagraph_gate.device import DeviceArray
from cudagraph_gate.device.port import Stream
from cudagraph_gate.device.simulated import SimulatedDevice, SimulatedSpec
from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.pilot.measure import (
    BLOCK_REQUESTS,
    BLOCKS_PER_PATH,
    PATHS,
    Request,
    block_order,
    blocks,
    l2_flush,
    normal_request,
    requests_for,
    timed,
)
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.records import Block, PathName

seeds = st.integers(0, 2**32 - 1)
OWN: tuple[PathName, ...] = ("normal", "graph")
"""What a path of the workload's own is timed by."""


@pytest.fixture
def device() -> SimulatedDevice:
    return SimulatedDevice(SimulatedSpec(jitter=0))


# --- order ----------------------------------------------------------------------------------------


@given(seeds)
@settings(deadline=None, max_examples=30)
@pytest.mark.parametrize("wanted", [PATHS, OWN])
def test_every_round_holds_each_path_once(wanted: tuple[PathName, ...], seed: int) -> None:
    paths = [path for path, _half in block_order(seed, wanted)]
    rounds = [paths[start : start + len(wanted)] for start in range(0, len(paths), len(wanted))]
    assert len(rounds) == BLOCKS_PER_PATH
    assert all(sorted(each) == sorted(wanted) for each in rounds)


@given(seeds)
@settings(deadline=None, max_examples=30)
def test_halves_of_each_path_are_equally_large(seed: int) -> None:
    counts = Counter(block_order(seed))
    assert counts == {(path, half): BLOCKS_PER_PATH // 2 for path in PATHS for half in ("a", "b")}


@given(seeds)
@settings(deadline=None, max_examples=30)
def test_two_neighbouring_rounds_hold_one_block_of_each_half(seed: int) -> None:
    for path in PATHS:
        halves = [half for each, half in block_order(seed) if each == path]
        assert all({halves[turn], halves[turn + 1]} == {"a", "b"} for turn in range(0, len(halves), 2))


def test_which_half_comes_first_is_left_to_chance() -> None:
    first = [half for path, half in block_order(5) if path == "normal"][::2]
    assert 0 < first.count("a") < len(first)


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


def test_the_simulated_device_has_no_process_time(device: SimulatedDevice) -> None:
    found = timed(device, lambda _inputs: None, [()], 1).process_cpu_ns
    assert found == NotMeasured(reason="the simulated device has no CPU time of other threads")


@pytest.mark.gpu
def test_process_time_holds_the_threads_own() -> None:
    from cudagraph_gate.device.cuda import CudaDevice

    gpu = CudaDevice()

    def request(_inputs: Inputs) -> None:
        sum(range(10_000))

    for prepare in (None, lambda: None):
        sample = timed(gpu, request, [()], 50, prepare=prepare)
        assert isinstance(sample.process_cpu_ns, int)
        assert sample.process_cpu_ns >= 0.9 * sample.cpu_ns > 0


def test_what_prepares_a_request_is_outside_its_times(device: SimulatedDevice) -> None:
    done: list[str] = []

    def prepare() -> None:
        device.host_work(5_000)
        done.append("prepared")

    def request(_inputs: Inputs) -> None:
        device.host_work(1_000)
        done.append("served")

    sample = timed(device, request, [()], 3, prepare=prepare)
    assert done == ["prepared", "served"] * 3
    assert (sample.latencies_ns, sample.cpu_ns) == ((1_000,) * 3, 3_000)


# --- blocks ---------------------------------------------------------------------------------------


class Cached(SimulatedDevice):
    """A simulated device that says that it has an L2 cache, and keeps the sizes of its fills."""

    def __init__(self) -> None:
        super().__init__(SimulatedSpec(jitter=0))
        self.filled: list[int] = []

    def l2_cache_bytes(self) -> int:
        return 1 << 20

    def fill(self, target: DeviceArray, byte: int, stream: Stream | None = None) -> None:
        self.filled.append(target.nbytes)
        super().fill(target, byte, stream)


def session_on(device: SimulatedDevice) -> Session:
    def step(seconds: Any) -> None:
        device.host_work(seconds)

    workload: Any = SimpleNamespace(folder=Path("/nowhere"), between=None)
    return Session(workload, device, "b1", None, step, ("seconds",), ArrayAdapter(device))


def requests_on(session: Session) -> Mapping[PathName, Request]:
    half = cast("SimulatedDevice", session.device).host_work
    return {"normal": normal_request(session), "graph": lambda inputs: half(inputs[0] // 2)}


INPUT_SETS: list[Inputs] = [(20_000_000,), (20_000_000,)]
"""Nothing but virtual time: two or more fill a block, so that each block has the fewest requests."""


def run(device: SimulatedDevice, first: int | None = None, **how: Any) -> list[Block]:
    session = session_on(device)
    return list(islice(blocks(session, requests_on(session), INPUT_SETS, 3, **how), first))


def test_each_path_given_is_timed_in_all_its_blocks(device: SimulatedDevice) -> None:
    found = run(device, method="explicit")
    assert Counter(block.path for block in found) == dict.fromkeys(OWN, BLOCKS_PER_PATH)
    assert [block.order for block in found] == list(range(2 * BLOCKS_PER_PATH))
    assert {(block.shape, block.method, block.flushed_l2) for block in found} == {("b1", "explicit", False)}
    assert [(block.path, block.half) for block in found] == list(block_order(3, OWN))
    sync_ns = device.spec.sync_call_ns
    assert {block.latencies_ns[0] for block in found if block.path == "normal"} == {20_000_000 + sync_ns}
    assert {block.latencies_ns for block in found if block.path == "graph"} == {(10_000_000,) * 5}


def test_after_each_block_its_path_and_order_are_told_before_the_next(device: SimulatedDevice) -> None:
    told: list[tuple[PathName, int]] = []
    session = session_on(device)
    measured = blocks(
        session, requests_on(session), INPUT_SETS, 3, after_block=lambda *block: told.append(block)
    )
    for number, block in enumerate(islice(measured, 6), start=1):
        assert (len(told), told[-1]) == (number, (block.path, block.order))


def test_flushing_writes_twice_the_cache_before_each_request_of_every_path() -> None:
    device = Cached()
    flushed = run(device, first=6, flush_l2=True)
    assert all(block.flushed_l2 for block in flushed)
    assert device.filled == [2 << 20] * sum(len(block.latencies_ns) for block in flushed)
    plain = run(Cached(), first=6)
    assert [block.latencies_ns for block in flushed] == [block.latencies_ns for block in plain]
    assert [block.cpu_ns for block in flushed] == [block.cpu_ns for block in plain]


def test_without_a_known_cache_nothing_is_flushed_and_the_block_says_so(device: SimulatedDevice) -> None:
    assert l2_flush(session_on(device)) is None
    assert not any(block.flushed_l2 for block in run(device, first=6, flush_l2=True))


def test_an_error_of_the_step_is_the_workloads(device: SimulatedDevice) -> None:
    session = session_on(device)

    def failing(_inputs: Inputs) -> None:
        raise KeyError("scale")

    with pytest.raises(WorkloadError, match="scale"):
        next(blocks(session, {"normal": failing}, INPUT_SETS, 3))


@pytest.mark.gpu
def test_a_gpu_knows_its_cache_and_flushes_it() -> None:
    from cudagraph_gate.device.cuda import CudaDevice

    gpu = CudaDevice()
    assert gpu.l2_cache_bytes() >= 1 << 20
    flush = l2_flush(cast("Session", SimpleNamespace(device=gpu, adapter=ArrayAdapter(gpu))))
    assert flush is not None
    flush()
