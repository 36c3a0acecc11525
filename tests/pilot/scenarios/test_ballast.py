"""Ballast leaves no device memory, costs none on the host, and comes back whole."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opened_sessions import opened

from cudagraph_gate.errors import DeviceMemoryError
from cudagraph_gate.pilot.scenarios.ballast import (
    SMALLEST_BYTES,
    Ballast,
    unfillable,
)
from cudagraph_gate.pilot.session import Session

GIB = 1 << 30


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return opened(tmp_path_factory.mktemp("ballast")).session


def free_bytes(session: Session) -> int:
    return session.device.memory_info().free_bytes


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_nothing_is_left_and_all_comes_back(session: Session) -> None:
    before, resident = free_bytes(session), resident_bytes()
    assert before > 15 * GIB
    with Ballast(session) as ballast:
        ballast.fill()
        assert free_bytes(session) < SMALLEST_BYTES
        assert ballast.nbytes > before - SMALLEST_BYTES
        assert ballast.still_full()
        with pytest.raises(DeviceMemoryError):
            session.device.empty((SMALLEST_BYTES,), np.uint8)
        assert resident_bytes() - resident < GIB // 8
    assert free_bytes(session) == before
    assert ballast.nbytes == 0


def test_all_comes_back_after_an_error_too(session: Session) -> None:
    before = free_bytes(session)
    with pytest.raises(KeyError), Ballast(session) as ballast:
        ballast.fill()
        raise KeyError
    assert free_bytes(session) == before


@given(leave=st.integers(1, 40 * GIB))
def test_so_much_is_left_as_was_asked_for(session: Session, leave: int) -> None:
    before = free_bytes(session)
    with Ballast(session) as ballast:
        ballast.fill(leave)
        if leave > before:
            assert ballast.nbytes == 0
        else:
            assert 0 <= free_bytes(session) - leave < SMALLEST_BYTES
            ballast.fill()
            assert free_bytes(session) < SMALLEST_BYTES


def test_memory_that_was_given_back_meanwhile_is_noticed(session: Session) -> None:
    other = session.device.empty((8_192,), np.uint8)
    with Ballast(session) as ballast:
        ballast.fill()
        other.free()
        assert not ballast.still_full()


# --- whose memory it is -----------------------------------------------------------------------------


def test_the_simulated_device_is_nobody_elses(session: Session) -> None:
    assert unfillable(session) == ""
