"""Clocks that were held down, or that differ between the paths, leave a gain undecided."""

from __future__ import annotations

import pytest
from evidence_builder import MS, shape_records, timed

from cudagraph_gate.gates import Policy
from cudagraph_gate.gates.check import Check
from cudagraph_gate.gates.clocks import CLOCK_SHARE, at_fair_clocks, view_clocks
from cudagraph_gate.gates.comparison import comparison_checks
from cudagraph_gate.gates.latency import compare_paths
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.records import GpuState, PathName

PASSES = Check(GateStatus.PASS, "gain 40.0 %")
FAILS = Check(GateStatus.FAIL, "gain 1.0 %", Reason.NO_GAIN)
UNSURE = Check(GateStatus.UNKNOWN, "gain 6.0 %", Reason.UNMEASURABLE)


def states(path: PathName, *throttled: str, mhz: int | NotMeasured = 1_980, count: int = 6) -> list[GpuState]:
    """States after ``count`` blocks, the first of them throttled for each of the given reasons."""
    reasons = [(name,) for name in throttled] + [()] * count
    return [
        GpuState(
            shape="b1",
            path=path,
            order=order,
            sm_clock_mhz=mhz,
            memory_clock_mhz=3_201,
            temperature_c=40,
            power_mw=300_000,
            throttled_by=reasons[order],
        )
        for order in range(count)
    ]


def trial(*found: list[GpuState]) -> ShapeTrial:
    return ShapeTrial("b1", tuple(state for each in found for state in each))


@pytest.mark.parametrize(
    "reason", ["sw_power_cap", "hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown"]
)
@pytest.mark.parametrize("answer", [PASSES, UNSURE])
def test_a_gain_while_some_blocks_were_throttled_is_undecided(reason: str, answer: Check) -> None:
    found = at_fair_clocks(trial(states("normal", reason, reason), states("graph", reason)), answer)
    assert (found.status, found.code) == (GateStatus.UNKNOWN, Reason.ENVIRONMENT)
    assert found.sentence == f"the GPU was throttled in 3 of 12 timed blocks ({reason}): {answer.sentence}"


def test_a_failure_stands_although_blocks_were_throttled() -> None:
    assert at_fair_clocks(trial(states("normal"), states("graph", "sw_power_cap")), FAILS) is FAILS


@pytest.mark.parametrize("reason", ["sync_boost", "display_clock_setting"])
def test_reasons_that_do_not_come_and_go_are_no_throttling(reason: str) -> None:
    assert at_fair_clocks(trial(states("normal"), states("graph", reason)), PASSES) is PASSES


def test_a_gpu_that_is_always_at_its_power_limit_is_compared_with_itself() -> None:
    capped = ("sw_power_cap",) * 6
    assert at_fair_clocks(trial(states("normal", *capped), states("graph", *capped)), PASSES) is PASSES


def test_throttling_of_blocks_that_are_not_compared_does_not_count() -> None:
    other = states("copy_in", "hw_slowdown")
    assert at_fair_clocks(trial(states("normal"), states("graph"), other), PASSES) is PASSES


@pytest.mark.parametrize("answer", [PASSES, FAILS])
@pytest.mark.parametrize("graph_mhz", [1_700, 2_100])
def test_clocks_that_differ_between_the_paths_leave_every_answer_undecided(
    answer: Check, graph_mhz: int
) -> None:
    found = at_fair_clocks(trial(states("normal"), states("graph", mhz=graph_mhz, count=5)), answer)
    assert (found.status, found.code) == (GateStatus.UNKNOWN, Reason.ENVIRONMENT)
    seen = f"the median SM clock is {graph_mhz} MHz in 5 graph blocks and 1980 MHz in 6 normal ones"
    assert found.sentence == f"{seen}: {answer.sentence}"


@pytest.mark.parametrize(("mhz", "fair"), [(1_941, True), (1_900, False)])
def test_clocks_may_differ_a_little(mhz: int, fair: bool) -> None:
    assert (1 - mhz / 1_980 < CLOCK_SHARE) is fair
    assert (at_fair_clocks(trial(states("normal"), states("graph", mhz=mhz)), PASSES) is PASSES) is fair


@pytest.mark.parametrize(
    "found", [trial(), trial(states("normal", mhz=NotMeasured(reason="no NVML"), count=1))]
)
def test_unknown_clocks_change_nothing(found: ShapeTrial) -> None:
    assert at_fair_clocks(found, PASSES) is PASSES


def test_the_states_are_told_in_numbers() -> None:
    found = view_clocks(
        trial(states("normal", "hw_slowdown", "sw_power_cap"), states("graph", "sw_power_cap", mhz=1_965))
    )
    assert found.as_dict() == {
        "sampled_blocks": 12,
        "throttled_blocks": 3,
        "throttled_by": ["sw_power_cap", "hw_slowdown"],
        "normal_sm_clock_mhz": 1_980,
        "graph_sm_clock_mhz": 1_965,
    }


def test_without_states_the_clocks_are_absent_with_the_reason() -> None:
    found = view_clocks(trial(states("normal", mhz=NotMeasured(reason="no NVML"), count=1)))
    assert found.normal_mhz == NotMeasured(reason="no NVML")
    absent = "the GPU's state after blocks of the graph path is not recorded"
    assert found.graph_mhz == NotMeasured(reason=absent)


def test_the_comparison_asks_for_fair_clocks() -> None:
    blocks = [*timed("normal", MS), *timed("graph", 600_000)]
    throttled = [*states("normal"), *states("graph", "hw_thermal_slowdown")]
    shape = ShapeTrial("b1", shape_records(blocks=blocks, more=throttled))
    found = [check for check in comparison_checks(shape, Policy(), compare_paths(shape)) if check.code]
    assert [check.code for check in found] == [Reason.ENVIRONMENT]
    assert "throttled in 1 of 12 timed blocks (hw_thermal_slowdown): P50 1.00 ms normal" in found[0].sentence
