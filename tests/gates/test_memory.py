"""Growth over repetitions: what is a leak, what a plateau, and what can't be told."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.gates.memory import (
    DEVICE_STEP_BYTES,
    HOST_FLOOR_BYTES,
    HOST_STEP_BYTES,
    MIN_HALF_POINTS,
    Course,
    judge_series,
    kendall_tau,
    measured_memory,
    memory_checks,
    theil_sen,
    trend,
)
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.records import Finding, MemorySeries, Phase, PhaseStarted, Record, WorkerEnd

MIB = 1 << 20
BLOCK = DEVICE_STEP_BYTES
COUNTS = tuple(range(0, 2_001, 200))
"""Eleven points; the second half has six."""
BASE = 426 * MIB

lengths = st.integers(2 * MIN_HALF_POINTS, 40)
bases = st.integers(0, 1 << 37)


def course(*values: int) -> Course:
    """Of device memory that was read after 0, 1, 2… repetitions."""
    return trend(range(len(values)), values, BLOCK).course


def series(activity: Any = "replays", **figures: Any) -> MemorySeries:
    """A series in which nothing moves but for ``figures``."""
    still = {
        "counts": COUNTS,
        "device_used_bytes": (BASE,) * 11,
        "allocator_bytes": (BASE // 2,) * 11,
        "host_rss_bytes": (BASE,) * 11,
    }
    return MemorySeries(shape="b1", activity=activity, **(still | figures))


def linear(slope: int, base: int = BASE) -> tuple[int, ...]:
    return tuple(base + slope * count for count in COUNTS)


def unsteady(rise: int = 0) -> tuple[int, ...]:
    """To and fro by four blocks, as when another process comes and goes."""
    return tuple(BASE + rise * at + 4 * BLOCK * (at // 2 % 2) for at in range(11))


# --- one figure: slopes -----------------------------------------------------------------------------


def test_the_slope_is_the_median_of_all_pairs() -> None:
    assert theil_sen([(0, 0), (1, 1), (2, 4)]) == 2  # 1, 3 and 4/2
    assert theil_sen([(5, 3)]) == 0


def test_tau_is_the_surplus_of_rising_pairs() -> None:
    assert kendall_tau([(0, 1), (1, 2), (2, 3)]) == 1
    assert kendall_tau([(0, 3), (1, 2), (2, 1)]) == -1
    assert kendall_tau([(0, 1), (1, 3), (2, 2), (3, 2)]) == pytest.approx(1 / 6)  # 3 rise, 2 fall, 1 is level


# --- one figure: properties -------------------------------------------------------------------------


@given(bases, lengths)
def test_what_stands_still_is_flat(base: int, length: int) -> None:
    found = trend(range(length), [base] * length, BLOCK)
    assert (found.course, found.bytes_per_repetition, found.grown_bytes) == (Course.FLAT, 0, 0)


@given(bases, lengths, st.integers(4096, 1 << 30))
def test_steady_growth_is_a_leak_of_its_slope(base: int, length: int, slope: int) -> None:
    found = trend(range(length), [base + slope * at for at in range(length)], BLOCK)
    assert found.course is Course.LEAK
    assert found.bytes_per_repetition == pytest.approx(slope)
    assert found.grown_bytes == pytest.approx(slope * (length - 1), abs=1)


@given(bases, st.integers(4096, 1 << 16), st.integers(0, BLOCK - 1))
def test_a_leak_that_takes_whole_blocks_is_one(base: int, slope: int, offset: int) -> None:
    counts = range(0, 6_001, 200)  # 4 KiB fill a block in 512 repetitions: five in the second half
    values = [base + (offset + slope * count) // BLOCK * BLOCK for count in counts]
    found = trend(counts, values, BLOCK)
    assert found.course is Course.LEAK
    assert found.bytes_per_repetition == pytest.approx(slope, rel=0.35)


@given(bases, lengths, st.data())
def test_steps_in_the_first_third_are_a_plateau(base: int, length: int, data: st.DataObject) -> None:
    rises = data.draw(st.lists(st.integers(1, 1 << 30), min_size=1, max_size=length // 3))
    values = list(accumulate([*rises, *[0] * (length - 1 - len(rises))], initial=base))
    found = trend(range(length), values, BLOCK)
    assert (found.course, found.bytes_per_repetition) == (Course.PLATEAU, 0)
    assert found.grown_bytes == sum(rises)


@given(bases, lengths, st.integers(-(1 << 30), 1 << 30), st.data())
def test_one_outlier_changes_nothing_where_nothing_grows(
    base: int, length: int, off: int, data: st.DataObject
) -> None:
    values = [base] * length
    values[data.draw(st.integers(1, length - 1))] += off
    found = trend(range(length), values, BLOCK)
    assert (found.course, found.grown_bytes, found.noisy) == (Course.FLAT, 0, False)


@given(bases, lengths, st.integers(4096, 1 << 24), st.integers(-(1 << 30), 1 << 30), st.data())
def test_a_leak_with_one_outlier_is_not_taken_for_settled(
    base: int, length: int, slope: int, off: int, data: st.DataObject
) -> None:
    values = [base + slope * at for at in range(length)]
    values[data.draw(st.integers(1, length - 1))] += off
    assert trend(range(length), values, BLOCK).course in (Course.LEAK, Course.UNDECIDED)


@given(bases, st.lists(st.integers(0, BLOCK), min_size=12, max_size=40))
def test_noise_within_a_block_that_comes_and_goes_is_no_leak(base: int, noise: list[int]) -> None:
    # Mirrored, it ends where it began.
    values = [base + each for each in noise + noise[::-1] + noise]
    assert trend(range(len(values)), values, BLOCK).course in (Course.FLAT, Course.PLATEAU)


@given(lengths, st.integers(4096, 1 << 24), st.data())
def test_a_leak_among_noise_is_found(length: int, slope: int, data: st.DataObject) -> None:
    noise = data.draw(st.lists(st.integers(0, slope // 4), min_size=length, max_size=length))
    values = [slope * at + each for at, each in enumerate(noise)]
    assert trend(range(length), values, BLOCK).course is Course.LEAK


@given(lengths, st.integers(1, 1 << 24))
def test_what_shrinks_is_no_leak(length: int, slope: int) -> None:
    assert course(*(slope * (length - at) for at in range(length))) is not Course.LEAK


@given(st.lists(st.integers(0, 1 << 33), max_size=2 * MIN_HALF_POINTS - 2))
def test_few_points_are_undecided(values: list[int]) -> None:
    found = trend(range(len(values)), values, BLOCK)
    assert found.course is Course.UNDECIDED
    assert found.why.endswith("points of the second half, 6 are needed")


@settings(max_examples=300)
@given(lengths, st.data())
def test_only_what_grew_in_the_second_half_leaks(length: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 1 << 33), min_size=length, max_size=length))
    found = trend(range(length), values, BLOCK)
    if found.course is Course.LEAK:
        assert found.bytes_per_repetition > 0


# --- one figure: cases ------------------------------------------------------------------------------


def test_a_pool_that_warms_up_is_a_plateau() -> None:
    found = trend(range(14), [0, *[426 * MIB] * 13], BLOCK)
    assert (found.course, found.grown_bytes) == (Course.PLATEAU, 426 * MIB)


def test_a_bounded_cache_that_fills_in_the_second_half_is_a_plateau() -> None:
    assert course(*range(10), *[10] * 6) is Course.PLATEAU


@pytest.mark.parametrize(("at", "times"), [((8,), "once"), ((7, 9), "twice")])
def test_a_late_block_may_be_a_pool_or_a_slow_leak(at: tuple[int, ...], times: str) -> None:
    found = trend(range(11), [sum(BLOCK for step in at if step <= x) for x in range(11)], BLOCK)
    assert found.course is Course.UNDECIDED
    assert found.why == f"rose {times} in the second half, by {2 * len(at)}.00 MiB"


def test_growth_that_slows_down_is_undecided() -> None:
    found = trend(range(21), [round(MIB * (1 - 0.7**x)) for x in range(21)], BLOCK)
    assert found.course is Course.UNDECIDED
    assert found.why.endswith("but less and less")


def test_a_leak_with_long_blocks_is_known_by_its_third_rise() -> None:
    assert course(*(x // 4 * BLOCK for x in range(26))) is Course.LEAK
    assert course(*(x // 4 * BLOCK for x in range(13))) is Course.UNDECIDED


def test_large_movement_without_direction_is_undecided() -> None:
    found = trend(COUNTS, unsteady(), BLOCK)
    assert (found.course, found.noisy) == (Course.UNDECIDED, True)


# --- a series ---------------------------------------------------------------------------------------


def test_growth_of_the_allocator_decides() -> None:
    found = judge_series(series(allocator_bytes=linear(4096)))
    assert (found.course, found.source, found.trend.bytes_per_repetition) == (Course.LEAK, "allocator", 4096)
    assert (found.repetitions, found.points) == (2_000, 11)


def test_growth_beside_the_allocator_is_a_leak_and_said_to_be_outside_it() -> None:
    found = judge_series(series(device_used_bytes=linear(20_000)))
    assert (found.course, found.source, found.why) == (
        Course.LEAK,
        "device",
        "the framework's allocator takes no more",
    )


def test_without_an_allocator_the_device_decides() -> None:
    absent = NotMeasured(reason="there is none")
    still = judge_series(series(allocator_bytes=absent, host_rss_bytes=absent))
    grows = judge_series(series(allocator_bytes=absent, device_used_bytes=linear(4096)))
    assert (still.course, grows.course, grows.why) == (Course.FLAT, Course.LEAK, "")


def test_a_device_that_others_move_is_undecided_though_the_allocator_stands_still() -> None:
    found = judge_series(series(device_used_bytes=unsteady()))
    assert found.course is Course.UNDECIDED
    assert found.why == (
        "moves to and fro by up to 8.00 MiB, the framework's allocator takes no more: "
        "another process may move it"
    )


def test_growth_among_others_movement_is_undecided_unless_the_allocator_shows_it() -> None:
    rising = unsteady(rise=2 * BLOCK)
    assert judge_series(series(device_used_bytes=rising)).course is Course.UNDECIDED
    shown = judge_series(series(device_used_bytes=rising, allocator_bytes=linear(2 * BLOCK // 200)))
    assert (shown.course, shown.source) == (Course.LEAK, "allocator")


def test_growth_of_host_memory_counts_from_its_floor_on() -> None:
    per_point = HOST_FLOOR_BYTES // 5  # the second half has five distances
    small = judge_series(series(host_rss_bytes=linear(per_point // 200)))
    large = judge_series(series(host_rss_bytes=linear(2 * HOST_STEP_BYTES // 200)))
    assert (small.course, large.course, large.source) == (Course.FLAT, Course.LEAK, "host")


# --- checks -----------------------------------------------------------------------------------------


def trial(*records: Record, method: Any = "capture") -> ShapeTrial:
    return ShapeTrial("b1", (PhaseStarted(shape="b1", phase=Phase.MEMORY), *records), method)


ALL = (series("replays"), series("cycles"), series("aborted"))


def test_what_does_not_grow_holds() -> None:
    checks = memory_checks(trial(*ALL), Policy(), required=True)
    assert [check.status for check in checks] == [GateStatus.PASS] * 3
    assert [check.sentence for check in checks] == [
        "memory does not grow over 2000 replays",
        "memory does not grow over 2000 capture cycles",
        "memory does not grow over 2000 aborted captures",
    ]


def test_a_leak_fails_with_activity_slope_and_repetitions() -> None:
    (check,) = memory_checks(trial(series("aborted", allocator_bytes=linear(4096))), Policy())
    assert (check.status, check.code) == (GateStatus.FAIL, Reason.MEMORY_GROWTH)
    assert check.sentence == (
        "the allocator's memory grows by 4.00 KiB per aborted capture over 2000 aborted captures"
    )


def test_what_can_not_be_told_is_undecided() -> None:
    short = series(
        counts=(0, 1, 2), device_used_bytes=(1, 1, 1), allocator_bytes=(1,) * 3, host_rss_bytes=(1,) * 3
    )
    (check,) = memory_checks(trial(short), Policy())
    assert (check.status, check.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "over 2 replays can't be told: device memory was read at 2 points" in check.sentence


@pytest.mark.parametrize(("limit", "status"), [(MIB, GateStatus.PASS), (MIB - 1, GateStatus.FAIL)])
def test_a_plateau_is_held_against_the_memory_limit(limit: int, status: GateStatus) -> None:
    settled = series(device_used_bytes=(BASE, *[BASE + MIB] * 10))
    (check,) = memory_checks(trial(settled), Policy(max_memory_bytes=limit))
    assert (check.status, check.code) == (status, None if status is GateStatus.PASS else Reason.MEMORY)


def test_a_finding_of_the_worker_counts() -> None:
    finding = Finding(shape="b1", phase=Phase.MEMORY, code=Reason.CAPTURE_ILLEGAL, message="refused")
    checks = memory_checks(trial(*ALL, finding), Policy())
    assert [check.code for check in checks if check.status is GateStatus.FAIL] == [Reason.CAPTURE_ILLEGAL]


def test_what_is_missing_is_undecided_only_where_it_is_required() -> None:
    assert memory_checks(None, Policy()) == []
    (check,) = memory_checks(None, Policy(), required=True)
    assert (check.status, check.code) == (GateStatus.UNKNOWN, Reason.NOT_TRIED)
    assert check.sentence == "memory over time was not measured"


def test_missing_activities_are_named_with_the_workers_end() -> None:
    end = WorkerEnd(stage="pilot", outcome="crashed", exit_code=None, signal="SIGSEGV", reason="in step")
    *_held, check = memory_checks(trial(ALL[0], end), Policy(), required=True)
    assert check.sentence == (
        "memory over time was not measured for cycles, aborted: the trial of shape b1 ended in phase memory: "
        "its worker crashed (SIGSEGV, in step)"
    )


def test_a_graph_of_the_workloads_own_is_only_replayed() -> None:
    checks = memory_checks(trial(ALL[0], method="own"), Policy(), required=True)
    assert [check.status for check in checks] == [GateStatus.PASS]


def test_the_newest_series_of_an_activity_counts() -> None:
    (check,) = memory_checks(trial(series(device_used_bytes=linear(4096)), series()), Policy())
    assert check.status is GateStatus.PASS


def test_what_was_measured_is_reported_for_each_activity() -> None:
    absent = NotMeasured(reason="no /proc")
    grown = series("cycles", device_used_bytes=linear(4096), host_rss_bytes=absent)
    assert measured_memory(trial(grown)) == {
        "cycles": {
            "course": "leak",
            "source": "device",
            "bytes_per_repetition": 4096.0,
            "device_grown_bytes": 4096 * 2_000,
            "allocator_grown_bytes": 0,
            "host_grown_bytes": {"type": "not_measured", "reason": "no /proc"},
            "repetitions": 2_000,
            "points": 11,
        }
    }
    assert measured_memory(None) == {}
