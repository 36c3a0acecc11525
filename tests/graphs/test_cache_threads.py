"""A cache in several threads: turns, single making, and graphs that are in use while they are dropped."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from counting_adapter import CountingAdapter

from cudagraph_gate.graphs import GraphCache, GraphedStep, GraphKey, State

ONES = np.ones(4)
PATIENCE_S = 10


def key(number: int) -> GraphKey:
    return GraphKey(model_version="v1", shape=((number,),), dtype=("float64",), device="gpu")


class Makes:
    """Counts how many makes run, and at the same time."""

    def __init__(self) -> None:
        self.count = 0
        self.inside = 0
        self.most = 0
        self.adapters: list[CountingAdapter] = []

    def __call__(self) -> GraphedStep:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.count += 1
        self.adapters.append(CountingAdapter())
        graphed = GraphedStep(self.adapters[-1], lambda x: 2 * x, (ONES,)).prepare()
        self.inside -= 1
        return graphed


def in_thread(work: Any) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_leases_of_one_key_take_turns_and_make_once() -> None:
    cache, make, inside = GraphCache(capacity_entries=2), Makes(), []

    def request(value: int) -> bool:
        with cache.lease(key(0), make) as graphed:
            inside.append(1)
            alone = len(inside) == 1
            assert graphed is not None
            right = bool((graphed(ONES * value) == 2.0 * value).all())
            inside.pop()
            return alone and right

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(request, range(200)))
    found = cache.statistics
    assert (make.count, found.hits, found.misses, found.leased) == (1, 199, 1, 0)


def test_another_thread_begins_when_the_last_ones_work_is_done() -> None:
    cache, make = GraphCache(capacity_entries=2), Makes()

    def request() -> None:
        with cache.lease(key(0), make):
            pass

    request()
    in_thread(request).join(PATIENCE_S)
    assert make.adapters[0].calls.counts["wait_event"] == 1
    request()
    request()
    assert make.adapters[0].calls.counts["wait_event"] == 2


def test_who_waited_for_an_invalidated_graph_gets_a_new_one() -> None:
    cache, make, got = GraphCache(capacity_entries=2), Makes(), []

    def request() -> None:
        with cache.lease(key(0), make) as graphed:
            got.append(graphed)

    with cache.lease(key(0), make) as old:
        thread = in_thread(request)
        while cache.statistics.leased < 2:
            pass
        cache.clear()
        assert old is not None
        assert old.state is State.READY
    thread.join(PATIENCE_S)
    assert make.count == 2
    assert got[0] is not old
    assert old.state is State.FALLBACK


def test_who_waited_for_a_graph_that_can_not_be_made_gets_none() -> None:
    cache, started, got = GraphCache(capacity_entries=2), threading.Event(), []

    def broken() -> GraphedStep:
        started.set()
        while cache.statistics.leased < 2:
            pass
        raise KeyError("weights")

    def request() -> None:
        with cache.lease(key(0), broken) as graphed:
            got.append(graphed)

    threads = [in_thread(request)]
    assert started.wait(PATIENCE_S)
    threads.append(in_thread(request))
    for thread in threads:
        thread.join(PATIENCE_S)
    assert got == [None, None]
    assert cache.statistics.failures == 1


@pytest.mark.parametrize("drop", ["evict", "invalidate"])
def test_many_threads_and_keys_never_meet_a_destroyed_graph(drop: str) -> None:
    cache, make = GraphCache(capacity_entries=2), Makes()

    def request(index: int) -> bool:
        number = index % 5
        if drop == "invalidate" and index % 7 == 0:
            cache.invalidate(key(number))
        with cache.lease(key(number), make) as graphed:
            assert graphed is not None
            return bool((graphed(ONES * index) == 2.0 * index).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(request, range(400)))
    found = cache.statistics
    assert make.most == 1
    assert found.entries <= 2
    assert found.leased == 0
    assert found.captures - found.evictions - found.invalidations == found.entries
    assert sum(adapter.calls.counts["destroy"] for adapter in make.adapters) == make.count - found.entries
