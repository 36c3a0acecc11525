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
from cudagraph_gate.pilot.between import BUDGET_S, Between, Pause
from cudagraph_gate.pilot.fresh_inputs import FreshInputs
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

CALIBRATION: Final = 3
"""Requests whose median says how many fill a block."""

Request = Callable[[Inputs], None]
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
    prepare: Pause | None = None,
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
    device: Device, request: Request, input_sets: Sequence[Inputs], count: int, prepare: Pause
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
    sample = timed(device, request, input_sets, CALIBRATION)
    wall = max(1, (time.perf_counter_ns() - wall) // CALIBRATION)
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


def l2_flush(session: Session) -> Pause | None:
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

    All paths rotate over the same inputs, so that the cache holds the same share of them for each. Where the
    graph path is the workload's own, every request of every path gets a copy at an address of its own.
    The workload's ``between`` is called before each request, and ``flush_l2`` writes over the L2 cache before
    each, for every path and outside its time. ``after_block`` is called while nothing is timed. An exception
    of the normal path becomes a WorkloadError, one of a graph path passes.
    """
    device = session.device
    given = _Addresses(session, input_sets) if method == "own" else _Rotation(input_sets)
    flush = l2_flush(session) if flush_l2 else None
    counts = {}
    for path, request in requests.items():
        with session.blaming_user(path):
            found = requests_for(device, request, given.take(CALIBRATION), BLOCK_NS)
        counts[path] = given.at_most(found, BLOCKS_PER_PATH * len(requests))
    between = BetweenBlocks(session, counts)
    for order, (path, half) in enumerate(block_order(seed, tuple(requests))):
        first, others = given.of_block(counts[path])
        prepare = _both(between.pause(order), flush)
        gc.collect()
        with session.blaming_user(path):
            timed(device, requests[path], first, 1)
            sample = timed(device, requests[path], others, counts[path], prepare=prepare)
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
            flushed_l2=flush is not None,
        )


def _both(first: Pause | None, second: Pause | None) -> Pause | None:
    """The cache is flushed last: ``between`` uses it too."""
    if first is None or second is None:
        return first or second

    def prepare() -> None:
        first()
        second()

    return prepare


# --- the inputs of a block ------------------------------------------------------------------------


class _Rotation:
    """The same buffers in turn for every block: a graph of ours copies them to a place of its own."""

    def __init__(self, input_sets: Sequence[Inputs]) -> None:
        self._input_sets = input_sets

    def take(self, _count: int) -> Sequence[Inputs]:
        """Inputs of some requests."""
        return self._input_sets

    def at_most(self, count: int, _blocks: int) -> int:
        """How many requests of a block there are inputs for."""
        return count

    def of_block(self, _count: int) -> tuple[Sequence[Inputs], Sequence[Inputs]]:
        """Inputs of a block's untimed request, and of its timed ones."""
        return self._input_sets, self._input_sets


class _Addresses(_Rotation):
    """Each request of a block has a copy of its own, which no block before had as far as they fit in memory.

    They are made before the block, in the same way for both paths: the cache holds the same share of them.
    """

    def __init__(self, session: Session, input_sets: Sequence[Inputs]) -> None:
        super().__init__(input_sets)
        self._fresh = FreshInputs(session, input_sets)

    def take(self, count: int) -> Sequence[Inputs]:
        """Copies for so many requests."""
        return self._fresh.take(count)

    def at_most(self, count: int, blocks: int) -> int:
        """Rather fewer requests in a block than an address twice."""
        return min(count, max(BLOCK_REQUESTS[0], self._fresh.share(blocks) - 1))

    def of_block(self, count: int) -> tuple[Sequence[Inputs], Sequence[Inputs]]:
        """One copy for the untimed request, the others for the timed ones."""
        first, *others = self._fresh.take(count + 1)
        return [first], others


# --- between the requests of a block --------------------------------------------------------------


class BetweenBlocks:
    """Calls ``between`` before the timed requests of each block.

    Before each request and not just once a block, since that is what the application does: a path that has to
    make its graph again after every such call must pay for it in the requests that are timed. All blocks of a
    round then have equally many requests, so that both paths see the same indices, and the same share of
    their requests follows a call: all where that is affordable, else as many as are, at least one a block.
    """

    def __init__(self, session: Session, counts: dict[PathName, int], budget_s: float = BUDGET_S) -> None:
        """``counts``, the requests of a block of each path, are made equal where there is a ``between``."""
        self._between = Between(session, budget_s)
        self._paths = len(counts)
        self._spread: Mapping[int, int] = {}
        self._count = min(counts.values())
        if self._between.declared:
            self._between.call()  # says what one costs
            affordable = self._between.affordable(BLOCKS_PER_PATH * self._paths)
            self._count = max(BLOCK_REQUESTS[0], min(self._count, affordable))
            counts.update(dict.fromkeys(counts, self._count))

    def pause(self, order: int) -> Pause | None:
        """What comes before each request of block ``order``."""
        if order % self._paths == 0:  # a round begins: all of its blocks get the same indices
            rounds_left = BLOCKS_PER_PATH - order // self._paths
            self._spread = self._between.spread(self._count, rounds_left * self._paths)
        return self._between.paused(self._spread)
