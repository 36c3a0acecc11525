"""What ``between`` does long after the trajectory, in whole trials."""

from __future__ import annotations

from pathlib import Path

import pytest
from pilot_workloads import found, line_of, try_workload

from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.records import Phase

WEIGHTS = """
        def build(shape):
            global work, weights
            work, weights = array(), array(1)
            return step

        def step(x):
            device.copy(work, x)
            for k in range(6):
                add(work, weights)
            return work

        def between(i):
            global weights
            if {when}:
                {change}
        """
OWN = """
        def build_graphed(shape):
            return Graphed()

        class Graphed:
            def __init__(self):
                self.static, stream = array(), device.create_stream()
                with device.use_stream(stream):
                    device.begin_capture(stream)
                    self.outputs = step(self.static)
                    self.executable = device.end_capture(stream).instantiate()

            def __call__(self, x):
                device.copy(self.static, x)
                self.executable.launch(device.current_stream())
                return self.outputs
        """


@pytest.mark.parametrize("own", ["", OWN], ids=["capture", "own"])
@pytest.mark.parametrize("when", ["i == 20", "i % 50 == 49"])
def test_weights_that_are_replaced_late_are_refused(tmp_path: Path, when: str, own: str) -> None:
    tried = try_workload(tmp_path, WEIGHTS.format(when=when, change="weights = array(2)") + own)
    freed = [] if own else [(Phase.TRAJECTORY, Reason.LIFETIME)]  # what an own path reads is not known
    assert found(tried) == [(Phase.TIMING, Reason.UNSTABLE_ADDRESS), *freed]
    finding = next(each for each in tried.shape.findings if each.code is Reason.UNSTABLE_ADDRESS)
    assert finding.where == tried.place("def between(i):")
    assert not tried.shape.completed
    second = tried.rungs[-1]
    assert (second.number, second.status) == (2, GateStatus.FAIL)
    assert "after between(0) to between(" in second.reason


@pytest.mark.parametrize("own", ["", OWN], ids=["capture", "own"])
def test_weights_that_are_reloaded_in_place_hold(tmp_path: Path, own: str) -> None:
    change = "device.copy(weights, array(2 + i % 7))"
    tried = try_workload(tmp_path, WEIGHTS.format(when="i > 10", change=change) + own)
    assert found(tried) == []
    assert tried.shape.completed
    assert [rung.status for rung in tried.rungs] == [GateStatus.PASS] * 2


def test_a_between_that_fails_late_is_the_workloads_fault_in_one_line(tmp_path: Path) -> None:
    change = "raise ValueError('no such file')"
    tried = try_workload(tmp_path, WEIGHTS.format(when="i == 100", change=change))
    assert isinstance(tried.error, WorkloadError)
    line = line_of(tried.path, "no such file")
    assert str(tried.error) == f"model.py:{line}: between(100) raised ValueError: no such file"
    assert found(tried) == [(Phase.TIMING, Reason.WORKLOAD)]
