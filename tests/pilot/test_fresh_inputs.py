"""Inputs at addresses of their own: new, equal in value, bounded in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from opened_sessions import Opened, opened

from cudagraph_gate.pilot.fresh_inputs import SIMULATED_BYTES, FreshInputs

INPUT_BYTES = 256
"""64 floats."""
TWO_INPUTS = """
        UPDATABLE = ["x"]

        def step(x, scale):
            device.copy(work, x)
            add(work, scale)
            return work

        def inputs(shape, seed):
            return array(seed), array(3)
        """


@pytest.fixture
def workload(tmp_path: Path) -> Opened:
    return opened(tmp_path)


def fresh(workload: Opened, limit_bytes: int = 1 << 20) -> FreshInputs:
    return FreshInputs(workload.session, workload.session.input_sets(1), limit_bytes)


def pointers(taken: list[tuple[object, ...]]) -> list[int]:
    return [array.pointer for (array,) in taken]  # type: ignore[attr-defined]


def test_all_that_are_held_lie_elsewhere(workload: Opened) -> None:
    inputs = fresh(workload)
    found = [pointer for _ in range(5) for pointer in pointers(inputs.take(20))]
    assert len(set(found)) == 100


def test_they_hold_the_values_of_the_requests_in_turn(workload: Opened) -> None:
    sets = workload.session.input_sets(1)
    inputs = FreshInputs(workload.session, sets)
    taken = [*inputs.take(5), *inputs.take(5)]
    for number, (array,) in enumerate(taken):
        assert (array.to_host() == sets[number % len(sets)][0].to_host()).all()


def test_no_more_are_held_than_the_limit_allows(workload: Opened) -> None:
    inputs, device = fresh(workload, 10 * INPUT_BYTES), workload.session.device
    before = device.memory_info().free_bytes
    assert inputs.capacity == 10
    assert len(inputs.take(25)) == 10
    for _ in range(4):
        inputs.take(7)
    assert before - device.memory_info().free_bytes <= 10 * INPUT_BYTES
    inputs.free()
    assert device.memory_info().free_bytes == before


def test_takers_that_keep_to_their_share_never_get_an_address_twice(workload: Opened) -> None:
    inputs = fresh(workload, 29 * INPUT_BYTES)
    assert inputs.share(4) == 7
    found = [pointer for _ in range(4) for pointer in pointers(inputs.take(inputs.share(4)))]
    assert len(found) == len(set(found)) == 28


def test_two_are_made_of_the_largest_inputs(workload: Opened) -> None:
    assert len(fresh(workload, 1).take(8)) == 2


def test_the_simulated_device_holds_less_since_it_is_host_memory(workload: Opened) -> None:
    assert fresh(workload, 1 << 40).capacity == SIMULATED_BYTES // INPUT_BYTES


def test_a_single_copy_is_freed_by_who_drops_it(workload: Opened) -> None:
    inputs, device = fresh(workload), workload.session.device
    before = device.memory_info().free_bytes
    first = inputs.copy()
    assert before - device.memory_info().free_bytes == INPUT_BYTES
    del first
    assert device.memory_info().free_bytes == before


def test_inputs_that_may_not_change_stay_where_they_are(tmp_path: Path) -> None:
    session = opened(tmp_path, TWO_INPUTS).session
    sets = session.input_sets(1)
    usable = session.baked(sets, sets[0])
    taken = FreshInputs(session, usable, 10 * INPUT_BYTES).take(10)
    assert len({x.pointer for x, _scale in taken}) == 10, "only what moves counts towards the limit"
    assert {scale.pointer for _x, scale in taken} == {sets[0][1].pointer}
