"""The cost curve of updates, on the simulated device's clock."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.device.simulated import Fault, SimulatedDevice
from cudagraph_gate.errors import StickyError
from cudagraph_gate.evidence import Run, create_run
from cudagraph_gate.graphs import GraphedStep, update_worth
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.pilot.session import Session, build, load
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.pilot.updating import counts, measure_update_curve
from cudagraph_gate.records import UpdateCost

BASE_NS, NODE_NS = 1_000, 80
"""Of the simulated device: an update's call, and each node of a whole-graph update."""
JITTER = 0.07
"""Three standard deviations, where it is clipped, and rounding."""
BASE = """\
import numpy as np
from cudagraph_gate.device import Kernel, LaunchShape, current_device

device = current_device()

def _add(shape, x, y):
    x[:] += y

ADD = Kernel("add", "", _add, 2_000)

def add(x, y):
    device.launch(ADD, LaunchShape((1, 1, 1), (64, 1, 1)), (x, np.float32(y)))

def build(shape):
    global work
    work = device.array(np.zeros(64, np.float32))
    return step

def step(x):
    device.copy(work, x)
    for k in range(4):
        add(work, k)
    return work

def inputs(shape, seed):
    return (device.array(np.random.default_rng(seed).random(64, dtype=np.float32)),)
"""
LONGER = """
calls = 0

def step(x):
    global calls
    calls += 1
    device.copy(work, x)
    for k in range(4 if calls <= {most} else 5):
        {act}
        add(work, k)
    return work
"""
WARM_UPS = 3


class Silent:
    def progress(self, text: str, phase: str = "", done: int = 0, total: int = 0) -> None:
        """Say nothing."""


@dataclass(frozen=True)
class Made:
    """A graph of a workload's step that is ready, with the log of its trial."""

    session: Session
    graphed: GraphedStep
    run: Run
    log: TrialLog

    @property
    def device(self) -> SimulatedDevice:
        assert isinstance(self.session.device, SimulatedDevice)
        return self.session.device

    def measure(self) -> list[UpdateCost]:
        measure_update_curve(self.session, self.graphed, self.log)
        return [record for record in self.run.records() if isinstance(record, UpdateCost)]

    def assert_right(self, *, adds: int = 4) -> None:
        """The graph serves requests as before."""
        (x,) = self.session.inputs(7)
        np.testing.assert_allclose(self.graphed(x).to_host(), x.to_host() + sum(range(adds)), rtol=1e-6)


def make(folder: Path, text: str = "") -> Made:
    path = folder / "model.py"
    path.write_text(BASE + text)
    loaded = load(str(path), "simulated", None)
    session, inputs = build(loaded, "default", 0)
    graphed = GraphedStep(session.adapter, session.step, inputs).prepare(WARM_UPS)
    run = create_run(str(path), "module", "simulated", root=folder / "runs")
    return Made(session, graphed, run, TrialLog(run, "default", Silent()))


def points(costs: list[UpdateCost]) -> list[tuple[str, int]]:
    return [(cost.kind, cost.changed_nodes) for cost in costs]


def near(expected_ns: int) -> Any:
    return pytest.approx(expected_ns, rel=JITTER)


# --- the curve --------------------------------------------------------------------------------------


def test_whole_and_node_updates_are_measured_up_to_all_nodes(tmp_path: Path) -> None:
    costs = make(tmp_path).measure()
    assert points(costs) == [("whole", 5), ("kernel", 1), ("kernel", 2), ("kernel", 4), ("memcpy", 1)]
    assert {cost.nodes for cost in costs} == {5}
    assert {cost.result for cost in costs[1:]} == {"CUDA_SUCCESS"}
    assert costs[0].result == "CU_GRAPH_EXEC_UPDATE_SUCCESS"
    assert [cost.elapsed for cost in costs] == [
        near(BASE_NS + 5 * NODE_NS),
        near(BASE_NS),
        near(2 * BASE_NS),
        near(4 * BASE_NS),
        near(BASE_NS),
    ]
    assert {(cost.shape, cost.method, cost.node) for cost in costs} == {("default", "capture", None)}


def test_the_graph_in_use_is_not_touched_and_memory_comes_back(tmp_path: Path) -> None:
    made = make(tmp_path)
    made.assert_right()
    before = made.device.memory_info().free_bytes
    made.measure()
    assert made.device.memory_info().free_bytes == before
    made.assert_right()


def test_the_records_say_from_where_on_updates_do_not_pay(tmp_path: Path) -> None:
    costs = make(tmp_path).measure()
    whole_and_kernels = {worth.kind: worth for worth in update_worth(costs, 3_000, 1_500)}
    kernels, whole = whole_and_kernels["kernel"], whole_and_kernels["whole"]
    assert (kernels.whole_from_nodes, kernels.rebuild_from_nodes, kernels.pays_up_to_nodes) in {
        (2, 3, 1),
        (2, 4, 1),
    }
    assert (whole.rebuild_from_nodes, whole.pays_up_to_nodes) == (None, 5)


@given(st.integers(0, 5_000))
def test_counts_are_powers_of_two_and_all(nodes: int) -> None:
    found = counts(nodes)
    assert found == sorted(set(found))
    assert (found[-1:], found[:1]) == (([nodes], [1]) if nodes else ([], []))
    assert all(count & (count - 1) == 0 for count in found[:-1])
    assert all(later <= 2 * before for before, later in pairwise(found))


# --- what can't be done -----------------------------------------------------------------------------


def test_a_refused_whole_update_is_named_and_nodes_are_measured_all_the_same(tmp_path: Path) -> None:
    made = make(tmp_path, LONGER.format(most=WARM_UPS + 1, act="pass"))
    whole, *nodes = made.measure()
    assert whole.result == "CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED"
    assert whole.elapsed == NotMeasured(reason=f"the driver refused: {whole.result}")
    assert points(nodes) == [("kernel", 1), ("kernel", 2), ("kernel", 4), ("memcpy", 1)]
    made.assert_right()


def test_a_step_that_can_not_be_captured_again_says_why(tmp_path: Path) -> None:
    act = f"assert calls <= {WARM_UPS + 1}, 'seen too often'"
    made = make(tmp_path, LONGER.format(most=99, act=act))
    whole, *nodes = made.measure()
    assert whole.elapsed == NotMeasured(reason="the step can't be captured a second time: seen too often")
    assert len(nodes) == 4
    made.assert_right()
    assert not made.device.current_stream().is_capturing


def test_no_memory_for_another_executable_is_a_reason(tmp_path: Path) -> None:
    made = make(tmp_path)
    made.device.inject(Fault("out_of_memory"))
    (whole,) = made.measure()
    assert whole.result == "CUDA_ERROR_OUT_OF_MEMORY"
    assert isinstance(whole.elapsed, NotMeasured)
    assert whole.elapsed.reason.startswith("no second executable: cuGraphInstantiate failed")
    made.assert_right()


def test_a_lost_context_passes(tmp_path: Path) -> None:
    made = make(tmp_path)
    made.device.inject(Fault("illegal_address"))
    made.graphed.launch()
    with pytest.raises(StickyError):
        made.measure()


def test_without_a_graph_there_is_nothing_to_measure(tmp_path: Path) -> None:
    made = make(tmp_path)
    made.graphed.invalidate()
    with pytest.raises(RuntimeError, match="no graph in state fallback"):
        made.measure()
