"""The CuPy adapter on a GPU, in a process of its own."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import cupy_programs
import pytest
from cupy_programs import VALUES
from gpu_script import run_script
from program_facts import Facts, facts_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy is not installed"),
]


@pytest.fixture(scope="module")
def found() -> Mapping[str, Facts]:
    facts: Mapping[str, Facts] = run_script(Path(cupy_programs.__file__))
    return facts


def expected(start: float) -> list[float]:
    """What the allocating step makes of the values that begin at ``start``."""
    values = VALUES + start
    column: list[float] = ((values * 2 + 1) - values / 4).sum(axis=0).tolist()
    return column


def test_replays_with_new_values_are_right_amid_other_allocations(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "replays")
    assert facts["results"] == [expected(1), expected(5)]
    assert facts["kernels"] >= 2
    assert facts["updated"]
    assert not facts["capturing"]
    assert facts["adapter"] == "CupyAdapter"


def test_a_graphed_step_replays_and_gives_up(found: Mapping[str, Facts]) -> None:
    assert facts_of(found, "graphed") == {"replayed": expected(2), "normal": expected(2)}


def test_a_product_is_refused_by_cupy_itself(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "product")
    assert facts["error"] == "NotImplementedError"
    assert "cuBLAS" in facts["text"]
    assert not facts["capturing"]


def test_a_graph_is_replayed_on_another_stream(found: Mapping[str, Facts]) -> None:
    assert facts_of(found, "other_stream")["result"] == expected(7)


def test_a_new_stream_is_cupys_current_one_for_the_block_alone(found: Mapping[str, Facts]) -> None:
    assert facts_of(found, "streams") == {"inside": True, "blocking": False, "outside": True}


def test_a_graphs_pool_is_counted_and_given_back(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "pool")
    assert facts["during"] >= facts["before"] + 4 * 2**22
    assert facts["after"] == facts["before"]


def test_replays_draw_the_random_numbers_of_the_normal_path(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "random_numbers")
    assert facts["drawn"][0] != facts["drawn"][1]
    assert facts["drawn"] == facts["normal"]


def test_the_global_generator_repeats_itself(found: Mapping[str, Facts]) -> None:
    first, second = facts_of(found, "global_random_numbers")["drawn"]
    assert first == second
    assert len(set(first)) == len(first)


def test_arrays_of_any_layout_are_copied_and_poisoned(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "arrays")
    for layout in ("contiguous", "fortran", "sliced"):
        assert facts[layout] == [True, True, True], layout
    assert facts["poisoned"] == [True, True]
    assert facts["refusals"] == [
        "float32(4, 5) does not fit float32(4, 6)",
        "int32(4, 6) does not fit float32(4, 6)",
    ]
    assert facts["taken"] == [True, True, False, False]
    assert facts["kinds"] == ["ndarray", "CudaArray"]
    assert facts["nbytes"] == 30


def test_what_is_kept_is_handed_out_to_nobody(found: Mapping[str, Facts]) -> None:
    assert facts_of(found, "kept_arrays") == {"kept": False, "let go": True}


def test_a_kernel_on_a_stream_that_is_not_captured_is_named(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "wrong_stream")
    assert facts["escaped"] == ["lost"]
    assert "lost" not in facts["captured"]
    assert "1 kernel of a request (lost) on stream" in facts["messages"][0]


@pytest.mark.parametrize(("program", "error"), [("prohibited", "RuntimeError"), ("step_raises", "KeyError")])
def test_after_a_failed_capture_everything_works_again(
    found: Mapping[str, Facts], program: str, error: str
) -> None:
    facts = facts_of(found, program)
    assert facts["error"] == error
    assert not facts["capturing"]
    assert facts["normal"] == expected(1)
