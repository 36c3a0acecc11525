"""Rung 5 on the simulated device: threads with instances of their own, against the same threads without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from rung_workloads import COUNTER, DEVICE_BOUND, MODULE_BUFFER, Rung, rung, sample_rung

from cudagraph_gate.device.simulated import Fault, SimulatedDevice
from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.gates import Policy
from cudagraph_gate.gates.concurrency import concurrency_check, measured_concurrency, view_concurrency
from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.pilot.concurrency import (
    BLOCKS_PER_PATH,
    CHECKED_REQUESTS,
    PATHS,
    THREADS,
    blocks,
    try_concurrency,
)
from cudagraph_gate.pilot.instance_set import prepare
from cudagraph_gate.records import ConcurrentRun, Finding, Phase, PhaseStarted

LAUNCH_NS, KERNELS = 5_000, 12


def tried(folder: Path, text: str = "") -> Rung:
    found = rung(folder, "concurrency", text)
    try_concurrency(found.loaded, found.log, found.job)
    return found


def judged(found: Rung) -> tuple[GateStatus, Reason | None]:
    check = concurrency_check(view_concurrency(found.records(), "default"), "default", Policy())
    return check.status, check.code


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Rung:
    """The launch-bound chain, tried once."""
    return tried(tmp_path_factory.mktemp("chain"))


# --- a chain that holds -----------------------------------------------------------------------------


def test_blocks_of_both_paths_alternate_and_all_threads_serve_the_same_number(chain: Rung) -> None:
    runs = chain.of(ConcurrentRun)
    assert [run.order for run in runs] == list(range(2 * BLOCKS_PER_PATH))
    pairs = [{runs[at].path, runs[at + 1].path} for at in range(0, len(runs), 2)]
    assert pairs == [{"normal", "graph"}] * BLOCKS_PER_PATH
    assert all(run.threads == THREADS and len(run.latencies_ns) % THREADS == 0 for run in runs)
    assert all((run.wrong, run.failure) == (0, "") for run in runs)
    assert [record.phase for record in chain.of(PhaseStarted)] == [Phase.CONCURRENCY]
    assert chain.of(Finding) == []


def test_threads_overlap_on_the_virtual_clock(chain: Rung) -> None:
    for run in chain.of(ConcurrentRun):
        each = sum(run.latencies_ns) / THREADS
        # One thread's requests fill the block: no thread waits for another's to end.
        assert each <= run.elapsed_ns <= 1.1 * each


def test_a_request_takes_as_long_as_its_calls(chain: Rung) -> None:
    for run in chain.of(ConcurrentRun):
        median = sorted(run.latencies_ns)[len(run.latencies_ns) // 2]
        if run.path == "normal":
            assert KERNELS * LAUNCH_NS < median < 1.2 * KERNELS * LAUNCH_NS
        else:
            # A copy and a graph launch, then 12 kernels of 1 us with gaps of 0.3 us.
            assert 15_000 < median < 30_000


def test_the_cpu_time_of_all_threads_counts(chain: Rung) -> None:
    run = next(run for run in chain.of(ConcurrentRun) if run.path == "normal")
    assert isinstance(run.process_cpu_ns, int)
    # Launches and the synchronisation, not the wait for the device.
    per_request = run.process_cpu_ns / len(run.latencies_ns)
    assert per_request == pytest.approx(KERNELS * LAUNCH_NS + 1_500, rel=0.03)


def test_the_gain_of_a_launch_bound_chain_is_still_there(chain: Rung) -> None:
    assert judged(chain) == (GateStatus.PASS, None)
    measured = measured_concurrency(view_concurrency(chain.records(), "default"))
    assert measured["throughput_ratio"] > 2
    assert measured["threads"] == THREADS


# --- what does not hold -----------------------------------------------------------------------------


def test_work_that_the_device_bounds_has_no_gain(tmp_path: Path) -> None:
    assert judged(tried(tmp_path, DEVICE_BOUND)) == (GateStatus.FAIL, Reason.NO_GAIN)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (MODULE_BUFFER, Reason.REPLAY_RACE, "lies in the same memory"),
        (COUNTER, Reason.STATE_MUTATION, "one request at a time: requests change state total"),
    ],
)
def test_instances_that_disturb_each_other_are_not_used_by_threads(
    tmp_path: Path, text: str, code: Reason, words: str
) -> None:
    found = tried(tmp_path, text)
    finding = found.finding()
    assert (finding.code, finding.phase, finding.blocks) == (code, Phase.CONCURRENCY, True)
    assert words in finding.message
    assert found.of(ConcurrentRun) == []


def test_a_normal_path_that_threads_can_not_share_is_no_fault_of_the_graph(tmp_path: Path) -> None:
    text = """
    DECOY = array(7e6)

    def step(x):
        if threading.current_thread() is not threading.main_thread():
            x = DECOY  # what only threads get: not the array that the request was about
        for k in range(KERNELS):
            advance(x, k)
        return x
    """
    found = tried(tmp_path, text)
    wrong = {path: sum(run.wrong for run in found.of(ConcurrentRun) if run.path == path) for path in PATHS}
    assert wrong["graph"] == 0
    assert wrong["normal"] == BLOCKS_PER_PATH * THREADS * CHECKED_REQUESTS
    assert judged(found) == (GateStatus.FAIL, Reason.REPLAY_RACE)  # serial use, whichever path


def test_graphs_that_write_into_the_same_memory_are_wrong(tmp_path: Path) -> None:
    found = rung(tmp_path, "concurrency")
    made = prepare(found.loaded, found.job, found.log.announce)
    one = made.instances[0].graph
    shared = replace(made, instances=tuple(replace(each, graph=one) for each in made.instances))
    run = next(run for path, run, _error in blocks(shared, seed=1) if path == "graph")
    # All wait for each other before they read, so that only the request that came last is right.
    assert run.wrong == (THREADS - 1) * CHECKED_REQUESTS


# --- failures of threads ----------------------------------------------------------------------------

BROKEN_IN_THREADS = """
def step(x):
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("no context in this thread")
    advance(x)
    return x
