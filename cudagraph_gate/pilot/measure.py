"""Timing whole requests: randomised alternating blocks of the normal path, the graph and its copy alone."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from cudagraph_gate.device import Device
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.records import Block, PathName

BLOCKS_PER_PATH: Final = 20
"""Ten in each half: enough to resample blocks, and for the halves' difference to show the noise."""
BLOCK_NS: Final = 50_000_000
"""Length of a block: far above clock resolution, short enough that drifts hit all paths alike."""
BLOCK_REQUESTS: Final = (5, 50)
"""Fewest and most requests of a block; 20 blocks of 5 give the 100 samples that a P99 needs."""

Request = Callable[[Inputs], None]
Half = Literal["a", "b"]
PATHS: Final[tuple[PathName, ...]] = ("normal", "graph", "copy_in")


@dataclass(frozen=True)
class Sample:
    """Requests that were timed one after the other, in ns; ``cpu_ns`` is the thread's for all of them."""

    latencies_ns: tuple[int, ...]
    cpu_ns: int


def timed(device: Device, request: Request, input_sets: Sequence[Inputs], count: int) -> Sample:
    """Time ``count`` requests; each must end synchronised."""
    clock, latencies = device.clock_ns, []
    cpu = device.cpu_time_ns()
    for index in range(count):
        inputs = input_sets[index % len(input_sets)]
        start = clock()
        request(inputs)
        latencies.append(clock() - start)
    return Sample(tuple(latencies), device.cpu_time_ns() - cpu)


def requests_for(device: Device, request: Request, input_sets: Sequence[Inputs], target_ns: int) -> int:
    """How many requests fill ``target_ns``, on the device's clock and on the wall clock, within limits.

    On the simulated device the wall clock is the slower one.
    """
    wall = time.perf_counter_ns()
    sample = timed(device, request, input_sets, 3)
    wall = (time.perf_counter_ns() - wall) // 3
    longest = max(1, sorted(sample.latencies_ns)[1], wall)
    fewest, most = BLOCK_REQUESTS
    return min(most, max(fewest, target_ns // longest))


def normal_request(session: Session) -> Request:
    """Step and synchronise."""
    step, synchronize = session.step, session.adapter.synchronize

    def request(inputs: Inputs) -> None:
        step(*inputs)
        synchronize()

    return request


def block_order(seed: int) -> Iterator[tuple[PathName, Half]]:
    """Rounds of all paths, each round in a random order; each path's blocks fall into two random halves."""
    chance = random.Random(seed)
    halves: dict[PathName, list[Half]] = {}
    for path in PATHS:
        halves[path] = ["a", "b"] * (BLOCKS_PER_PATH // 2)
        chance.shuffle(halves[path])
    for _ in range(BLOCKS_PER_PATH):
        for path in chance.sample(PATHS, len(PATHS)):
            yield path, halves[path].pop()


def blocks(
    session: Session, requests: dict[PathName, Request], input_sets: Sequence[Inputs], seed: int
) -> Iterator[Block]:
    """Run and time all blocks, yielding each as soon as it is measured."""
    device = session.device
    with session.blaming_user():
        counts = {path: requests_for(device, requests[path], input_sets, BLOCK_NS) for path in PATHS}
        for order, (path, half) in enumerate(block_order(seed)):
            gc.collect()
            timed(device, requests[path], input_sets, 1)
            sample = timed(device, requests[path], input_sets, counts[path])
            yield Block(
                shape=session.shape_name,
                path=path,
                order=order,
                half=half,
                latencies_ns=sample.latencies_ns,
                cpu_ns=sample.cpu_ns,
            )
