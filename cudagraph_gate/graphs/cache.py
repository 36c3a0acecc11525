"""Graphs of an application by what they were captured for: kept, counted, evicted, invalidated.

>>> import numpy as np
>>> from cudagraph_gate.adapters import adapter_for
>>> from cudagraph_gate.device.simulated import SimulatedDevice
>>> device = SimulatedDevice()
>>> x, work = device.array(np.ones(4, np.float32)), device.empty((4,), np.float32)
>>> def step(x):
...     device.copy(work, x)
...     return work
>>> adapter = adapter_for(device, [x])
>>> cache = GraphCache(capacity_entries=32, free_bytes=lambda: device.memory_info().free_bytes)
>>> key = GraphKey.of((x,), model_version="v1", device=device.name)
>>> for _ in range(3):
...     with cache.lease(key, lambda: GraphedStep(adapter, step, (x,)).prepare()) as graphed:
...         y = graphed(x) if graphed is not None else step(x)
...         values = y.to_host()  # the outputs are overwritten by the next replay
>>> values.tolist()
[1.0, 1.0, 1.0, 1.0]
>>> cache.statistics.hits, cache.statistics.captures, cache.churning
(2, 1, False)
>>> cache.invalidate(lambda key: key.model_version == "v1")
1
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from cudagraph_gate.device.port import Event
from cudagraph_gate.errors import DeviceError, StickyError
from cudagraph_gate.graphs.cache_key import GraphKey
from cudagraph_gate.graphs.graphed_step import GraphedStep, State

CHURN_WINDOW: Final = 200
"""Leases that churning is judged by: recent ones, so that a cold start is forgotten."""
CHURN_CALLS: Final = 50
"""Fewest leases before anything is said: a cache that starts has to capture."""
CHURN_SHARE: Final = 0.1
"""Captures a call. Capture, instantiation and first replay together were measured at 2 to 16 times what a
replay saves, so a graph that is not used ten times is hardly paid back."""
REMEMBERED_FAILURES: Final = 1_024
"""Keys whose failure is remembered, so that keys that are new on every call fill no memory."""

Make = Callable[[], GraphedStep]
"""Makes a step that is ready (``GraphedStep(...).prepare()``), or raises."""


@dataclass(frozen=True)
class CacheStatistics:
    """Counts since the cache was made, and what it holds now."""

    hits: int
    misses: int
    fallbacks: int
    """Leases that were answered with None: the graph can't be made, or the cache is off."""
    captures: int
    """Graphs that were made."""
    failures: int
    """Graphs that could not be made, or failed in use."""
    evictions: int
    invalidations: int
    entries: int
    leased: int
    """Leases that go on or wait for their turn."""
    bytes: int
    """Device memory of the entries, as measured while each was made, or as given."""

    @property
    def calls(self) -> int:
        """All leases."""
        return self.hits + self.misses + self.fallbacks


@dataclass
class _Entry:
    """One graph of the cache. ``turn`` is held while it is made or used; the rest is the cache's lock's."""

    key: GraphKey
    turn: threading.Lock = field(default_factory=threading.Lock)
    """A plain one: a lease may be closed by another thread than the one that opened it."""
    holder: int | None = None
    """Thread that has the turn."""
    graphed: GraphedStep | None = None
    leases: int = 0
    nbytes: int = 0
    stale: bool = False
    """No longer in the cache: destroyed when the last lease ends."""
    fence: Event | None = None
    """Happens when the work of the last lease is done."""
    thread: int = 0
    """Of the last lease."""


@dataclass(frozen=True)
class _Failure:
    reason: str
    attempts: int


