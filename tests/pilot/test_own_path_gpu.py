"""Graph paths of workloads' own on a GPU, each in a process of its own: a recorder stays in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import own_path_programs
import pytest
from gpu_script import run_script

from cudagraph_gate.pilot.path_idle import RECORDED_REQUESTS

pytestmark = pytest.mark.gpu


def seen_of(name: str, folder: Path) -> Any:
    if name in own_path_programs.TORCH_PATHS:
        pytest.importorskip("torch")
    return run_script(Path(own_path_programs.__file__), name, str(folder))


@pytest.mark.parametrize("name", ["own_graph_chain", "callables", "compiled"])
def test_an_own_path_agrees_launches_graphs_and_overwrites_its_outputs(tmp_path: Path, name: str) -> None:
    seen = seen_of(name, tmp_path)
    assert len(seen["equal"]) >= 7
    assert all(seen["equal"])
    assert (seen["constant"], seen["normal_overwrites"]) == ([], [])
    assert seen["graph_overwrites"] == ["output"]
    normal, graph = seen["idle"]["normal"], seen["idle"]["graph"]
    assert (normal["graph_launches"], graph["graph_launches"]) == (0, RECORDED_REQUESTS)
    assert normal["operations"] == seen["one"] * RECORDED_REQUESTS
    for idle in (normal, graph):
        assert 0 < idle["busy_ns"] <= idle["window_ns"]
    assert graph["window_ns"] - graph["busy_ns"] < normal["window_ns"] - normal["busy_ns"]


def test_a_path_that_makes_no_graph_is_seen_to_launch_none(tmp_path: Path) -> None:
    seen = seen_of("eager", tmp_path)
    assert seen["idle"]["graph"]["graph_launches"] == 0
    assert seen["idle"]["graph"]["operations"] == seen["idle"]["normal"]["operations"] > 0
    assert seen["graph_overwrites"] == []
