"""Whole requests by both paths: their results compared, their times, and the step's share of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opened_sessions import SEED, Opened, opened, opened_sample

from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.graph_path import GraphPath, ready_graph
from cudagraph_gate.pilot.whole_request import requests_of_block, time_whole_requests
from cudagraph_gate.records import Finding, Phase, PhaseStarted, StepShare, WholeRequests

MS = 1_000_000
LOOK_UP = """
def request(step, shape, seed):
    device.wait_until(device.clock_ns() + 10_000_000)
    step(*inputs(shape, seed))
    return step(*inputs(shape, seed + 1)).to_host()
"""
"""10 ms of something else, then two calls of the step."""
TWO_BUFFERS = """
buffers = [array(), array()]

def step(x):
    buffers.reverse()
    device.copy(buffers[0], x)
    add(buffers[0], 1)
    return buffers[0]

def request(step, shape, seed):
    first, second = step(*inputs(shape, seed)), step(*inputs(shape, seed + 1))
    return {"first": first.to_host(), "second": second.to_host()}
"""
"""An output of the normal path outlives the next call; one of a graph does not."""


def measured(tried: Opened, *, exact: bool = True, path: GraphPath | None = None) -> Opened:
    """The whole requests of a session, by its graph or another path, in its log."""
    session = tried.session
    sets = session.input_sets(SEED)
    start = correctness.expect(session, sets).start
    time_whole_requests(session, path or ready_graph(session, sets[0]), start, tried.log, SEED, exact=exact)
    return tried


def finding(tried: Opened) -> Finding:
    """The only one."""
    (only,) = tried.of(Finding)
    return only


# --- times ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def looked_up(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return measured(opened(tmp_path_factory.mktemp("looked_up"), LOOK_UP))


def test_both_paths_are_timed_from_end_to_end_in_twenty_blocks_each(looked_up: Opened) -> None:
    blocks = looked_up.of(WholeRequests)
    assert [block.order for block in blocks] == list(range(40))
    for path in ("normal", "graph"):
        halves = [block.half for block in blocks if block.path == path]
        assert (halves.count("a"), halves.count("b")) == (10, 10)
    assert all(10 * MS < latency < 11 * MS for block in blocks for latency in block.latencies_ns)
    assert looked_up.of(Finding) == []
    assert [started.phase for started in looked_up.of(PhaseStarted)] == [Phase.WHOLE_REQUEST]


def test_the_graph_is_used_in_the_graph_requests_alone(looked_up: Opened) -> None:
    blocks = looked_up.of(WholeRequests)
    assert all(block.step_calls == 2 * len(block.latencies_ns) for block in blocks)
    assert not any(block.refused_calls for block in blocks)
    fastest = {
        path: min(min(b.latencies_ns) for b in blocks if b.path == path) for path in ("normal", "graph")
    }
    assert fastest["graph"] < fastest["normal"]


def test_the_share_of_the_step_leaves_out_what_is_around_it(looked_up: Opened) -> None:
    (share,) = looked_up.of(StepShare)
    assert (share.requests, share.step_calls) == (10, 20)
    assert 100 * MS <= share.request_ns - share.step_ns < 103 * MS
    assert 0 < share.step_ns < 10 * MS


def test_what_the_application_does_between_requests_is_done_outside_their_time(tmp_path: Path) -> None:
    text = (
        LOOK_UP
        + """
calls = []

def between(i):
    device.wait_until(device.clock_ns() + 50_000_000)
    calls.append(i)
