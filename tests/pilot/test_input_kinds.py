"""What the requests' inputs can show, and requests of extreme seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from opened_sessions import opened

from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.input_kinds import (
    EXTREME_SEEDS,
    InputKinds,
    baked_finding,
    extreme_inputs,
    inputs_finding,
    kinds_of_inputs,
)
from cudagraph_gate.records import Method, Phase

STEP = """
        def step(x, mask, extra):
            device.copy(work, x)
            return work
        """


def kinds(folder: Path, text: str, sets: int = 3) -> InputKinds:
    session = opened(folder, STEP + text).session
    return kinds_of_inputs(session, [session.inputs(seed) for seed in range(sets)])


def returning(values: str) -> str:
    return f"""
        SHARED = array(5)
        def inputs(shape, seed):
            x = array(seed)
            return {values}
        """


@pytest.mark.parametrize(
    ("values", "constant", "reused", "alike"),
    [
        ("x, array(seed + 1), array(-seed - 1)", (), (), ()),
        ("x, array(1), array(-seed - 1)", ("mask",), (), ()),
        ("x, SHARED, array(-seed - 1)", ("mask",), ("mask",), ()),
        ("x, array(seed), array(-seed - 1)", (), (), (("x", "mask"),)),
        ("x, array(1, 0), array(1, 0)", (), (), ()),
        ("x, array(1), array(1)", ("mask", "extra"), (), (("mask", "extra"),)),
    ],
)
def test_inputs_are_told_apart(
    tmp_path: Path,
    values: str,
    constant: tuple[str, ...],
    reused: tuple[str, ...],
    alike: tuple[tuple[str, str], ...],
) -> None:
    found = kinds(tmp_path, returning(values))
    assert (found.constant, found.reused, found.alike) == (constant, reused, alike)


@pytest.mark.parametrize(
    ("updatable", "method", "named"),
    [
        (("x",), "capture", "extra"),
        (("x", "extra"), "capture", None),
        (("x",), "own", None),
        ((), "capture", "x, extra"),
    ],
)
def test_inputs_that_vary_and_are_baked_in_are_a_condition(
    tmp_path: Path, updatable: tuple[str, ...], method: Method, named: str | None
) -> None:
    found = baked_finding(
        "b1", kinds(tmp_path, returning("x, array(1), array(-seed - 1)")), updatable, method
    )
    assert (found is None) == (named is None)
    if found is not None:
        assert f"the captured values of {named}, which" in found.message
        assert not found.blocks


def test_one_request_calls_nothing_constant(tmp_path: Path) -> None:
    found = kinds(tmp_path, returning("x, SHARED, array(9)"), sets=1)
    assert (found.constant, found.reused) == ((), ())


def test_the_finding_says_what_cannot_be_seen_and_blocks_nothing() -> None:
    found = inputs_finding("b1", InputKinds(("mask",), (), (("x", "y"),)), ["x", "y", "mask"], "own")
    assert found is not None
    assert (found.code, found.phase, found.method) == (Reason.UNMEASURABLE, Phase.EXPECTED, "own")
    assert not found.blocks
    assert found.message.startswith(
        "input mask always holds the same values for every seed; inputs x and y always hold the same values: "
    )


def test_memory_that_is_used_again_is_said() -> None:
    found = inputs_finding("b1", InputKinds(("mask",), ("mask",), ()), ["mask"])
    assert found is not None
    assert "input mask lies in the same memory and holds the same values" in found.message


@pytest.mark.parametrize("updatable", [["x"], []])
def test_inputs_that_are_baked_in_need_not_vary(updatable: list[str]) -> None:
    assert inputs_finding("b1", InputKinds(("mask",), (), (("x", "mask"),)), updatable) is None


def test_inputs_that_tell_everything_make_no_finding() -> None:
    assert inputs_finding("b1", InputKinds((), (), ()), ["x"]) is None


# --- extreme seeds --------------------------------------------------------------------------------------


def test_the_extreme_seeds_are_requested(tmp_path: Path) -> None:
    workload = opened(tmp_path)
    found = extreme_inputs(workload.session, workload.first)
    assert found.left_out == ()
    for (values,), seed in zip(found.input_sets, EXTREME_SEEDS, strict=True):
        np.testing.assert_array_equal(
            values.to_host(), np.random.default_rng(seed).random(64, dtype=np.float32)
        )


def test_the_largest_seed_is_one_that_numpy_takes() -> None:
    np.random.RandomState(EXTREME_SEEDS[1])
    with pytest.raises(ValueError, match="between 0 and"):
        np.random.RandomState(EXTREME_SEEDS[1] + 1)


def test_a_workload_that_refuses_a_seed_is_none_the_worse(tmp_path: Path) -> None:
    workload = opened(
        tmp_path,
        """
        DATA = [array(k) for k in range(3)]
        def inputs(shape, seed):
            return (DATA[seed],)
        """,
    )
    found = extreme_inputs(workload.session, workload.first)
    assert len(found.input_sets) == 1
    (why,) = found.left_out
    assert why.startswith(f"seed {2**32 - 1}: ")
    assert "IndexError" in why


def test_inputs_of_another_size_are_left_out(tmp_path: Path) -> None:
    workload = opened(
        tmp_path,
        """
        def inputs(shape, seed):
            return (array(1, 64 if seed else 32),)
        """,
    )
    found = extreme_inputs(workload.session, workload.first)
    assert (len(found.input_sets), found.left_out) == (1, ("seed 0: inputs of another size or type",))
