"""Torch workloads that go wrong under a graph in ways that are known, through the whole command."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from command import cgate

pytestmark = pytest.mark.gpu

BASE = """\
import torch

def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(32, 64, device="cuda", generator=generator),)

def build(shape):
    torch.manual_seed(0)
    layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(20))).cuda()
"""
HOLDS = """
    @torch.no_grad()
    def step(x):
        return layers(x)
    return step
"""
DROPOUT = """
    @torch.no_grad()
    def step(x):
        return torch.nn.functional.dropout(layers(x), 0.5, training=True)
    return step
"""
DATA_DEPENDENT = """
    @torch.no_grad()
    def step(x):
        y = layers(x)
        return y[(y > 0).nonzero()[:, 0]]  # the host must learn the size
    return step
"""
HOST_COUNTER = """
    calls = []

    @torch.no_grad()
    def step(x):
        calls.append(1)
        return layers(x) * len(calls)
    return step
"""
SWAPPED_WEIGHTS = """
    global swap
    def swap():
        weight = layers[0].weight
        weight.data = weight.data.clone()
        weight.data.mul_(0.5)

    @torch.no_grad()
    def step(x):
        return layers(x)
    return step

def between(i):
    swap()
"""
OTHER_STREAM = """
    side = torch.cuda.Stream()
    extra = torch.zeros(32, 64, device="cuda")

    @torch.no_grad()
    def step(x):
        y = layers(x)
        with torch.cuda.stream(side):
            extra.add_(1.0)
        return y
    return step
"""
OUT_OF_RANGE = """
    table = torch.zeros(8, device="cuda")

    @torch.no_grad()
    def step(x):
        return layers(x).sum() + table[torch.full((4,), 10**9, device="cuda")].sum()
    return step
"""
TRAINING = """
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3)

    def step(x):
        optimizer.zero_grad(set_to_none=False)
        loss = layers(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step
"""


def judged(folder: Path, text: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, verdict and standard error of ``cgate run`` on the workload."""
    (folder / "model.py").write_text(BASE + text)
    ended = cgate(folder, "run", "model.py", "--json", env=dict(os.environ))
    return ended.code, json.loads(ended.out) if ended.out else {}, ended.err


def gate(verdict: dict[str, Any], number: int) -> dict[str, Any]:
    """One gate of a verdict."""
    found: dict[str, Any] = verdict["gates"][number - 1]
    return found


@pytest.mark.parametrize("text", [HOLDS, DROPOUT, TRAINING], ids=["linear", "dropout", "training"])
def test_what_is_right_is_not_refused(tmp_path: Path, text: str) -> None:
    code, verdict, err = judged(tmp_path, text)
    reasons = [f"{entry['number']} {entry['status']}: {entry['reason']}" for entry in verdict["gates"]]
    assert code == 12, (reasons, err)
    # How much faster it is depends on what else runs on the machine; that it is right does not.
    statuses = {entry["number"]: entry["status"] for entry in verdict["gates"]}
    assert [statuses[number] for number in (2, 3)] == ["pass", "pass"], reasons
    assert gate(verdict, 6)["measured"]["failed_comparisons"] == 0, reasons
    assert gate(verdict, 6)["measured"]["compared_requests"] == 7


def test_a_data_dependent_size_is_refused_with_its_line_and_the_normal_path_intact(tmp_path: Path) -> None:
    code, verdict, err = judged(tmp_path, DATA_DEPENDENT)
    assert code == 10, err
    assert gate(verdict, 2)["code"] == "capture-illegal"
    line = (
        (BASE + DATA_DEPENDENT)
        .splitlines()
        .index("        return y[(y > 0).nonzero()[:, 0]]  # the host must learn the size")
    )
    assert f"at model.py:{line + 1}" in gate(verdict, 2)["reason"]
    assert "nonzero" in gate(verdict, 2)["reason"]
    assert "normal path" not in gate(verdict, 2)["reason"]


def test_a_host_counter_is_frozen_and_never_passes(tmp_path: Path) -> None:
    _code, verdict, _err = judged(tmp_path, HOST_COUNTER)
    assert gate(verdict, 6)["status"] in ("fail", "unknown")
    assert "output" in gate(verdict, 6)["reason"]


def test_swapped_weights_are_wrong_outputs(tmp_path: Path) -> None:
    code, verdict, err = judged(tmp_path, SWAPPED_WEIGHTS)
    assert code == 10, err
    assert gate(verdict, 6)["code"] == "unstable-address"
    assert "state layers.0.weight lay elsewhere" in gate(verdict, 6)["reason"]


def test_work_on_a_stream_that_capture_does_not_see_is_escaped(tmp_path: Path) -> None:
    code, verdict, err = judged(tmp_path, OTHER_STREAM)
    assert code == 10, err
    assert gate(verdict, 2)["code"] == "escaped-work"
    assert gate(verdict, 2)["measured"]["missing_kernels"]


def test_a_device_fault_is_the_workloads_failure_in_one_line(tmp_path: Path) -> None:
    code, verdict, err = judged(tmp_path, OUT_OF_RANGE)
    assert (code, verdict) == (21, {})
    assert "Traceback" not in err
    assert "model.py" in err.splitlines()[-1]
