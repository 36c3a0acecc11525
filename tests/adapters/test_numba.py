"""The Numba adapter on a GPU, in a process of its own."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import numba_programs
import pytest
from gpu_script import run_script
from numba_programs import VALUES
from program_facts import Facts, facts_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed"),
]


@pytest.fixture(scope="module")
def found() -> Mapping[str, Facts]:
    facts: Mapping[str, Facts] = run_script(Path(numba_programs.__file__))
    return facts


def doubled(start: float) -> list[list[float]]:
    rows: list[list[float]] = (2 * (VALUES + start)).tolist()
    return rows


def test_replays_with_new_values_are_right(found: Mapping[str, Facts]) -> None:
    assert facts_of(found, "replays") == {
        "results": [doubled(1), doubled(5)],
        "kinds": {"kernel": 1},
        "same": True,
        "adapter": "NumbaAdapter",
    }


def test_the_step_is_captured_on_numbas_own_arrays(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "graphed")
    assert facts["replayed"] == doubled(2)
    assert set(facts["given"]) == {"DeviceNDArray"}


def test_a_new_stream_is_the_helpers_current_one_for_the_block_alone(found: Mapping[str, Facts]) -> None:
    assert facts_of(found, "streams") == {"inside": True, "blocking": False, "outside": True}


def test_contiguous_arrays_are_copied_and_poisoned(found: Mapping[str, Facts]) -> None:
    assert facts_of(found, "arrays") == {
        "static": (VALUES + 1).tolist(),
        "kind": "DeviceNDArray",
        "poison": [0xFB],
        "taken": [True, False, False],
        "nbytes": 48,
    }


def test_a_launch_without_a_stream_escapes_to_the_legacy_stream(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "wrong_stream")
    (kernel,) = facts["escaped"]
    assert "lost" in kernel
    assert "the legacy default stream" in facts["messages"][0]
    assert len(facts["captured"]) == 1


def test_an_allocation_in_the_step_is_blamed(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "allocating")
    assert facts["error"] == "CaptureError"
    assert "cuMemAlloc" in facts["text"]
    assert "allocate in build" in facts["text"]
    assert not facts["capturing"]
    assert facts["normal"] == doubled(1)
