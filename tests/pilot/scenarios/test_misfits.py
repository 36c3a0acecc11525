"""Inputs that do not fit: each is wrong in the one thing that it is named for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opened_sessions import Opened, opened

from cudagraph_gate.pilot.scenarios.misfits import Misfit, limits, misfits
from cudagraph_gate.pilot.session import Inputs

TYPED = """
def step(x):
    return x

def inputs(shape, seed):
    return (device.array((np.asarray({values}) + seed % 2).astype(np.{dtype})),)
"""


def session_of(folder: Path, values: object, dtype: str) -> tuple[Opened, list[Inputs]]:
    made = opened(folder, "from numpy import nan\n" + TYPED.format(values=values, dtype=dtype))
    return made, [made.session.inputs(0), made.session.inputs(1)]


def found(folder: Path, values: object, dtype: str) -> dict[str, list[Misfit]]:
    made, sets = session_of(folder, values, dtype)
    kinds: dict[str, list[Misfit]] = {}
    for misfit in misfits(made.session, sets[0], limits(made.session, sets)):
        kinds.setdefault(misfit.kind, []).append(misfit)
    return kinds


def test_each_kind_differs_in_one_thing(tmp_path: Path) -> None:
    kinds = found(tmp_path, [[1, 2], [3, 4], [5, 6]], "float32")
    assert [len(misfit.inputs) for misfit in kinds["count"]] == [0, 2]
    more, fewer = (misfit.inputs[0] for misfit in kinds["shape"])
    assert (more.shape, fewer.shape) == ((1, 3, 2), (2, 2))
    ((other,),) = (misfit.inputs for misfit in kinds["dtype"])
    assert (other.shape, other.dtype, other.nbytes) == ((3, 2), np.dtype(np.int32), 24)
    ((host,),) = (misfit.inputs for misfit in kinds["device"])
    assert isinstance(host, np.ndarray)
    assert host.tolist() == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("values", "dtype", "bounds"),
    [([1, 2, 3], "float32", (1, 4)), ([7], "int64", (7, 8)), ([-3, 100], "int8", (-3, 101))],
)
def test_one_value_alone_lies_out_of_range(
    tmp_path: Path, values: list[int], dtype: str, bounds: tuple[int, int]
) -> None:
    made, sets = session_of(tmp_path, values, dtype)
    assert limits(made.session, sets) == {"x": bounds}
    (wrong,) = (
        misfit.inputs[0] for misfit in misfits(made.session, sets[0], {"x": bounds}) if misfit.kind == "range"
    )
    host = wrong.to_host()
    assert host[:-1].tolist() == values[:-1]
    assert not bounds[0] <= host[-1] <= bounds[1]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([0, 254], "uint8"),  # the byte that poisons lies within these limits
        ([1.0, float("nan")], "float32"),
        ([True, False], "bool"),
        ([1 + 2j], "complex64"),
        ([], "float32"),
    ],
)
def test_range_is_left_out_where_no_value_can_be_wrong(tmp_path: Path, values: Any, dtype: str) -> None:
    assert "range" not in found(tmp_path, values, dtype)


def test_a_single_number_has_no_row_to_lose(tmp_path: Path) -> None:
    kinds = found(tmp_path, 5, "float32")
    assert [misfit.inputs[0].shape for misfit in kinds["shape"]] == [(1,)]


@given(
    shape=st.lists(st.integers(1, 4), max_size=3),
    dtype=st.sampled_from(["float16", "float32", "float64", "int8", "int32", "uint16", "complex64"]),
)
def test_no_misfit_has_the_layout_of_the_input(
    tmp_path_factory: pytest.TempPathFactory, shape: list[int], dtype: str
) -> None:
    values = np.ones(shape).tolist()
    kinds = found(tmp_path_factory.mktemp("any"), values, dtype)
    for misfit in (*kinds["shape"], *kinds["dtype"]):
        assert (misfit.inputs[0].shape, misfit.inputs[0].dtype) != (tuple(shape), np.dtype(dtype))
