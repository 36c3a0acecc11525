"""Trials that hold: what a whole one leaves behind, and steps that must not be rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from pilot_workloads import Tried, noted, try_here, try_workload

from cudagraph_gate import pipeline
from cudagraph_gate.evidence import Run
from cudagraph_gate.gates import Policy
from cudagraph_gate.model import Counts, Decision, GateStatus, Reason
from cudagraph_gate.pilot.measure import BLOCKS_PER_PATH, PATHS
from cudagraph_gate.records import (
    RUNG_PHASES,
    Phase,
    PhaseStarted,
    RungEnded,
    TrialStarted,
    WorkerEnd,
)

NOT_HERE = {*RUNG_PHASES, Phase.WHOLE_REQUEST, Phase.SCENARIO}
"""Phases of other workers, and of workloads with a ``request``."""
ORDER = [phase for phase in Phase if phase not in NOT_HERE]
AFTER_THE_GRAPH = {Phase.TRAJECTORY, Phase.NORMAL_AGAIN, Phase.UPDATE_CURVE, Phase.KERNELS}
WITHOUT_COST = AFTER_THE_GRAPH | {Phase.EXPECTED, Phase.TIMING}
WITHOUT_MEMORY = AFTER_THE_GRAPH | {Phase.BUILD}
OVERWRITTEN = [(Phase.TRAJECTORY, Reason.LIFETIME)]
"""Worth knowing of a step whose outputs are new arrays at each call: a replay overwrites them."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    """The base workload's trial."""
    return try_workload(tmp_path_factory.mktemp("whole"))


def held(tried: Tried, notes: Sequence[tuple[Phase, Reason]] = ()) -> bool:
    """Whether all phases were run, nothing spoke against the graph, and just ``notes`` is worth knowing."""
    equal = all(comparison.equal for comparison in tried.shape.comparisons)
    against = [finding for finding in tried.shape.findings if finding.blocks]
    ran = tried.error is None and tried.shape.completed
    return ran and equal and not against and noted(tried) == list(notes)


# --- a whole trial --------------------------------------------------------------------------------


def test_the_log_starts_with_what_is_tried_and_ends_with_the_rungs_that_were_climbed(whole: Tried) -> None:
    first, *_, last, one, two = whole.run.records()
    assert isinstance(first, TrialStarted)
    assert (first.workload, first.shapes, first.simulated) == (str(whole.path), ("default",), True)
    assert isinstance(last, WorkerEnd)
    assert last == WorkerEnd(stage="pilot", outcome="finished", exit_code=0, elapsed=last.elapsed)
    assert [type(rung) for rung in (one, two)] == [RungEnded, RungEnded]
    assert [(rung.number, rung.status) for rung in whole.rungs] == [
        (1, GateStatus.PASS),
        (2, GateStatus.PASS),
    ]
    assert held(whole)


def test_every_phase_is_run_once_in_order(whole: Tried) -> None:
    assert [record.phase for record in whole.shape.of(PhaseStarted)] == ORDER


def test_every_phase_has_its_cost_and_its_memory(whole: Tried) -> None:
    costs = whole.shape.costs
    assert set(costs) == set(ORDER) - WITHOUT_COST
    assert all(isinstance(cost, int) and cost > 0 for cost in costs.values())
    assert {point.phase for point in whole.shape.memory} == set(ORDER) - WITHOUT_MEMORY


def test_memory_that_the_executable_takes_is_given_back_when_it_is_destroyed(whole: Tried) -> None:
    free = {point.phase: point.device_free_bytes for point in whole.shape.memory}
    nodes = 5
    taken = free[Phase.CAPTURE] - free[Phase.INSTANTIATE]
    assert nodes * 4_700 <= taken <= nodes * 4_700 + 256
    assert free[Phase.DESTROY] >= free[Phase.CAPTURE]


def test_the_graph_holds_the_kernels_that_the_normal_path_runs(whole: Tried) -> None:
    nodes = whole.shape.nodes
    assert nodes is not None
    assert (nodes.nodes, nodes.kinds, nodes.kernels) == (5, {"memcpy": 1, "kernel": 4}, {"add": 4})
    assert nodes.normal_kernels == Counts(by_name={"add": 4})


