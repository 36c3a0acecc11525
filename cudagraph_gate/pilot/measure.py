"""Timing whole requests: randomised alternating blocks of the normal path, the graph path and its parts."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from cudagraph_gate.device import Device
from cudagraph_gate.model import Measured, NotMeasured
from cudagraph_gate.pilot.graph_path import GraphPath
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.records import Block, Method, PathName

BLOCKS_PER_PATH: Final = 20
"""Ten in each half: enough to resample blocks, and for the halves' difference to show the noise."""
BLOCK_NS: Final = 50_000_000
"""Length of a block: far above clock resolution, short enough that drifts hit all paths alike."""
SIMULATED_WALL_NS: Final = 10_000_000
"""Wall time of a block on the simulated device, whose requests hardly differ: a rehearsal is to be short."""
BLOCK_REQUESTS: Final = (5, 50)
"""Fewest and most requests of a block; 20 blocks of 5 give the 100 samples that a P99 needs."""
FLUSH_FACTOR: Final = 2
"""Caches written over so many times: the replacement policy is not known, once may leave lines behind."""

Request = Callable[[Inputs], None]
Prepare = Callable[[], None]
"""Called before each request, outside its time."""
AfterBlock = Callable[[PathName, int], None]
"""Called right after a block with its path and order."""
Half = Literal["a", "b"]
PATHS: Final[tuple[PathName, ...]] = ("normal", "graph", "replay", "copy_in")
"""What a graph of ours is timed by; a path of the workload's own has the first two."""
_HALVES: Final[tuple[Half, ...]] = ("a", "b")
_NO_PROCESS_TIME: Final = NotMeasured(reason="the simulated device has no CPU time of other threads")


@dataclass(frozen=True)
class Sample:
    """Requests that were timed one after the other, in ns; CPU times are those of all of them."""

    latencies_ns: tuple[int, ...]
    cpu_ns: int
    """Of the submitting thread."""
    process_cpu_ns: Measured = NotMeasured(reason="the process's CPU time was not read")
    """Of all threads."""


def timed(
    device: Device,
    request: Request,
    input_sets: Sequence[Inputs],
    count: int,
    *,
    prepare: Prepare | None = None,
) -> Sample:
    """Time ``count`` requests; each must end synchronised."""
    if prepare is not None:
        return _prepared(device, request, input_sets, count, prepare)
    clock, latencies = device.clock_ns, []
    process_clock = _process_clock(device)
    process = process_clock()
    cpu = device.cpu_time_ns()
    for index in range(count):
        inputs = input_sets[index % len(input_sets)]
        start = clock()
        request(inputs)
        latencies.append(clock() - start)
    cpu = device.cpu_time_ns() - cpu
    return Sample(tuple(latencies), cpu, _process_time(device, process_clock() - process))


def _prepared(
    device: Device, request: Request, input_sets: Sequence[Inputs], count: int, prepare: Prepare
) -> Sample:
    """The same, each request by itself, so that no CPU time of ``prepare`` is counted."""
    latencies, cpu_ns, process_ns = [], 0, 0
    process_clock = _process_clock(device)
    for index in range(count):
        prepare()
        inputs = input_sets[index % len(input_sets)]
        process, cpu, start = process_clock(), device.cpu_time_ns(), device.clock_ns()
        request(inputs)
        latencies.append(device.clock_ns() - start)
        cpu_ns += device.cpu_time_ns() - cpu
        process_ns += process_clock() - process
    return Sample(tuple(latencies), cpu_ns, _process_time(device, process_ns))


def _process_clock(device: Device) -> Callable[[], int]:
    return (lambda: 0) if device.simulated else time.process_time_ns


def _process_time(device: Device, elapsed_ns: int) -> Measured:
    return _NO_PROCESS_TIME if device.simulated else elapsed_ns


def requests_for(device: Device, request: Request, input_sets: Sequence[Inputs], target_ns: int) -> int:
    """How many requests fill ``target_ns`` on the device's clock, within limits.

    The simulated device's requests take longer on the wall clock, which then counts.
    """
    wall = time.perf_counter_ns()
    sample = timed(device, request, input_sets, 3)
    wall = max(1, (time.perf_counter_ns() - wall) // 3)
    count = target_ns // max(1, sorted(sample.latencies_ns)[1])
    if device.simulated:
        count = min(count, SIMULATED_WALL_NS // wall)
    fewest, most = BLOCK_REQUESTS
    return min(most, max(fewest, count))


def normal_request(session: Session) -> Request:
    """Step and synchronise."""
    step, synchronize = session.step, session.adapter.synchronize

    def request(inputs: Inputs) -> None:
        step(*inputs)
        synchronize()

    return request


def graph_request(session: Session, path: GraphPath) -> Request:
    """One request by a graph path, synchronised at its end."""
    replay, synchronize = path.replay, session.adapter.synchronize

    def request(inputs: Inputs) -> None:
        replay(inputs)
        synchronize()

    return request


def l2_flush(session: Session) -> Prepare | None:
    """Writes over the L2 cache on the current stream and waits for it; None where its size is not known."""
    device, adapter = session.device, session.adapter
    nbytes = FLUSH_FACTOR * device.l2_cache_bytes()
    if not nbytes:
        return None
    buffer = device.empty((nbytes,), "uint8")

    def flush() -> None:
        device.fill(buffer, 0, adapter.current_stream())
        adapter.synchronize()

    return flush


def block_order(seed: int, paths: Sequence[PathName] = PATHS) -> Iterator[tuple[PathName, Half]]:
    """Rounds of all paths, each round in a random order.

    Of each path's blocks in two neighbouring rounds one, by chance, belongs to half a and the other to b:
    a slow drift then moves both halves alike.
    """
    chance = random.Random(seed)
    for _ in range(BLOCKS_PER_PATH // 2):
        halves = {path: chance.sample(_HALVES, 2) for path in paths}
        for _round in range(2):
            for path in chance.sample(paths, len(paths)):
                yield path, halves[path].pop()


def blocks(
    session: Session,
    requests: Mapping[PathName, Request],
    input_sets: Sequence[Inputs],
    seed: int,
    *,
    method: Method = "capture",
    flush_l2: bool = False,
    after_block: AfterBlock = lambda _path, _order: None,
) -> Iterator[Block]:
    """Run and time all blocks of the paths in ``requests``, yielding each as soon as it is measured.

    All paths rotate over the same inputs, so that the cache holds the same share of them for each.
    ``flush_l2`` writes over the L2 cache before each request, of every path and outside its time.
    ``after_block`` is called while nothing is timed. An exception of the normal path becomes a WorkloadError,
    one of a graph path passes.
    """
    device = session.device
    prepare = l2_flush(session) if flush_l2 else None
    counts = {}
    for path, request in requests.items():
        with session.blaming_user(path):
            counts[path] = requests_for(device, request, input_sets, BLOCK_NS)
    for order, (path, half) in enumerate(block_order(seed, tuple(requests))):
        gc.collect()
        with session.blaming_user(path):
            timed(device, requests[path], input_sets, 1)
            sample = timed(device, requests[path], input_sets, counts[path], prepare=prepare)
        after_block(path, order)
        yield Block(
            shape=session.shape_name,
            method=method,
            path=path,
            order=order,
            half=half,
            latencies_ns=sample.latencies_ns,
            cpu_ns=sample.cpu_ns,
            process_cpu_ns=sample.process_cpu_ns,
            flushed_l2=prepare is not None,
        )
