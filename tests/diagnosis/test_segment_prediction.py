"""The predicted replay of a segment: critical path, node gaps, one launch."""

from __future__ import annotations

from collections.abc import Callable

from made_segments import Program, only

from cudagraph_gate.diagnosis.prediction import (
    GRAPH_LAUNCH_NS,
    NODE_GAP_HIGH_NS,
    NODE_GAP_LOW_NS,
    NODE_GAP_NS,
)
from cudagraph_gate.model import ReplayPrediction


def predicted(grow: Callable[[Program], object]) -> ReplayPrediction:
    program = Program()
    for _ in range(4):
        grow(program)
        program.sync()
    prediction = only(program.timeline()).prediction
    assert isinstance(prediction, ReplayPrediction)
    return prediction


def test_one_stream_is_its_operations_node_gaps_and_one_launch() -> None:
    found = predicted(lambda program: program.run("ABC"))
    assert (found.nodes, found.critical_path_ns) == (3, 90)
    assert found.replay_ns == 90 + 3 * NODE_GAP_NS + GRAPH_LAUNCH_NS
    assert found.replay_low_ns == 90 + 3 * NODE_GAP_LOW_NS + GRAPH_LAUNCH_NS
    assert found.replay_high_ns == 90 + 3 * NODE_GAP_HIGH_NS + GRAPH_LAUNCH_NS


def test_streams_that_wait_for_events_follow_them() -> None:
    def grow(program: Program) -> None:
        # B and C wait for A, D waits for C: A C D is the longest chain, and E runs beside it.
        program.run("A").call("cuEventRecord", stream=7, event=3)
        program.call("cuStreamWaitEvent", stream=8, event=3).run("B", stream=8).run("CC")
        program.call("cuEventRecord", stream=7, event=4)
        program.call("cuStreamWaitEvent", stream=8, event=4).run("D", stream=8).run("E", stream=9)

    found = predicted(grow)
    assert found.critical_path_ns == 30 + 60 + 30
    assert found.replay_high_ns == 120 + 6 * NODE_GAP_HIGH_NS + GRAPH_LAUNCH_NS
    assert "recorded events" in " ".join(found.assumptions)


def test_streams_without_known_events_give_an_interval() -> None:
    def grow(program: Program) -> None:
        program.run("AB").wait(-80).run("C", stream=8).wait(80)

    found = predicted(grow)
    # B runs from 150 to 180, C from 170 to 200 after the first launch.
    assert found.critical_path_ns == 30 + 50
    assert found.replay_low_ns == 60 + 3 * NODE_GAP_LOW_NS + GRAPH_LAUNCH_NS
    assert found.replay_high_ns == 90 + 3 * NODE_GAP_HIGH_NS + GRAPH_LAUNCH_NS


def test_units_back_to_back_may_share_one_launch() -> None:
    prediction = only(Program().run("ABC" * 20).timeline()).prediction
    assert isinstance(prediction, ReplayPrediction)
    assert prediction.replay_low_ns == 90 + 3 * NODE_GAP_LOW_NS
    # Of each 300 ns 90 are busy, and the pause before the next unit can be saved too.
    assert prediction.upper_bound_ns == 210


def test_the_path_is_that_of_the_median_repeat() -> None:
    program = Program()
    for length in (10, 30, 500, 20, 40):
        program.run("A").operations[-1]["end_ns"] += length
        program.wait(1000).run("B").sync()
    prediction = only(program.timeline()).prediction
    assert isinstance(prediction, ReplayPrediction)
    assert prediction.critical_path_ns == 30 + 30 + 30