class GraphCache:
    """Graphs by key, least recently used evicted first; safe to use from several threads.

    A leased graph is never destroyed, and one that was released only after the work of its last lease:
    an event is recorded at release on the framework's current stream, which must be the one that the lease
    replayed on. One executable has one set of static arrays, so leases of the same key take turns;
    another thread's lease begins only when that event has happened. Lease one graph at a time, or in the
    same order in all threads.

    What can't be captured is not tried for ever: after ``attempts`` failures a key is answered with None
    until it is invalidated. Making and destroying take turns, because synchronising or freeing memory in one
    thread may break a capture in another. A lost context (StickyError) passes through.

    ``free_bytes`` tells the device's free memory: what it loses while a graph is made are the graph's
    bytes, unless ``lease`` is given them. Capacities are exceeded only while all graphs are leased.
    """

    def __init__(
        self,
        *,
        capacity_entries: int,
        capacity_bytes: int | None = None,
        free_bytes: Callable[[], int] | None = None,
        attempts: int = 1,
    ) -> None:
        if min(capacity_entries, attempts, 1 if capacity_bytes is None else capacity_bytes) < 1:
            raise ValueError("capacities and attempts must be at least 1")
        self._capacity_entries = capacity_entries
        self._capacity_bytes = capacity_bytes
        self._free_bytes = free_bytes
        self._attempts = attempts
        self._lock = threading.RLock()
        """Guards what follows; never held while the device is at work."""
        self._entries: OrderedDict[GraphKey, _Entry] = OrderedDict()
        self._failed: OrderedDict[GraphKey, _Failure] = OrderedDict()
        self._recent: deque[bool] = deque(maxlen=CHURN_WINDOW)
        """Of each recent lease whether it tried to make a graph."""
        self._counts = dict.fromkeys(
            ("hits", "misses", "fallbacks", "captures", "failures", "evictions", "invalidations"), 0
        )
        self._enabled = True
        self._device_turn = threading.RLock()
        self._maker: int | None = None
        """Thread that is inside a ``make``."""

    # --- use --------------------------------------------------------------------------------------
    @contextmanager
    def lease(self, key: GraphKey, make: Make, *, nbytes: int | None = None) -> Iterator[GraphedStep | None]:
        """The key's graph for the block, made if need be; None: take the normal path.

        ``make`` must not lease. It is called by one thread, others wait. Raises ValueError when the cache
        has a capacity in bytes and no way to know those of the graph.
        """
        if nbytes is None and self._free_bytes is None and self._capacity_bytes is not None:
            raise ValueError("a capacity in bytes needs free_bytes, or the nbytes of each graph")
        entry = self._take_turn(key)
        if entry is None:
            yield None
            return
        reason = ""
        try:
            graphed = self._ready(entry, make, nbytes)
            try:
                yield graphed
            except BaseException as error:
                reason = _said(error)
                raise
            finally:
                self._mark_end(entry)
        finally:
            self._end_turn(entry)
            self._leave(entry, reason)

    @staticmethod
    def _end_turn(entry: _Entry) -> None:
        entry.holder = None
        entry.turn.release()

    def _take_turn(self, key: GraphKey) -> _Entry | None:
        while (entry := self._enter(key)) is not None:
            if entry.holder == threading.get_ident():
                self._leave(entry, "")
                raise RuntimeError(
                    "this thread leases this graph already: a second lease would overwrite its arrays"
                )
            entry.turn.acquire()
            entry.holder = threading.get_ident()
            if not entry.stale:
                return entry
            self._end_turn(entry)  # it was invalidated, or could not be made, while this thread waited
            self._leave(entry, "")
        return None

    def _enter(self, key: GraphKey) -> _Entry | None:
        with self._lock:
            if self._maker == threading.get_ident():
                raise RuntimeError("a graph was leased while another one was made")
            failed, entry = self._failed.get(key), self._entries.get(key)
            if not self._enabled or (failed is not None and failed.attempts >= self._attempts):
                self._count("fallbacks")
                self._recent.append(False)
                return None
            if entry is None:
                entry = self._entries[key] = _Entry(key)
            self._entries.move_to_end(key)
            entry.leases += 1
            return entry

    def _ready(self, entry: _Entry, make: Make, nbytes: int | None) -> GraphedStep | None:
        """The entry's graph, its last work done if that was another thread's; holds the entry's turn."""
        missing = entry.graphed is None
        with self._lock:
            self._count("misses" if missing else "hits")
            self._recent.append(missing)
        if missing:
            self._make(entry, make, nbytes)
        elif entry.fence is not None and entry.graphed is not None:
            if entry.thread != threading.get_ident():
                entry.fence.synchronize()
            else:  # the same thread may have moved on to another stream
                entry.graphed.adapter.current_stream().wait(entry.fence)
        return entry.graphed

    def _mark_end(self, entry: _Entry) -> None:
        entry.thread, entry.fence = threading.get_ident(), None
        if entry.graphed is not None and entry.graphed.state is State.READY:
            with suppress(DeviceError, RuntimeError):  # a lost context: there is nothing to wait for
                entry.fence = entry.graphed.adapter.current_stream().record()

    def _leave(self, entry: _Entry, reason: str) -> None:
        with self._lock:
            entry.leases -= 1
            given_up = entry.graphed is not None and entry.graphed.state is not State.READY
            if given_up and not entry.stale:
                self._forget(entry)
                self._fail(entry.key, reason or "the graph was given up while it was leased")
            doomed = [entry] if entry.stale and entry.leases == 0 else []
            doomed += self._excess()
        self._destroy(doomed)

    # --- making and destroying --------------------------------------------------------------------
    def _make(self, entry: _Entry, make: Make, nbytes: int | None) -> None:
        with self._device_turn:
            with self._lock:
                room = self._excess()  # the new one is an entry already
            self._destroy(room)
            free = self._free_bytes if nbytes is None else None
            before = free() if free is not None else 0
            graphed = self._made(entry, make)
            if graphed is None:
                return
            used = max(0, before - free()) if free is not None else nbytes or 0
            with self._lock:
                entry.graphed, entry.nbytes = graphed, used
                self._failed.pop(entry.key, None)
                self._count("captures")

    def _made(self, entry: _Entry, make: Make) -> GraphedStep | None:
        """What ``make`` makes. None when it can't: the reason is remembered, and the entry gone."""
        graphed = None
        try:
            self._maker = threading.get_ident()
            graphed = make()
            if graphed.state is State.READY:
                return graphed
            raise RuntimeError(f"make returned a step that is {graphed.state}, not ready")
        except BaseException as error:
            if graphed is not None:
                graphed.invalidate()
            with self._lock:
                self._forget(entry)
                self._fail(entry.key, _said(error))
            if isinstance(error, StickyError) or not isinstance(error, Exception):
                raise
            return None
        finally:
            self._maker = None

    def _fail(self, key: GraphKey, reason: str) -> None:
        before = self._failed.pop(key, None)
        self._failed[key] = _Failure(reason, 1 if before is None else before.attempts + 1)
        self._count("failures")
        if len(self._failed) > REMEMBERED_FAILURES:
            self._failed.popitem(last=False)

    def _forget(self, entry: _Entry) -> None:
        """Take an entry out; whoever holds a lease keeps it until then."""
        if not entry.stale:
            entry.stale = True
            del self._entries[entry.key]

    def _excess(self) -> list[_Entry]:
        """Take idle entries out, the least recently used first, until the capacities are kept."""
        most = self._capacity_bytes if self._capacity_bytes is not None else sys.maxsize
        # What alone is too large goes first: nothing else has to make room for it.
        oldest = sorted(self._entries.values(), key=lambda entry: entry.nbytes <= most)
        gone = []
        for entry in oldest:
            if len(self._entries) <= self._capacity_entries and self._bytes() <= most:
                break
            if entry.leases == 0:
                self._forget(entry)
                self._count("evictions")
                gone.append(entry)
        return gone

    def _destroy(self, entries: Sequence[_Entry]) -> None:
        """Destroy graphs that nobody can lease any more, each after its last work."""
        for entry in entries:
            with self._device_turn:
                if entry.fence is not None:
                    with suppress(DeviceError, RuntimeError):  # a lost context has no work left
                        entry.fence.synchronize()
                if entry.graphed is not None:
                    entry.graphed.invalidate()

    # --- invalidation -----------------------------------------------------------------------------
    def invalidate(self, which: GraphKey | Callable[[GraphKey], bool]) -> int:
        """Drop the graphs of a key, or of all keys for which ``which`` is true; returns how many.

        Leased ones serve their lease and are destroyed at its end. Remembered failures of these keys are
        forgotten: they may be tried again.
        """
        chosen = (lambda key: key == which) if isinstance(which, GraphKey) else which
        with self._lock:
            dropped = [entry for entry in self._entries.values() if chosen(entry.key)]
            for entry in dropped:
                self._forget(entry)
                self._count("invalidations")
            for key in [key for key in self._failed if chosen(key)]:
                del self._failed[key]
            idle = [entry for entry in dropped if entry.leases == 0]
        self._destroy(idle)
        return len(dropped)

    def invalidate_epoch(self, current: int) -> int:
        """Drop the graphs of every context epoch but the current one."""
        return self.invalidate(lambda key: key.context_epoch != current)

    def clear(self) -> int:
        """Drop all graphs."""
        return self.invalidate(lambda _key: True)

    def turn_off(self) -> None:
        """From now on every lease is answered with None, and all graphs are dropped."""
        with self._lock:
            self._enabled = False
        self.clear()

    def turn_on(self) -> None:
        """Serve graphs again, made anew."""
        with self._lock:
            self._enabled = True

    # --- reports ----------------------------------------------------------------------------------
    @property
    def statistics(self) -> CacheStatistics:
        """Counts until now."""
        with self._lock:
            return CacheStatistics(
                **self._counts,
                entries=len(self._entries),
                leased=sum(entry.leases for entry in self._entries.values()),
                bytes=self._bytes(),
            )

    @property
    def failures(self) -> dict[GraphKey, str]:
        """Keys that have no graph, and why."""
        with self._lock:
            return {key: failed.reason for key, failed in self._failed.items()}

    @property
    def churning(self) -> bool:
        """Whether recent leases made new graphs so often that graphs can't pay: keys that are always new."""
        with self._lock:
            recent = len(self._recent)
            return recent >= CHURN_CALLS and sum(self._recent) > CHURN_SHARE * recent

    def _bytes(self) -> int:
        return sum(entry.nbytes for entry in self._entries.values())

    def _count(self, name: str) -> None:
        self._counts[name] += 1


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