def test_five_requests_and_two_of_extreme_seeds_are_compared_bit_by_bit(whole: Tried) -> None:
    for subject in ("normal_repeat", "outputs"):
        found = whole.compared(subject)
        assert [comparison.request for comparison in found] == [0, 1, 2, 3, 4, 5, 6]
        assert all(comparison.exact and comparison.max_abs_error == 0 for comparison in found)
    assert [comparison.exact for comparison in whole.compared("normal_again")] == [True]
    assert whole.compared("state") == ()


def test_blocks_of_all_paths_alternate_and_each_has_its_requests(whole: Tried) -> None:
    blocks = [block for path in PATHS for block in whole.shape.blocks(path)]
    assert Counter(block.path for block in blocks) == dict.fromkeys(PATHS, BLOCKS_PER_PATH)
    assert sorted(block.order for block in blocks) == list(range(4 * BLOCKS_PER_PATH))
    assert all(5 <= len(block.latencies_ns) <= 50 and block.cpu_ns > 0 for block in blocks)


def test_a_rehearsal_is_never_a_go_though_its_gates_pass(rehearsed: Run) -> None:
    verdict = rehearsed.verdict()
    assert verdict is not None
    assert msgspec.json.encode(pipeline.verdict(rehearsed, Policy())) == msgspec.json.encode(verdict)
    status = {gate.number: gate.status for gate in verdict.gates}
    assert verdict.verdict is Decision.INCONCLUSIVE
    assert {number for number in status if status[number] is GateStatus.PASS} == {1, 2, 3, 4, 6}
    assert rehearsed.timeline_path.exists()


# --- what must not be rejected ----------------------------------------------------------------------


def test_warm_up_and_capture_do_not_leave_their_mark_on_the_state(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        def build(shape):
            global work, total, weights, version
            work, total, weights, version = array(), array(), array(2), [0]
            return step

        def step(x):
            add(total, x)
            device.copy(work, total)
            add(work, weights)
            return work, total, None, N

        def state():
            return {"total": total, "weights": weights}

        def between(i):
            device.copy(weights, array(3 + i))  # a reload in place
        """,
    )
    assert held(tried)
    assert [comparison.exact for comparison in tried.compared("state")] == [True] * 8  # and at the end


def test_inputs_that_the_step_changes_in_place_are_fresh_in_every_run(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        def step(x):
            add(x, 1)
            add(x, x)
            return x

        def inputs(shape, seed):
            return array(seed % 7)
        """,
    )
    assert held(tried, OVERWRITTEN)
    assert all(comparison.exact for comparison in tried.shape.comparisons)


def test_an_input_that_is_baked_in_keeps_its_value_on_both_paths(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        UPDATABLE = ["x"]

        def step(x, scale):
            device.copy(work, x)
            add(work, scale)
            return {"y": work}

        def inputs(shape, seed):
            return [array(seed), array(-seed)]

        def check(expected, actual):
            assert np.array_equal(expected["y"].to_host(), actual["y"].to_host())
        """,
    )
    assert held(tried, [(Phase.TRAJECTORY, Reason.FROZEN_HOST_STATE)])


def test_noise_of_the_device_is_tolerated_and_not_taken_for_frozen_host_state(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        def _noisy(shape, x, y, n):
            x[:n] += y + noise.uniform(0, 1e-5, n)

        noise = np.random.default_rng(1)
        NOISY = Kernel("noisy", "", _noisy, 2_000)

        def step(x):
            device.copy(work, x)
            add(work, 1, kernel=NOISY)
            return work
        """,
    )
    assert held(tried)
    assert not any(comparison.exact for comparison in tried.compared("outputs"))
    assert all(0 < comparison.tolerance < 1e-4 for comparison in tried.compared("outputs"))


def test_a_check_of_the_workload_may_accept_what_differs(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        def step(x):
            device.copy(work, x)
            if device.current_stream().is_capturing:
                add(work, 1e-3)
            return {"y": work}

        def check(expected, actual):
            return np.allclose(expected["y"].to_host(), actual["y"].to_host(), atol=1e-2)
        """,
    )
    assert held(tried)
    assert not any(comparison.exact for comparison in tried.compared("outputs"))


def test_a_step_without_inputs_has_nothing_to_copy_in(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
        def step():
            device.fill(work, 0)
            add(work, 1)
            return [work]

        def inputs(shape, seed):
            return ()
        """,
    )
    assert held(tried)
    assert tried.compared("outputs")[0].exact
