"""Allocator churn: what was freed no longer holds what it held."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudagraph_gate.adapters.cuda_core import POISON_BYTE, ArrayAdapter
from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.pilot import correctness


@pytest.fixture
def session() -> Any:
    """The part of a session that churn uses."""
    device = SimulatedDevice()
    return SimpleNamespace(device=device, adapter=ArrayAdapter(device))


class Watching:
    """The session's adapter, with notes of what was allocated and what was poisoned."""

    def __init__(self, adapter: ArrayAdapter) -> None:
        self._adapter = adapter
        self.allocated: list[int] = []
        self.poisoned: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def static_like(self, value: Any) -> Any:
        self.allocated.append(value.nbytes)
        return self._adapter.static_like(value)

    def poison(self, value: Any) -> None:
        self.poisoned.append(value.pointer)
        self._adapter.poison(value)


def test_freed_memory_of_a_size_that_matters_is_overwritten(session: Any) -> None:
    freed, kept = (session.device.array(np.ones(64, np.float32)) for _ in range(2))
    pointer = freed.pointer
    freed.free()
    session.adapter = Watching(session.adapter)
    correctness.churn(session, [kept])
    assert pointer in session.adapter.poisoned
    assert kept.pointer not in session.adapter.poisoned
    np.testing.assert_array_equal(kept.to_host(), 1)


def test_churn_gives_its_memory_back(session: Any) -> None:
    arrays = [session.device.array(np.ones(n, np.float32)) for n in (64, 64, 1024)]
    before = session.device.memory_info()
    correctness.churn(session, arrays)
    assert session.device.memory_info() == before


def test_churn_stays_within_its_limit(session: Any) -> None:
    session.adapter = Watching(session.adapter)
    arrays = [session.device.array(np.ones(n, np.float32)) for n in (1024, 64)]
    correctness.churn(session, arrays, limit_bytes=4 * 256)
    assert session.adapter.allocated == [256] * correctness.CHURN_BLOCKS, "the small size only"


def test_the_poison_is_no_number_that_a_float_computation_returns() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        value = np.frombuffer(bytes([POISON_BYTE]) * 8, dtype)[0]
        assert value < -60_000
