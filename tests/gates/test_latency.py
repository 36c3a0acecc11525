"""Both paths' blocks in numbers: rungs 1 and 2, and blocks that are compared with their neighbours."""

from __future__ import annotations

import time

import pytest
from evidence_builder import MS, changed, shape_records, spread, timed

from cudagraph_gate.gates.latency import PathComparison, compare_paths, rung_gains
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.records import Block
from cudagraph_gate.stats import QuantileRatio

DRIFT = [1_000_000, 1_050_000, 1_100_000, 1_200_000, 1_300_000, 1_400_000]


def of(*blocks: Block, **change: object) -> ShapeTrial:
    return ShapeTrial("b1", shape_records(blocks=blocks, **change))


def drifting(path: str, share: float) -> list[Block]:
    """One block a level of the drift; a and b in turns."""
    return [
        changed(block, latencies_ns=spread(round(ns * share)), order=order)
        for order, (block, ns) in enumerate(zip(timed(path, MS), DRIFT, strict=True))
    ]


def compared(trial: ShapeTrial) -> PathComparison:
    paths = compare_paths(trial)
    assert isinstance(paths, PathComparison)
    return paths


# --- rungs ----------------------------------------------------------------------------------------


def test_the_bare_replay_is_rung_one_and_the_whole_request_rung_two():
    fixed, fresh = rung_gains(of(*timed("normal", MS), *timed("replay", 400_000), *timed("graph", 700_000)))
    assert isinstance(fixed, QuantileRatio)
    assert isinstance(fresh, QuantileRatio)
    assert (fixed.ratio, fresh.ratio) == (pytest.approx(0.4), pytest.approx(0.7))
    assert fixed.low <= fixed.ratio <= fixed.high


def test_without_bare_replays_rung_one_has_no_figure():
    fixed, fresh = rung_gains(of(*timed("normal", MS), *timed("graph", 700_000)))
    assert fixed == NotMeasured(reason="0 timed blocks of the replay path, 4 are needed")
    assert isinstance(fresh, QuantileRatio)


@pytest.mark.parametrize(("normal_blocks", "normal_ns"), [(3, MS), (6, 0)])
def test_without_a_normal_path_to_compare_with_no_rung_has_one(normal_blocks: int, normal_ns: int):
    blocks = [*timed("normal", normal_ns, blocks=normal_blocks), *timed("replay", MS), *timed("graph", MS)]
    assert all(isinstance(gain, NotMeasured) for gain in rung_gains(of(*blocks)))


# --- neighbours -----------------------------------------------------------------------------------


def test_a_drift_of_the_machine_does_not_blur_the_gain():
    paths = compared(of(*drifting("normal", 1), *drifting("graph", 0.8)))
    assert paths.p50.ratio.ratio == pytest.approx(0.8, abs=1e-4)
    assert paths.p50.ratio.high - paths.p50.ratio.low < 0.01


def test_blocks_are_neighbours_by_their_order_not_by_their_place_in_the_log():
    normal, graph = drifting("normal", 1), drifting("graph", 0.8)
    assert compared(of(*reversed(normal), *graph)) == compared(of(*normal, *graph))


def test_a_path_that_lacks_a_block_is_compared_all_the_same():
    paths = compared(of(*drifting("normal", 1), *drifting("graph", 0.8)[:-1]))
    assert paths.blocks == 5
    assert paths.p50.ratio.high - paths.p50.ratio.low > 0.05


# --- figures --------------------------------------------------------------------------------------


def test_throughput_is_of_the_requests_alone():
    paths = compared(of(*timed("normal", MS), *timed("graph", 250_000)))
    assert (paths.normal_per_s, paths.graph_per_s) == (pytest.approx(1_000), pytest.approx(4_000))


def test_process_time_that_one_block_lacks_is_not_measured():
    graph = [changed(block, process_cpu_ns=21) for block in timed("graph", MS)]
    unread = changed(graph[0], process_cpu_ns=NotMeasured(reason="no clock"))
    assert compared(of(*timed("normal", MS), *graph)).graph_process_cpu_ns == 1
    paths = compared(of(*timed("normal", MS), unread, *graph[1:]))
    assert paths.graph_process_cpu_ns == NotMeasured(reason="no clock")


def test_replay_and_copy_have_their_medians():
    paths = compared(
        of(*timed("normal", MS), *timed("graph", MS), *timed("replay", 7_000), *timed("copy_in", 3_000))
    )
    assert (paths.replay_ns, paths.copy_in_ns) == (7_000, 3_000)


def test_asking_again_costs_nothing():
    trial = of(*timed("normal", MS, blocks=20), *timed("graph", 700_000, blocks=20))
    first = compare_paths(trial)
    start = time.perf_counter()
    assert all(compare_paths(trial) == first for _ in range(20))
    assert time.perf_counter() - start < 1
