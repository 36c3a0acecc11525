"""The sample workload with both ways to a graph: equal outputs, and branches that only one of them has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudagraph_gate.adapters.cuda_core import ArrayAdapter
from cudagraph_gate.device import Device, open_device
from cudagraph_gate.graphs.explicit import ExplicitSource
from cudagraph_gate.graphs.graphed_step import GraphedStep
from cudagraph_gate.graphs.inspect import graph_map
from cudagraph_gate.model.graph_map import GraphMap
from cudagraph_gate.workload import Workload, load_workload

SAMPLE = Path(__file__).parents[2] / "sample_workloads" / "explicit_chain.py"
SHAPE = 4096


@pytest.fixture(params=["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def opened(request: pytest.FixtureRequest) -> Iterator[Device]:
    """The process's current device, which the sample asks for."""
    device = open_device(request.param)
    yield device
    device.close()


def ready(device: Device, workload: Workload, *, explicit: bool) -> tuple[GraphedStep, GraphMap]:
    adapter = ArrayAdapter(device)
    build: Any = workload.build_explicit
    source = ExplicitSource(adapter, device, lambda graph: build(SHAPE, graph)) if explicit else None
    graphed = GraphedStep(adapter, workload.build(SHAPE), workload.inputs(SHAPE, 0), source=source)
    graphed.warm_up(1)
    found = graph_map(graphed.capture().graph, lambda _name: "")
    graphed.instantiate()
    graphed.upload()
    return graphed, found


def replay_ns(device: Device, graphed: GraphedStep) -> int:
    start = device.clock_ns()
    graphed.launch()
    device.synchronize()
    return device.clock_ns() - start


def test_both_graphs_give_the_normal_steps_outputs(opened: Device) -> None:
    workload = load_workload(SAMPLE)
    step = workload.build(SHAPE)
    graphs = [ready(opened, workload, explicit=explicit)[0] for explicit in (False, True)]
    for seed in (1, 2):
        inputs = workload.inputs(SHAPE, seed)
        expected = step(*inputs).to_host()
        for graphed in graphs:
            np.testing.assert_array_equal(graphed.replay(inputs).to_host(), expected)


def test_only_the_explicit_graph_has_branches(opened: Device) -> None:
    workload = load_workload(SAMPLE)
    captured, explicit = (ready(opened, workload, explicit=explicit)[1] for explicit in (False, True))
    assert captured.kinds == explicit.kinds == {"memcpy": 2, "kernel": 65}
    assert (captured.longest_chain, captured.width) == (67, 1)
    assert (explicit.longest_chain, explicit.width, explicit.roots, explicit.leaves) == (34, 2, 2, 1)
    assert sorted(part.count for part in explicit.parts) == [1, 1, 1, 32, 32]


def test_side_by_side_takes_about_half_the_time() -> None:
    device, workload = open_device("simulated"), load_workload(SAMPLE)
    captured, explicit = (
        replay_ns(device, ready(device, workload, explicit=explicit)[0]) for explicit in (False, True)
    )
    assert 0.4 < explicit / captured < 0.65
