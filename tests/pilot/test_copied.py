"""What a step returned is kept with copies of its arrays, whatever holds them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from cudagraph_gate.adapters.cuda_core import ArrayAdapter
from cudagraph_gate.device.port import DeviceArray
from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.pilot.correctness import copied
from cudagraph_gate.pilot.digests import digest, digests
from cudagraph_gate.workload import flatten


class Pair(NamedTuple):
    y: Any
    note: str


@dataclass(frozen=True, slots=True)
class Frozen:
    y: Any


@dataclass
class Counted:
    y: Any
    count: int = field(init=False, default=1)


@pytest.fixture
def device() -> SimulatedDevice:
    return SimulatedDevice()


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y: y,
        lambda y: (y, 1, None),
        lambda y: [y, [y]],
        lambda y: Pair(y, "kept"),
        lambda y: {"y": y, "n": 3},
        lambda y: OrderedDict(y=y),
        lambda y: MappingProxyType({"y": y}),
        Frozen,
        Counted,
        lambda y: {"deep": (Pair([y], ""), Frozen({"y": y}))},
    ],
)
def test_arrays_keep_their_values_when_the_static_ones_are_overwritten(
    device: SimulatedDevice, wrap: Any
) -> None:
    array = device.array(np.arange(4, dtype=np.float32))
    outputs = wrap(array)
    kept = copied(ArrayAdapter(device), outputs)
    device.fill(array, 0xCB)
    assert [name for name, _ in flatten(kept)] == [name for name, _ in flatten(outputs)]
    arrays = [leaf for _, leaf in flatten(kept) if hasattr(leaf, "pointer")]
    assert arrays
    assert all(leaf.to_host().tolist() == [0, 1, 2, 3] for leaf in arrays)


@pytest.mark.parametrize("value", [Pair(1, "n"), [1], (1,), OrderedDict(a=1), Frozen(2), Counted(3)])
def test_containers_keep_their_type_and_plain_values(device: SimulatedDevice, value: Any) -> None:
    kept = copied(ArrayAdapter(device), value)
    assert type(kept) is type(value)
    assert kept == value
    assert isinstance(value, tuple | list) or kept is not value


def test_host_arrays_are_copied_too(device: SimulatedDevice) -> None:
    lengths = np.array([1, 2])
    kept = copied(ArrayAdapter(device), (lengths,))
    lengths[:] = 0
    assert kept[0].tolist() == [1, 2]


# --- digests --------------------------------------------------------------------------------------


def test_a_digest_tells_values_shapes_and_dtypes_apart() -> None:
    same = np.zeros((2, 2), np.float32)
    others = [np.zeros(4, np.float32), np.zeros((2, 2), np.int32), np.ones((2, 2), np.float32)]
    assert digest(same) == digest(same.T.copy().T)
    assert len({digest(values) for values in [same, *others]}) == 4


def test_digests_are_by_name(device: SimulatedDevice) -> None:
    zeros: DeviceArray = device.array(np.zeros(3))
    found = digests(ArrayAdapter(device), {"a": zeros, "b": zeros})
    assert found == dict.fromkeys("ab", digest(np.zeros(3)))
