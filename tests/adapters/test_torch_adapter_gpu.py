"""The torch adapter on a GPU, in processes of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch_programs
from gpu_script import run_script
from program_facts import Facts, facts_of

pytestmark = pytest.mark.gpu
SCRIPT = Path(torch_programs.__file__)
LAYER = ["bias", "seen", "weight"]


@pytest.fixture(scope="module")
def found() -> Mapping[str, Facts]:
    facts: Mapping[str, Facts] = run_script(SCRIPT)
    return facts


def after_layer(start: float) -> list[list[float]]:
    """``relu(2 * x + 1)`` of the row that begins at ``start``."""
    return [[2 * (start + index) + 1 for index in range(4)]]


def test_replays_with_new_values_are_right(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "replays")
    assert facts["results"] == [after_layer(1), after_layer(5)]
    assert facts["kernels"] >= 1
    assert not facts["capturing"]


def test_the_executable_takes_over_its_own_graph(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "replays")
    assert facts["update"] == [True, "CU_GRAPH_EXEC_UPDATE_SUCCESS"]
    assert facts["after_update"] == after_layer(5)


def test_a_graphed_step_replays_updates_and_gives_up(found: Mapping[str, Facts]) -> None:
    assert facts_of(found, "graphed") == {
        "replayed": after_layer(2),
        "updated": True,
        "again": after_layer(3),
        "normal": after_layer(4),
        "state": "fallback",
    }


def test_destroying_gives_the_pool_back(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "pool")
    assert facts["during"] > facts["before"]
    assert facts["after"] <= facts["before"]


def test_replays_draw_the_random_numbers_of_the_normal_path(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "random_numbers")
    assert facts["drawn"][0] != facts["drawn"][1]
    assert facts["drawn"] == facts["normal"]


def test_random_state_is_preserved(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "preserved")
    assert facts["drawn"] == facts["expected"]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("module", LAYER),
        ("method", [f"self.{name}" for name in LAYER]),
        ("closure", [f"layer.{name}" for name in LAYER]),
        ("decorated", [f"layer.{name}" for name in LAYER]),
        ("partial", [f"argument 0.{name}" for name in LAYER]),
        ("holder", [f"self.layer.{name}" for name in LAYER]),
        ("global", [f"SHARED_LAYER.{name}" for name in LAYER]),
        ("plain", []),
    ],
)
def test_the_state_of_modules_is_found(found: Mapping[str, Facts], kind: str, names: list[str]) -> None:
    facts = facts_of(found, "found_state")
    assert facts[kind] == names
    assert facts["same"]


def test_values_arrive_on_the_host_in_a_dtype_that_numpy_has(found: Mapping[str, Facts]) -> None:
    assert facts_of(found, "dtypes") == {
        "torch.float32": ["float32", [1.5, 0.0, 3.0]],
        "torch.float16": ["float16", [1.5, 0.0, 3.0]],
        "torch.bfloat16": ["float32", [1.5, 0.0, 3.0]],
        "torch.int64": ["int64", [1.0, 0.0, 3.0]],
        "torch.bool": ["bool", [1.0, 0.0, 1.0]],
    }


def test_poison_is_no_value_that_a_computation_returns(found: Mapping[str, Facts]) -> None:
    assert facts_of(found, "poisoned") == {
        "torch.float32": True,
        "torch.bfloat16": True,
        "torch.complex64": True,
        "int32": [2**31 - 1] * 3,
        "bool": [False, True],
        "parameter": True,
    }


def test_static_copies_keep_strides_and_values(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "strided")
    assert facts == {name: [True] * 4 for name in facts}
    assert len(facts) == 6


def test_copies_are_checked(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "copies")
    assert facts["refusals"] == [
        "torch.float32(5,) does not fit torch.float32(4,)",
        "torch.int32(4,) does not fit torch.float32(4,)",
    ]
    assert facts["copied"] == [1.0] * 4
    assert facts["nbytes"] == 30


def test_memory_that_a_graph_reads_and_nobody_owns_is_found(found: Mapping[str, Facts]) -> None:
    assert facts_of(found, "freed") == {"alive": True, "lost": True}


def test_what_is_kept_is_handed_out_to_nobody(found: Mapping[str, Facts]) -> None:
    assert facts_of(found, "kept_arrays") == {"kept": False, "let go": True}


def test_only_strided_cuda_tensors_are_taken(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "copies")
    assert facts["arrays"] == [True, False, False, False, False]
    assert facts["complaint"] == "images is a CPU torch.Tensor, not a device array"
    assert facts["chosen"] == "TorchAdapter"


@pytest.mark.parametrize(
    ("program", "errors"),
    [
        ("step_raises", {"KeyError"}),
        ("prohibited", {"RuntimeError", "AcceleratorError"}),
        ("hidden", {"RuntimeError", "AcceleratorError"}),
    ],
)
def test_after_a_failed_capture_everything_works_again(program: str, errors: set[str]) -> None:
    facts = facts_of(run_script(SCRIPT, program), program)
    assert facts["error"] in errors
    assert not facts["capturing"]
    assert facts["random"]
    assert facts["again"] == after_layer(1)
    assert facts["kept"] < 64 << 20


def test_a_graphed_step_whose_capture_failed_runs_normally() -> None:
    facts = facts_of(run_script(SCRIPT, "graphed_failure"), "graphed_failure")
    assert facts == {"error": "RuntimeError", "state": "fallback", "finite": True}
