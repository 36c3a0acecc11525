"""Arrays of nobody's request: what writes to one is noticed, whoever it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opened_sessions import opened

from cudagraph_gate.pilot.scenarios.guards import LARGE_BYTES, LIMIT_BYTES, SIZES_BYTES, Guards
from cudagraph_gate.pilot.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return opened(tmp_path).session


def floats(session: Session, count: int, value: float = 2.0) -> Any:
    return session.device.array(np.full(count, value, np.float32))


def sizes(guards: Guards) -> list[int]:
    return [array.nbytes for array in guards._arrays]


def test_of_each_size_there_are_copies_with_the_same_values(session: Session) -> None:
    guards = Guards(
        session, [floats(session, 8), floats(session, 8), floats(session, 4)], sizes=False, poisoned=False
    )
    assert sizes(guards) == [16] * 4 + [32] * 4
    assert all((array.to_host() == 2.0).all() for array in guards._arrays)


def test_poisoned_ones_hold_other_values_than_what_they_are_like(session: Session) -> None:
    guards = Guards(session, [floats(session, 8)], sizes=False, poisoned=True)
    assert not any((array.to_host() == 2.0).any() for array in guards._arrays)
    assert guards.harmed() == 0


@pytest.mark.parametrize("poisoned", [True, False])
def test_each_that_was_written_to_is_counted(session: Session, poisoned: bool) -> None:
    guards = Guards(session, [floats(session, 8)], sizes=False, poisoned=poisoned)
    for array in guards._arrays[:3]:
        session.device.fill(array, 1)
    session.device.synchronize()
    assert guards.harmed() == 3


def test_one_byte_is_enough(session: Session) -> None:
    guards = Guards(session, [], sizes=True, poisoned=False)
    last = guards._arrays[-1]
    end = session.device.view(last.pointer + last.nbytes - 1, (1,), np.uint8, last)
    session.device.fill(end, 7)
    session.device.synchronize()
    assert guards.harmed() == 1


def test_sizes_cover_an_allocators_bins(session: Session) -> None:
    guards = Guards(session, [], sizes=True, poisoned=False)
    assert sizes(guards) == [size for size in SIZES_BYTES for _ in range(4)] + list(LARGE_BYTES)


def test_large_arrays_are_left_out_before_small_ones(session: Session) -> None:
    small, large = floats(session, 8), session.device.empty((LIMIT_BYTES // 4,), np.uint8)
    guards = Guards(session, [large, small], sizes=False, poisoned=False)
    assert sizes(guards) == [32] * 4


def test_once_they_are_freed_none_is_harmed(session: Session) -> None:
    used = session.device.memory_info().free_bytes
    guards = Guards(session, [floats(session, 1 << 16)], sizes=True, poisoned=True)
    assert session.device.memory_info().free_bytes < used
    guards.free()
    assert session.device.memory_info().free_bytes == used
    assert guards.harmed() == 0
