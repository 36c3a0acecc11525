"""Rung 4 on the simulated device: which instances leave each other alone, and what a round of them takes."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from rung_workloads import COUNTER, DEVICE_BOUND, MODULE_BUFFER, OWN_BUFFER, Rung, rung, sample_rung

from cudagraph_gate.device import DeviceChoice
from cudagraph_gate.device.simulated import Fault, SimulatedDevice
from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.gates import Policy
from cudagraph_gate.gates.check import Check
from cudagraph_gate.gates.instances import instances_check, view_instances
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.pilot.instance_set import INSTANCES, TURNS, Arrangement, prepare
from cudagraph_gate.pilot.instances import ROUND_BLOCKS, block_medians_ns, median_ns, try_instances
from cudagraph_gate.records import Finding, InstanceRun, Phase, PhaseStarted

REQUESTS = TURNS * 5


def tried(folder: Path, text: str = "") -> tuple[Rung, InstanceRun]:
    found = rung(folder, "instances", text)
    try_instances(found.loaded, found.log, found.job)
    (run,) = found.of(InstanceRun)
    return found, run


def judged(found: Rung) -> Check:
    return instances_check(view_instances(found.records(), "default"), "default", Policy())


def status(found: Rung) -> GateStatus:
    return judged(found).status


# --- what is shared -------------------------------------------------------------------------------


def test_a_launch_bound_chain_with_a_buffer_for_each_graph_holds(tmp_path: Path) -> None:
    found, run = tried(tmp_path)
    assert (run.count, run.requests, run.wrong, run.detail) == (INSTANCES, REQUESTS, 0, "")
    assert isinstance(run.normal_ns, int)
    assert isinstance(run.graph_ns, int)
    # 4 requests of 12 launch calls of 5 us each, against 4 copies and 4 graph launches.
    assert 240_000 < run.normal_ns < 300_000
    assert run.graph_ns < run.normal_ns / 4
    assert found.of(Finding) == []
    assert [record.phase for record in found.of(PhaseStarted)] == [Phase.INSTANCES]
    assert status(found) is GateStatus.PASS


def test_an_instance_takes_its_static_input_and_its_executable(tmp_path: Path) -> None:
    _found, run = tried(tmp_path)
    nodes, input_bytes = 12, 256
    assert run.bytes_per_instance == nodes * 4_700 + input_bytes


def test_all_memory_but_the_sessions_is_given_back(tmp_path: Path) -> None:
    found = rung(tmp_path, "instances")
    try_instances(found.loaded, found.log, found.job)
    memory = found.loaded.device.memory_info()
    assert memory.total_bytes - memory.free_bytes < 4_700  # less than one node


def test_instances_of_a_step_with_a_buffer_of_its_own_are_built_one_by_one(tmp_path: Path) -> None:
    found, run = tried(tmp_path, OWN_BUFFER)
    assert (run.requests, run.wrong) == (REQUESTS, 0)
    finding = found.finding()
    assert (finding.code, finding.blocks) == (Reason.REPLAY_RACE, False)
    assert "output output of instances 0 and 1 lies in the same memory" in finding.message
    assert status(found) is GateStatus.PASS


def test_a_buffer_that_all_builds_share_gives_wrong_outputs(tmp_path: Path) -> None:
    found, run = tried(tmp_path, MODULE_BUFFER)
    # Only what was submitted last is right: of 40 watched requests, each instance's place moves on by one.
    assert run.wrong == 30
    assert run.detail.startswith("instance 0, request ")
    assert "lies in the same memory" in run.detail
    untimed = NotMeasured(reason="wrong outputs are not worth timing")
    assert (run.normal_ns, run.graph_blocks_ns) == (untimed, untimed)
    assert "a build for each instance does not help" in found.finding().message
    check = judged(found)
    assert (check.status, check.code) == (GateStatus.FAIL, Reason.REPLAY_RACE)


def test_instances_that_share_changing_state_are_used_in_turns(tmp_path: Path) -> None:
    found, run = tried(tmp_path, COUNTER)
    assert (run.requests, run.wrong) == (REQUESTS, 0)
    finding = found.finding()
    assert (finding.code, finding.blocks) == (Reason.STATE_MUTATION, False)
    assert finding.message.startswith("requests change state total")
    assert status(found) is GateStatus.PASS


def test_the_order_of_requests_differs_from_instance_to_instance(tmp_path: Path) -> None:
    found = rung(tmp_path, "instances")
    made = prepare(found.loaded, found.job, found.log.announce)
    assert made.arrangement is Arrangement.SHARED
    firsts = [instance.expected.start.requests[0][0].pointer for instance in made.instances]
    assert len(set(firsts)) == INSTANCES
    static = [instance.graph.outputs.pointer for instance in made.instances]
    assert len(set(static)) == INSTANCES


# --- the gain ---------------------------------------------------------------------------------------


def test_work_that_the_device_bounds_has_no_gain(tmp_path: Path) -> None:
    found, _run = tried(tmp_path, DEVICE_BOUND)
    check = judged(found)
    assert (check.status, check.code) == (GateStatus.FAIL, Reason.NO_GAIN)


def test_each_block_of_rounds_is_logged_by_its_median(tmp_path: Path) -> None:
    _found, run = tried(tmp_path)
    for blocks, median in ((run.normal_blocks_ns, run.normal_ns), (run.graph_blocks_ns, run.graph_ns)):
        assert isinstance(blocks, tuple)
        assert isinstance(median, int)
        assert len(blocks) == ROUND_BLOCKS
        assert min(blocks) <= median <= max(blocks)


def test_a_block_counts_as_its_median_however_many_rounds_it_holds() -> None:
    blocks = [(1, 2, 9), (4,), (5, 6)]
    assert block_medians_ns(blocks) == (2, 4, 6)  # 5.5 rounded to even
    assert median_ns(blocks) == 4  # of 1, 2, 4, 5, 6, 9, to whole ns


def test_rounds_that_were_not_timed_say_why() -> None:
    why = NotMeasured(reason="wrong outputs are not worth timing")
    assert (median_ns(why), block_medians_ns(why)) == (why, why)


# --- failures ---------------------------------------------------------------------------------------


def test_a_step_that_can_not_be_captured_is_a_finding(tmp_path: Path) -> None:
    text = """
    def step(x):
        advance(x)
        device.synchronize()
        return x
    """
    found = rung(tmp_path, "instances", text)
    try_instances(found.loaded, found.log, found.job)
    finding = found.finding()
    assert (finding.phase, finding.blocks) == (Phase.INSTANCES, True)
    assert finding.call == "cuCtxSynchronize"
    assert finding.where.startswith("model.py:")
    assert found.of(InstanceRun) == []


def test_memory_that_runs_out_is_a_finding(tmp_path: Path) -> None:
    found = rung(tmp_path, "instances")
    device = cast("SimulatedDevice", found.loaded.device)
    device.inject(Fault("out_of_memory", after_allocations=60))
    try_instances(found.loaded, found.log, found.job)
    assert found.finding().code is Reason.MEMORY


def test_a_workload_that_fails_is_a_finding_and_raised(tmp_path: Path) -> None:
    found = rung(tmp_path, "instances", "def build(shape):\n    raise KeyError('weights')\n")
    with pytest.raises(WorkloadError, match="weights"):
        try_instances(found.loaded, found.log, found.job)
    finding = found.finding()
    assert (finding.code, finding.phase) == (Reason.WORKLOAD, Phase.INSTANCES)
    assert finding.where.startswith("model.py:")


def test_a_second_build_that_fails_leaves_the_first_answer(tmp_path: Path) -> None:
    text = """
    built = []

    def build(shape):
        built.append(shape)
        if len(built) > 1:
            raise RuntimeError("one model only")
        work = array()

        def step(x):
            device.copy(work, x)
            return work

        return step
    """
    found, run = tried(tmp_path, text)
    assert run.wrong > 0
    assert "a build for each instance fails" in found.finding().message
    assert "one model only" in found.finding().message


# --- the sample workload ----------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_launch_bound_sample_holds_with_a_build_for_each_instance(
    tmp_path: Path, device: DeviceChoice
) -> None:
    found = sample_rung(tmp_path, "instances", device)
    try_instances(found.loaded, found.log, found.job)
    (run,) = found.of(InstanceRun)
    assert (run.count, run.wrong) == (INSTANCES, 0)
    assert not any(finding.blocks for finding in found.of(Finding))
    if device == "simulated":  # rounds on a shared machine can be too noisy for a figure
        assert isinstance(run.normal_ns, int)
        assert isinstance(run.graph_ns, int)
        assert run.graph_ns < run.normal_ns
