"""Arrays of torch, CuPy and cuda.core through the array adapter, on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import foreign_array_programs
import pytest
from foreign_array_programs import VALUES
from gpu_script import run_script
from program_facts import Facts, facts_of

pytestmark = pytest.mark.gpu
SCRIPT = Path(foreign_array_programs.__file__)
FLAT = [float(value) for value in VALUES.reshape(-1)]


@pytest.fixture(scope="module")
def found() -> Mapping[str, Facts]:
    facts: Mapping[str, Facts] = run_script(SCRIPT)
    return facts


@pytest.fixture(scope="module")
def found_cupy() -> Mapping[str, Facts]:
    """Of CuPy's programs, which have a process of their own: CuPy need not be there for the others."""
    facts: Mapping[str, Facts] = run_script(SCRIPT, "cupy")
    return facts


def assert_used(facts: Facts) -> None:
    assert facts == {
        "taken": True,
        "nbytes": 24,
        "read": FLAT,
        "static": FLAT,
        "changed": [value + 10 for value in FLAT],
        "poison": [0xFB],
    }


@pytest.mark.parametrize("name", ["torch", "torch-dlpack", "torch-interface", "buffer", "own-interface"])
def test_arrays_that_show_their_memory_are_used(found: Mapping[str, Facts], name: str) -> None:
    assert_used(facts_of(found, name))


@pytest.mark.parametrize("name", ["cupy", "cupy-dlpack"])
def test_cupy_arrays_are_used(found_cupy: Mapping[str, Facts], name: str) -> None:
    assert_used(facts_of(found_cupy, name))


def test_a_cupy_step_is_captured_and_replayed(found_cupy: Mapping[str, Facts]) -> None:
    assert facts_of(found_cupy, "cupy-capture") == {"replayed": ((VALUES + 1) * 2).tolist()}


@pytest.mark.parametrize("name", ["torch-transposed", "torch-strided", "torch-host", "numpy", "numpy-dlpack"])
def test_other_arrays_are_refused_with_their_type(found: Mapping[str, Facts], name: str) -> None:
    facts = facts_of(found, name)
    assert not facts["taken"]
    assert facts["complaint"].startswith("value is a ")
    assert facts["complaint"].endswith(", not a device array")


def test_a_strided_cupy_array_is_refused(found_cupy: Mapping[str, Facts]) -> None:
    assert not facts_of(found_cupy, "cupy-strided")["taken"]


def test_a_dtype_that_numpy_lacks_is_no_error(found: Mapping[str, Facts]) -> None:
    # Taken where ml_dtypes is installed, refused where it is not.
    facts = facts_of(found, "torch-bfloat16-dlpack")
    assert facts["taken"] == (facts["complaint"] is None)


def test_host_arrays_are_called_so(found: Mapping[str, Facts]) -> None:
    assert facts_of(found, "torch-host")["complaint"] == "value is a CPU torch.Tensor, not a device array"
    assert facts_of(found, "numpy")["complaint"] == "value is a CPU numpy.ndarray, not a device array"
