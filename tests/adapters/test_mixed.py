"""A torch step with CuPy inside, on a GPU, in a process of its own."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import mixed_programs
import pytest
from gpu_script import run_script
from mixed_programs import COUNT
from program_facts import Facts, facts_of

MISSING = [name for name in ("torch", "cupy") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]


@pytest.fixture(scope="module")
def found() -> Mapping[str, Facts]:
    facts: Mapping[str, Facts] = run_script(Path(mixed_programs.__file__))
    return facts


def test_a_cupy_kernel_on_torchs_stream_is_captured(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "on_torchs_stream")
    assert facts["result"] == [(2 * (5 + index) + 1) * 3 for index in range(COUNT)]
    assert "raise1" in facts["captured"]
    assert facts["escaped"] == []


def test_a_cupy_kernel_on_cupys_own_stream_is_named(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "on_cupys_stream")
    assert facts["escaped"] == ["raise1"]
    assert "raise1" not in facts["captured"]
    assert "the legacy default stream" in facts["messages"][0]


def test_cupys_arrays_stay_cupys_in_a_torch_step(found: Mapping[str, Facts]) -> None:
    assert facts_of(found, "cupy_arrays") == {
        "adapter": "TorchAdapter",
        "taken": True,
        "kind": "cupy",
        "other": True,
        "nbytes": 16,
        "read": [3, 4, 5, 6],
        "poisoned": True,
    }
