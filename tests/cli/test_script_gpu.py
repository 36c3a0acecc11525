"""Script mode on a GPU: any Python script with its arguments."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command import cgate, runs

pytestmark = pytest.mark.gpu

SCRIPT = """\
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
steps = parser.parse_args().steps
weights = torch.randn(64, 64, device="cuda")
for step in range(steps):
    with torch.cuda.nvtx.range("step"):
        torch.relu(weights @ weights).sum().item()
print("done")
"""


def test_a_script_is_recorded_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    ended = cgate(tmp_path, "profile", "train.py", "--json", "--", "--steps", "7", env=dict(os.environ))
    assert ended.code == 0, ended.err
    assert "done" in ended.err, "what the script prints is not part of the result"
    found = json.loads(ended.out)["diagnosis"]
    (step,) = (entry for entry in found["ranges"] if entry["name"] == "step")
    assert step["count"] == 7
    assert step["operations"] >= 7 * 4
    (device,) = found["devices"]
    assert device["busy_ns"] + sum(device["causes"].values()) == device["window_ns"]
    assert device["causes"]["sync"] > 0
    assert found["requests"]["type"] == "not_measured"


def test_a_script_that_fails_is_recorded_until_then(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT + "raise ValueError('no more data')\n")
    ended = cgate(tmp_path, "profile", "train.py", "--", "--steps", "2", env=dict(os.environ))
    assert (ended.code, ended.out) == (21, "")
    assert ended.complaint == "cgate: train.py:12: the script raised ValueError: no more data"
    (run,) = runs(tmp_path)
    assert json.loads((run / "diagnosis.json").read_text())["devices"]


def test_a_script_that_exits_with_a_code_says_so(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nsys.exit(3)\n")
    ended = cgate(tmp_path, "profile", "train.py", env=dict(os.environ))
    assert ended.code == 21
    assert "ended with exit code 3" in ended.complaint
