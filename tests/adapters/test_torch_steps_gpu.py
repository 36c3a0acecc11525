"""Training, autocast, compiled, Triton and random steps through the torch adapter, each on a GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch_step_programs
from gpu_script import run_script
from program_facts import Facts, facts_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]
SCRIPT = Path(torch_step_programs.__file__)
PARAMETERS = ("bias", "weight")


@pytest.fixture(scope="module")
def found() -> Mapping[str, Facts]:
    facts: Mapping[str, Facts] = run_script(SCRIPT)
    return facts


@pytest.mark.parametrize(
    ("program", "moments"),
    [("adam", ("exp_avg", "exp_avg_sq", "step")), ("momentum", ("momentum_buffer",))],
)
def test_a_training_step_is_followed_through_its_state(
    found: Mapping[str, Facts], program: str, moments: tuple[str, ...]
) -> None:
    facts = facts_of(found, program)
    expected = {f"model.{name}" for name in PARAMETERS} | {f"model.{name}.grad" for name in PARAMETERS}
    expected |= {f"optimizer.model.{name}.{moment}" for name in PARAMETERS for moment in moments}
    assert set(facts["names"]) == expected
    assert facts["graph"] == pytest.approx(facts["normal"], rel=1e-5)
    assert facts["normal"][0] != facts["normal"][1]
    assert facts["state"]
    assert facts["moved"] == []


def test_autocast_leaves_no_stale_cast_behind(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "autocast")
    for place in ("inside", "around"):
        graph, normal = facts[place]
        assert graph == normal, place


@pytest.mark.parametrize("program", ["compiled", "triton_inside"])
def test_compiled_kernels_are_captured(found: Mapping[str, Facts], program: str) -> None:
    graph, normal = facts_of(found, program)["results"]
    assert graph == normal


def test_an_own_generator_draws_on_in_replays(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "own_generator")
    assert facts["drawn"][0] != facts["drawn"][1]
    assert facts["drawn"] == facts["normal"]


def test_a_new_stream_is_torchs_current_one_for_the_block_alone(found: Mapping[str, Facts]) -> None:
    assert facts_of(found, "streams") == {"inside": True, "blocking": False, "outside": True}


def test_a_kernel_on_a_stream_that_is_not_captured_is_named(found: Mapping[str, Facts]) -> None:
    facts = facts_of(found, "wrong_stream")
    assert len(facts["escaped"]) == 1
    assert facts["escaped"][0] not in facts["captured"]
    assert "1 kernel of a request" in facts["messages"][0]


@pytest.mark.parametrize("program", ["own_graphs", "own_captured_graph"])
def test_a_step_that_runs_graphs_itself_is_sent_to_build_graphed(program: str) -> None:
    facts = facts_of(run_script(SCRIPT, program), program)
    assert facts["error"] == "CaptureError"
    assert "declare it as build_graphed" in facts["text"]
    assert not facts["capturing"]
    assert facts["normal"]


def test_an_optimizer_that_is_not_capturable_says_so() -> None:
    facts = facts_of(run_script(SCRIPT, "not_capturable"), "not_capturable")
    assert facts["error"] == "RuntimeError"
    assert "capturable" in facts["text"]
    assert facts["normal"]


def test_a_failed_capture_leaves_no_generator_in_capture_mode() -> None:
    facts = facts_of(run_script(SCRIPT, "failing_with_generator"), "failing_with_generator")
    assert facts["normal"] == [True, True]