"""


def test_an_exception_of_a_thread_ends_the_block_and_is_kept(tmp_path: Path) -> None:
    found = tried(tmp_path, BROKEN_IN_THREADS)
    *_graph, run = found.of(ConcurrentRun)
    assert (run.path, run.failure) == ("normal", "RuntimeError: no context in this thread")
    assert (run.latencies_ns, run.elapsed_ns, run.wrong) == ((), 0, 0)
    finding = found.finding()
    assert (finding.blocks, finding.phase) == (False, Phase.CONCURRENCY)
    assert finding.where.startswith("model.py:")
    assert judged(found) == (GateStatus.FAIL, Reason.REPLAY_RACE)


def test_a_workload_that_fails_is_a_finding_and_raised(tmp_path: Path) -> None:
    found = rung(tmp_path, "concurrency", "def build(shape):\n    raise KeyError('weights')\n")
    with pytest.raises(WorkloadError, match="weights"):
        try_concurrency(found.loaded, found.log, found.job)
    assert found.finding().code is Reason.WORKLOAD


def test_a_lost_device_is_told_of_the_path_that_was_at_work(tmp_path: Path) -> None:
    found = rung(tmp_path, "concurrency")
    cast("SimulatedDevice", found.loaded.device).inject(Fault("launch_failed", after_launches=9_000))
    try_concurrency(found.loaded, found.log, found.job)
    run, finding = found.of(ConcurrentRun)[-1], found.finding()
    assert run.failure.startswith("StickyError: ")
    assert (finding.code, finding.blocks) == (Reason.CRASH, run.path == "graph")
    assert judged(found)[0] is GateStatus.FAIL


# --- a GPU ------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_threads_use_graphs_on_a_gpu(tmp_path: Path) -> None:
    found = sample_rung(tmp_path, "concurrency", "cuda")
    try_concurrency(found.loaded, found.log, found.job)
    runs = found.of(ConcurrentRun)
    assert len(runs) == 2 * BLOCKS_PER_PATH
    assert all((run.wrong, run.failure) == (0, "") for run in runs)
    assert all(isinstance(run.process_cpu_ns, int) and run.process_cpu_ns > 0 for run in runs)
    view = view_concurrency(found.records(), found.job.shape)
    assert measured_concurrency(view)["throughput_ratio"] > 1
