"""Keys of a graph cache."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import pytest

from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.graphs import GraphKey, ShapeRange, library_versions

RANGE = ShapeRange(((1, 64), ()), ((8, 128), ()))


def test_a_key_is_read_from_inputs() -> None:
    device = SimulatedDevice()
    inputs = (device.array(np.zeros((2, 3), np.float16)), device.array(np.zeros((), np.int64)))
    assert GraphKey.of(inputs, model_version="v1", device="gpu", context_epoch=3) == GraphKey(
        model_version="v1", shape=((2, 3), ()), dtype=("float16", "int64"), device="gpu", context_epoch=3
    )


def test_inputs_that_tell_nothing_make_no_key() -> None:
    with pytest.raises(TypeError, match="does not tell"):
        GraphKey.of((object(),), model_version="v1", device="gpu")


@pytest.mark.parametrize(
    ("shapes", "inside"),
    [
        (((1, 64), ()), True),
        (((8, 128), ()), True),
        (((4, 100), ()), True),
        (((9, 100), ()), False),
        (((4, 63), ()), False),
        (((4, 100),), False),
        (((4, 100, 1), ()), False),
    ],
)
def test_a_range_holds_shapes_within_its_limits(shapes: tuple[tuple[int, ...], ...], inside: bool) -> None:
    assert (shapes in RANGE) is inside


def test_a_range_is_part_of_a_key_like_a_shape() -> None:
    same = ShapeRange(RANGE.least, RANGE.greatest)
    keys = {GraphKey(model_version="v", shape=shape, dtype=(), device="d") for shape in (RANGE, same, ())}
    assert len(keys) == 2


def test_library_versions_are_sorted_and_name_what_is_absent() -> None:
    assert library_versions("numpy", "no-such-package") == (
        ("no-such-package", "absent"),
        ("numpy", version("numpy")),
    )