"""
    )
    tried = measured(opened(tmp_path, text))
    latencies = [latency for block in tried.of(WholeRequests) for latency in block.latencies_ns]
    assert max(latencies) < 11 * MS
    assert len(tried.session.workload.module.calls) >= len(latencies)


def test_without_a_request_nothing_is_done(tmp_path: Path) -> None:
    assert measured(opened(tmp_path)).run.records() == ()


@pytest.mark.parametrize(
    ("median_ns", "wall_ns", "simulated", "count"),
    [
        (100_000, 0, False, 50),  # at most 50
        (2 * MS, 0, False, 25),  # 50 ms
        (100 * MS, 0, False, 5),  # at least 5, for a P99 of 20 blocks
        (400 * MS, 0, False, 1),  # 30 s / 40 blocks = 750 ms each
        (60_000 * MS, 0, False, 1),
        (60_000 * MS, MS, True, 10),  # virtual time is free: 10 ms of wall time
    ],
)
def test_a_block_fills_its_time_within_limits(
    median_ns: int, wall_ns: int, simulated: bool, count: int
) -> None:
    assert requests_of_block(median_ns, wall_ns, simulated=simulated) == count


# --- results --------------------------------------------------------------------------------------


def test_an_output_that_request_keeps_too_long_is_wrong_with_the_graph(tmp_path: Path) -> None:
    tried = measured(opened(tmp_path, TWO_BUFFERS))
    found = finding(tried)
    assert (found.code, found.phase, found.blocks) == (Reason.WRONG_OUTPUT, Phase.WHOLE_REQUEST, True)
    assert (
        found.message == "with the graph path request 0 gives another output first than with the normal step"
    )
    assert found.where == tried.place("def request")
    assert tried.of(WholeRequests) == []


def test_another_result_is_undecided_where_outputs_agree_within_a_tolerance_only(tmp_path: Path) -> None:
    found = finding(measured(opened(tmp_path, TWO_BUFFERS), exact=False))
    assert (found.code, found.blocks) == (Reason.UNMEASURABLE, True)


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        ("None", "request returned nothing: the results of both paths were not compared"),
        (
            '{"took": time.perf_counter_ns(), "id": object(), "sum": 1.0}',
            "not compared, as the normal path itself does not repeat it: output id, output took",
        ),
    ],
)
def test_results_that_show_nothing_are_noted_and_the_requests_timed(
    tmp_path: Path, returned: str, why: str
) -> None:
    text = f"def request(step, shape, seed):\n    step(*inputs(shape, seed))\n    return {returned}\n"
    tried = measured(opened(tmp_path, text))
    found = finding(tried)
    assert (found.message, found.blocks) == (why, False)
    assert len(tried.of(WholeRequests)) == 40


def test_a_wrong_result_beside_one_that_does_not_repeat_is_found(tmp_path: Path) -> None:
    text = TWO_BUFFERS.replace('{"first"', '{"took": time.perf_counter_ns(), "first"')
    found = measured(opened(tmp_path, text)).of(Finding)
    assert [(each.code, each.blocks) for each in found] == [
        (Reason.UNMEASURABLE, False),
        (Reason.WRONG_OUTPUT, True),
    ]


def test_both_paths_start_from_the_same_state(tmp_path: Path) -> None:
    text = """
        total = array()

        def step(x):
            add(total, x)
            return total

        def state():
            return {"total": total}

        def request(step, shape, seed):
            return float(step(*inputs(shape, seed)).to_host().sum())
        """
    tried = measured(opened(tmp_path, text))
    assert tried.of(Finding) == []
    assert len(tried.of(WholeRequests)) == 40


# --- what request does with the step --------------------------------------------------------------


def test_inputs_that_the_graph_refuses_are_counted_and_served_normally(tmp_path: Path) -> None:
    text = """
        def step(x):
            add(work, 1)
            return work

        def request(step, shape, seed):
            step(*inputs(shape, seed))
            step(array(n=32))
        """
    blocks = measured(opened(tmp_path, text)).of(WholeRequests)
    by_graph = [block for block in blocks if block.path == "graph"]
    assert all(2 * block.refused_calls == block.step_calls for block in by_graph)
    assert "(32,)" in by_graph[0].refusal
    assert not any(block.refused_calls for block in blocks if block.path == "normal")


def test_a_request_that_fails_with_the_normal_step_is_the_workloads_error(tmp_path: Path) -> None:
    tried = opened(tmp_path, "def request(step, shape, seed):\n    return {}['user']\n")
    with pytest.raises(WorkloadError) as caught:
        measured(tried)
    assert (
        str(caught.value) == f"{tried.place('return {}')}: request of shape default raised KeyError: 'user'"
    )


def test_a_request_that_does_not_call_the_step_is_refused(tmp_path: Path) -> None:
    tried = opened(tmp_path, "def request(step, shape, seed):\n    return 1\n")
    with pytest.raises(WorkloadError, match="did not call the step") as caught:
        measured(tried)
    assert caught.value.where == tried.place("def request")


class Broken:
    """A graph path that can't serve."""

    def replay(self, inputs: Sequence[Any]) -> Any:
        """Fails."""
        raise RuntimeError(f"lost the graph of {len(inputs)} inputs")

    def invalidate(self) -> None:
        """Nothing to give up."""


def test_what_the_graph_path_raises_is_a_finding(tmp_path: Path) -> None:
    tried = measured(opened(tmp_path, LOOK_UP), path=Broken())
    found = finding(tried)
    assert (found.phase, found.message, found.blocks) == (
        Phase.WHOLE_REQUEST,
        "RuntimeError: lost the graph of 1 inputs",
        True,
    )
    assert found.where == tried.place("    step(*inputs(shape, seed))")
    assert tried.of(WholeRequests) == []


# --- on a GPU -------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_a_look_up_dwarfs_the_step_on_a_gpu(tmp_path: Path) -> None:
    tried = measured(opened_sample("whole_request_chain", tmp_path, "cuda"))
    assert tried.of(Finding) == []
    blocks = tried.of(WholeRequests)
    assert len(blocks) == 40
    assert all(latency > 20 * MS for block in blocks for latency in block.latencies_ns)
    assert not any(block.refused_calls for block in blocks)
    (share,) = tried.of(StepShare)
    assert 0 < share.step_ns < 0.2 * share.request_ns
