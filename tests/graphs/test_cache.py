"""Graphs by key: counting, eviction, invalidation, failures and churn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from counting_adapter import CountingAdapter, FakeError
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.errors import device_error
from cudagraph_gate.graphs import GraphCache, GraphedStep, GraphKey, State
from cudagraph_gate.graphs.cache import CHURN_CALLS, CHURN_WINDOW, REMEMBERED_FAILURES

ONES = np.ones(4)


def key(number: int = 0, **fields: Any) -> GraphKey:
    return GraphKey(
        **{"model_version": "v1", "shape": ((number,),), "dtype": ("float32",), "device": "gpu", **fields}
    )


class Shop:
    """Makes graphs of one step, and remembers them by number."""

    def __init__(self) -> None:
        self.made: list[GraphedStep] = []
        self.adapters: list[CountingAdapter] = []

    def make(self) -> GraphedStep:
        self.adapters.append(CountingAdapter())
        self.made.append(GraphedStep(self.adapters[-1], lambda x: 2 * x, (ONES,)).prepare())
        return self.made[-1]

    @property
    def states(self) -> list[State]:
        return [graphed.state for graphed in self.made]


def cached(**options: Any) -> tuple[GraphCache, Shop]:
    return GraphCache(**{"capacity_entries": 2, **options}), Shop()


def use(cache: GraphCache, shop: Shop, number: int = 0, **options: Any) -> GraphedStep | None:
    """One request for a key."""
    with cache.lease(key(number), shop.make, **options) as graphed:
        if graphed is not None:
            np.testing.assert_array_equal(graphed(ONES * number), 2 * ONES * number)
        return graphed


def failing(error: BaseException) -> Callable[[], GraphedStep]:
    def make() -> GraphedStep:
        raise error

    return make


# --- hits and misses --------------------------------------------------------------------------------


def test_a_graph_is_made_once_and_found_again() -> None:
    cache, shop = cached()
    assert use(cache, shop, 5) is use(cache, shop, 5) is shop.made[0]
    found = cache.statistics
    assert (found.hits, found.misses, found.captures, found.calls) == (1, 1, 1, 2)
    assert (found.entries, found.leased, found.evictions) == (1, 0, 0)


def test_nothing_waits_while_one_thread_uses_a_graph() -> None:
    cache, shop = cached()
    for _ in range(3):
        use(cache, shop)
    assert shop.adapters[0].calls.counts["record"] == 3
    assert shop.adapters[0].calls.counts["wait_event"] == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"model_version": "v2"},
        {"dtype": ("float16",)},
        {"device": "other"},
        {"fusion_mode": "max-autotune"},
        {"libraries": (("torch", "2.11"),)},
        {"context_epoch": 1},
        {"stream_mode": "legacy"},
        {"shape": ((1,), (0,))},
    ],
)
def test_every_part_of_the_key_tells_graphs_apart(fields: dict[str, Any]) -> None:
    cache, shop = cached()
    use(cache, shop)
    with cache.lease(key(**fields), shop.make) as graphed:
        assert graphed is shop.made[1]


# --- eviction ---------------------------------------------------------------------------------------


def test_the_least_recently_used_graph_goes_first_after_its_last_work() -> None:
    cache, shop = cached()
    for number in (0, 1, 0, 2):
        use(cache, shop, number)
    assert shop.states == [State.READY, State.FALLBACK, State.READY]
    assert shop.adapters[1].calls.counts["wait_event"] == 1
    assert shop.adapters[1].calls.counts["destroy"] == 1
    assert cache.statistics.evictions == 1


def test_room_is_made_before_the_next_graph_is() -> None:
    cache, shop = cached(capacity_entries=1)
    use(cache, shop, 0)

    def make() -> GraphedStep:
        assert shop.states == [State.FALLBACK]
        return shop.make()

    with cache.lease(key(1), make) as graphed:
        assert graphed is shop.made[1]


def test_a_leased_graph_is_not_evicted_and_the_excess_goes_at_its_end() -> None:
    cache, shop = cached(capacity_entries=1)
    with cache.lease(key(0), shop.make) as first:
        use(cache, shop, 1)
        assert first is not None
        assert shop.states == [State.READY, State.FALLBACK]
        np.testing.assert_array_equal(first(ONES), 2 * ONES)
        assert cache.statistics.leased == 1
    assert cache.statistics.entries == 1
    assert use(cache, shop, 0) is first


def test_capacity_in_bytes_counts_what_is_given() -> None:
    cache, shop = cached(capacity_entries=9, capacity_bytes=100)
    for number in range(3):
        use(cache, shop, number, nbytes=40)
    assert shop.states == [State.FALLBACK, State.READY, State.READY]
    assert cache.statistics.bytes == 80


def test_a_graph_that_is_too_large_alone_makes_no_other_one_go() -> None:
    cache, shop = cached(capacity_entries=9, capacity_bytes=100)
    use(cache, shop, 0, nbytes=60)
    use(cache, shop, 1, nbytes=101)
    assert shop.states == [State.READY, State.FALLBACK]
    assert cache.statistics.bytes == 60


def test_bytes_are_what_the_device_loses_while_a_graph_is_made() -> None:
    free = iter([1_000, 700, 700, 900])
    cache, shop = cached(free_bytes=lambda: next(free))
    use(cache, shop, 0)
    assert cache.statistics.bytes == 300
    use(cache, shop, 1)  # somebody else gave memory back meanwhile
    assert cache.statistics.bytes == 300


def test_a_capacity_in_bytes_needs_bytes() -> None:
    cache, shop = cached(capacity_bytes=100)
    with pytest.raises(ValueError, match="needs free_bytes"):
        use(cache, shop)
    assert not shop.made


@pytest.mark.parametrize("bad", [{"capacity_entries": 0}, {"capacity_bytes": 0}, {"attempts": 0}])
def test_no_capacity_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        cached(**bad)


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 4))
def test_what_is_live_is_what_was_used_last(numbers: list[int], capacity: int) -> None:
    cache, shop = cached(capacity_entries=capacity)
    for number in numbers:
        use(cache, shop, number)
    last = list(dict.fromkeys(reversed(numbers)))[:capacity]
    found = cache.statistics
    assert found.entries == shop.states.count(State.READY) == len(last)
    captures = found.captures
    for number in last:
        use(cache, shop, number)
    assert cache.statistics.captures == captures
    assert found.captures - found.evictions == found.entries


# --- invalidation -----------------------------------------------------------------------------------


def test_a_key_or_a_kind_of_keys_is_invalidated() -> None:
    cache, shop = cached(capacity_entries=9)
    for number in range(4):
        use(cache, shop, number)
    assert cache.invalidate(key(3)) == 1
    assert cache.invalidate(lambda known: known.shape in (((0,),), ((1,),))) == 2
    assert cache.invalidate(key(3)) == 0
    assert shop.states == [State.FALLBACK, State.FALLBACK, State.READY, State.FALLBACK]
    assert cache.statistics.invalidations == 3
    use(cache, shop, 3)
    assert cache.statistics.captures == 5


def test_an_invalidated_graph_serves_its_lease_and_is_then_destroyed() -> None:
    cache, shop = cached()
    with cache.lease(key(), shop.make) as old:
        assert old is not None
        assert cache.clear() == 1
        assert use(cache, shop) is shop.made[1]
        np.testing.assert_array_equal(old(ONES), 2 * ONES)
    assert shop.states == [State.FALLBACK, State.READY]
    assert use(cache, shop) is shop.made[1]


def test_another_context_epoch_invalidates_all_but_its_own() -> None:
    cache, shop = cached(capacity_entries=9)
    for epoch in (0, 1, 2):
        with cache.lease(key(context_epoch=epoch), shop.make):
            pass
    assert cache.invalidate_epoch(2) == 2
    assert shop.states == [State.FALLBACK, State.FALLBACK, State.READY]


def test_a_cache_that_is_off_answers_none_until_it_is_on_again() -> None:
    cache, shop = cached()
    with cache.lease(key(), shop.make) as graphed:
        cache.turn_off()
        assert shop.states == [State.READY]
        assert graphed is shop.made[0]
    assert shop.states == [State.FALLBACK]
    assert use(cache, shop) is None
    cache.turn_on()
    assert use(cache, shop) is shop.made[1]
    assert cache.statistics.fallbacks == 1


# --- failures ---------------------------------------------------------------------------------------


def test_what_can_not_be_made_is_remembered_with_its_reason() -> None:
    cache, shop = cached()
    with cache.lease(key(), failing(KeyError("weights"))) as graphed:
        assert graphed is None
    assert use(cache, shop) is None
    assert cache.failures == {key(): "KeyError: 'weights'"}
    found = cache.statistics
    assert (found.misses, found.fallbacks, found.failures, found.captures, found.entries) == (1, 1, 1, 0, 0)


def test_a_failed_make_is_tried_as_often_as_allowed() -> None:
    cache, shop = cached(attempts=2)
    with cache.lease(key(), failing(KeyError("weights"))):
        pass
    assert use(cache, shop) is shop.made[0]
    assert cache.failures == {}


def test_an_invalidated_failure_may_be_tried_again() -> None:
    cache, shop = cached()
    with cache.lease(key(), failing(KeyError("weights"))):
        pass
    assert cache.invalidate(key()) == 0
    assert use(cache, shop) is shop.made[0]


def test_a_step_that_is_not_ready_is_no_graph_and_is_given_up() -> None:
    cache, _shop = cached()
    idle = GraphedStep(CountingAdapter(), lambda x: x, (ONES,))
    with cache.lease(key(), lambda: idle) as graphed:
        assert graphed is None
    assert idle.state is State.FALLBACK
    assert cache.failures == {key(): "RuntimeError: make returned a step that is idle, not ready"}


@pytest.mark.parametrize(
    "error", [device_error("CUDA_ERROR_ILLEGAL_ADDRESS", "cuGraphInstantiate"), KeyboardInterrupt()]
)
def test_a_lost_context_and_an_interruption_pass(error: BaseException) -> None:
    cache, shop = cached()
    with pytest.raises(type(error)), cache.lease(key(), failing(error)):
        pytest.fail("nothing was leased")
    assert cache.statistics.leased == 0
    assert use(cache, shop) is None


def test_a_graph_that_fails_in_use_is_not_used_again() -> None:
    cache, shop = cached()
    use(cache, shop)
    shop.adapters[0].calls.fail("launch")
    with pytest.raises(FakeError):
        use(cache, shop)
    assert use(cache, shop) is None
    assert cache.failures == {key(): "FakeError: launch failed with CUDA_ERROR_UNKNOWN"}
    assert shop.adapters[0].calls.counts["destroy"] == 1
    assert cache.statistics.entries == 0


def test_an_error_of_the_application_leaves_the_graph_alone() -> None:
    cache, shop = cached()
    with pytest.raises(ZeroDivisionError), cache.lease(key(), shop.make):
        raise ZeroDivisionError
    assert use(cache, shop) is shop.made[0]


def test_a_graph_that_was_given_up_in_a_lease_counts_once() -> None:
    cache, shop = cached()
    with cache.lease(key(), shop.make) as graphed:
        assert graphed is not None
        graphed.invalidate()
    assert cache.statistics.failures == 1
    assert cache.failures == {key(): "the graph was given up while it was leased"}


def test_one_thread_may_not_lease_a_graph_twice_at_a_time() -> None:
    cache, shop = cached()
    with cache.lease(key(), shop.make) as graphed:
        assert graphed is not None
        with pytest.raises(RuntimeError, match="leases this graph already"), cache.lease(key(), shop.make):
            pass
    assert cache.statistics.leased == 0
    assert use(cache, shop) is not None


def test_a_lease_may_end_in_another_thread() -> None:
    cache, shop = cached()
    lease = cache.lease(key(), shop.make)
    lease.__enter__()
    thread = threading.Thread(target=lease.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert cache.statistics.leased == 0
    assert use(cache, shop) is not None


def test_the_next_lease_on_another_stream_waits_for_the_last_ones_work() -> None:
    cache, shop = cached()
    for _ in range(2):
        use(cache, shop)
    assert shop.adapters[0].calls.counts["stream_wait"] == 1


def test_a_make_may_not_lease() -> None:
    cache, shop = cached()

    def make() -> GraphedStep:
        with cache.lease(key(1), shop.make):
            return shop.make()

    with cache.lease(key(0), make) as graphed:
        assert graphed is None
    assert cache.failures == {key(0): "RuntimeError: a graph was leased while another one was made"}
    assert use(cache, shop, 1) is not None


def test_failures_do_not_fill_memory() -> None:
    cache, _shop = cached()
    for number in range(REMEMBERED_FAILURES + 5):
        with cache.lease(key(number), failing(KeyError())):
            pass
    assert len(cache.failures) == REMEMBERED_FAILURES
    assert key(4) not in cache.failures


# --- churn ------------------------------------------------------------------------------------------


def test_keys_that_are_new_on_every_call_are_reported() -> None:
    cache, shop = cached()
    for number in range(CHURN_CALLS - 1):
        use(cache, shop, number)
        assert not cache.churning
    use(cache, shop, CHURN_CALLS)
    assert cache.churning


def test_a_graph_used_ten_times_is_no_churn() -> None:
    cache, shop = cached()
    for call in range(100):
        use(cache, shop, call // 10)
    assert cache.statistics.captures == 10
    assert not cache.churning
    for call in range(9):
        use(cache, shop, 100 + call)
    assert cache.churning  # 19 of 109


def test_a_cold_start_is_forgotten() -> None:
    cache, shop = cached(capacity_entries=CHURN_CALLS)
    for number in range(CHURN_CALLS):
        use(cache, shop, number)
    assert cache.churning
    for _ in range(CHURN_WINDOW):
        use(cache, shop, 1)
    assert not cache.churning


def test_keys_are_values() -> None:
    assert key(1) == key(1)
    assert hash(key(1)) == hash(replace(key(2), shape=((1,),)))
    assert key(1) != key(2)
