"""Gate 6: right, faster beyond noise, and not paid for elsewhere."""

from __future__ import annotations

import pytest
from artefact_builder import diagnosis, requests
from evidence_builder import (
    MS,
    Gate,
    changed,
    compared,
    memory,
    not_measured,
    passing,
    shape_records,
    spread,
    timed,
    trial,
)

from cudagraph_gate.gates import Policy
from cudagraph_gate.gates.check import fails
from cudagraph_gate.gates.comparison import comparison_gate
from cudagraph_gate.gates.trial_view import view_trial
from cudagraph_gate.model import GateResult, GateStatus, Reason
from cudagraph_gate.records import Block, Comparison, Finding, Phase, Record

AGREED = [compared("outputs", i) for i in range(6)] + [compared("normal_again", 6)]


@pytest.fixture
def gate() -> Gate:
    """Gate 6 by itself, without what the rungs of the ladder add."""

    def answer(_number: int, *, policy: Policy | None = None, **change: object) -> GateResult:
        evidence = passing(**change)
        return comparison_gate(evidence, view_trial(evidence), policy or Policy())

    return answer


def log(**change: object) -> tuple[Record, ...]:
    return trial(shape_records(**change))


def uneven(path: str, medians_ns: list[int]) -> list[Block]:
    """One block a median."""
    return [
        Block(shape="b1", path=path, order=i, half="ab"[i % 2], latencies_ns=spread(ns), cpu_ns=2_100_000)
        for i, ns in enumerate(medians_ns)
    ]


def test_a_right_and_faster_graph_passes(gate: Gate):
    result = gate(6)
    assert (result.status, result.code) == (GateStatus.PASS, None)
    assert result.measured["gain"] == pytest.approx(0.4)
    assert result.measured["p50"]["normal_ns"] == 1 * MS
    assert result.measured["p50"]["graph_ns"] == 600_000
    assert result.measured["p99"]["ratio"] == pytest.approx(0.6)
    assert result.measured["noise_floor"] == 0
    assert "further_blocks" not in result.measured
    assert (result.measured["normal_cpu_ns"], result.measured["graph_cpu_ns"]) == (100_000, 50_000)
    assert result.measured["copy_in_ns"] == 20_000
    assert result.measured["memory_growth_bytes"] == 64 << 20


# --- outputs and state ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "code", "words"),
    [
        ("outputs", Reason.WRONG_OUTPUT, "outputs differ"),
        ("state", Reason.STATE_MUTATION, "state differs"),
        ("normal_again", Reason.WRONG_OUTPUT, "the normal path differs after the graph"),
    ],
)
def test_a_difference_fails_and_says_where(gate: Gate, subject: str, code: Reason, words: str):
    wrong = compared(
        subject, 3, equal=False, exact=False, max_abs_error=0.5, tolerance=1e-3, detail="logits[0]"
    )
    result = gate(6, records=log(comparisons=[*AGREED, wrong]))
    assert (result.status, result.code) == (GateStatus.FAIL, code)
    assert result.reason.startswith(f"request 3: {words}")
    assert "logits[0] (error 0.5, tolerance 0.001)" in result.reason
    assert result.measured["failed_comparisons"] == 1


def test_a_normal_path_that_does_not_repeat_itself_is_unknown(gate: Gate):
    noisy = compared("normal_repeat", 0, equal=False, max_abs_error=1.0)
    result = gate(6, records=log(comparisons=[*AGREED, noisy]))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)


@pytest.mark.parametrize(("count", "status"), [(4, GateStatus.UNKNOWN), (5, GateStatus.PASS)])
def test_five_requests_must_be_compared(gate: Gate, count: int, status: GateStatus):
    outputs = [compared("outputs", i) for i in range(count)]
    assert gate(6, records=log(comparisons=[*outputs, AGREED[-1]])).status is status


def test_outputs_of_one_request_count_once(gate: Gate):
    outputs: list[Comparison] = [compared("outputs", 0)] * 5
    result = gate(6, records=log(comparisons=[*outputs, AGREED[-1]]))
    assert "outputs of 1 requests compared, 5 are needed" in result.reason


def test_the_normal_path_must_be_compared_again(gate: Gate):
    result = gate(6, records=log(comparisons=AGREED[:-1]))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.NOT_TRIED)


# --- median ---------------------------------------------------------------------------------------


def test_a_slower_graph_fails_as_a_regression(gate: Gate):
    result = gate(6, records=log(graph_ns=1_020_000))
    assert (result.status, result.code) == (GateStatus.FAIL, Reason.REGRESS)
    assert "the graph is slower: P50 1.00 ms normal, 1.02 ms graph, gain -2.0 %" in result.reason


def test_a_gain_below_the_minimum_fails(gate: Gate):
    result = gate(6, records=log(graph_ns=970_000))
    assert (result.status, result.code) == (GateStatus.FAIL, Reason.NO_GAIN)
    assert "below the minimum 5.0 %" in result.reason


@pytest.mark.parametrize(("minimum", "status"), [(0.39, "pass"), (0.41, "fail")])
def test_the_policys_minimum_decides(gate: Gate, minimum: float, status: str):
    assert gate(6, policy=Policy(min_gain=minimum)).status == status


def test_an_interval_across_the_minimum_is_unknown(gate: Gate):
    graph = uneven("graph", [800_000, 850_000, 950_000, 990_000, 1_000_000, 1_000_000])
    result = gate(6, records=log(blocks=[*timed("normal", MS), *graph]))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "not clearly beyond the minimum 5.0 %" in result.reason
    further = result.measured["further_blocks"]
    assert f"about {further} further blocks of each path would tell" in result.reason


def test_a_gain_within_the_noise_of_the_normal_path_is_unknown(gate: Gate):
    # Normal against normal: halves of 0.9 ms and 1.1 ms differ by a fifth; the gain is 10 %.
    normal = uneven("normal", [900_000, 1_100_000] * 4)
    result = gate(6, records=log(blocks=[*normal, *timed("graph", 800_000)]))
    assert result.measured["noise_floor"] == pytest.approx(0.222, abs=0.001)
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "the noise floor" in result.reason
    # The interval's 8.9 % and the noise's 22.2 % must together become 20 %: 1.556^2 times the 6 blocks.
    assert result.measured["further_blocks"] == 15 - 6


def test_a_gain_at_the_minimum_is_beyond_any_number_of_blocks(gate: Gate):
    graph = uneven("graph", [940_000, 945_000, 950_000, 950_000, 955_000, 960_000])
    result = gate(6, records=log(blocks=[*timed("normal", MS), *graph]))
    assert (result.status, result.measured["further_blocks"]) == (GateStatus.UNKNOWN, 1_000)
    assert "and 1000 further blocks of each path would not tell" in result.reason


@pytest.mark.parametrize(("graph_ns", "code"), [(1_100_000, Reason.REGRESS), (980_000, Reason.NO_GAIN)])
def test_a_copy_that_takes_the_gain_away_is_named(gate: Gate, graph_ns: int, code: Reason):
    result = gate(6, records=log(graph_ns=graph_ns, copy_in_ns=400_000))
    assert result.code is code
    assert "copying the inputs into static buffers takes 400 µs of it" in result.reason


def test_a_copy_that_explains_nothing_is_not_named(gate: Gate):
    assert "copying" not in gate(6, records=log(graph_ns=1_100_000, copy_in_ns=20_000)).reason


# --- tail, CPU, memory ----------------------------------------------------------------------------


def tailed(path: str, p50_ns: int, tail_ns: int) -> list[Block]:
    """Each block has two of 21 requests at ``tail_ns``: P95 and P99 lie there."""
    slow = (*spread(p50_ns)[:-2], tail_ns, tail_ns)
    return [
        Block(shape="b1", path=path, order=i, half="ab"[i % 2], latencies_ns=slow, cpu_ns=1_000_000)
        for i in range(6)
    ]


def test_a_worse_tail_fails_despite_a_better_median(gate: Gate):
    blocks = [*tailed("normal", MS, 2 * MS), *tailed("graph", 600_000, 3 * MS)]
    result = gate(6, records=log(blocks=blocks))
    assert (result.status, result.code) == (GateStatus.FAIL, Reason.REGRESS)
    assert (
        "P95 2.00 ms normal, 3.00 ms graph, ratio 1.500 (1.500 to 1.500), the limit is 1.050" in result.reason
    )


def test_the_policys_tail_limit_decides(gate: Gate):
    blocks = [*tailed("normal", MS, 2 * MS), *tailed("graph", 600_000, 3 * MS)]
    assert (
        gate(6, records=log(blocks=blocks), policy=Policy(max_tail_regression=0.5)).status is GateStatus.PASS
    )


def test_a_worse_tail_within_the_tails_own_noise_is_unknown(gate: Gate):
    # The normal path's halves differ by half as much again as the graph's tail does: a busy machine.
    calm, busy = tailed("normal", MS, 2 * MS), tailed("normal", MS, 4 * MS)
    normal = [busy[order] if order % 2 else calm[order] for order in range(len(calm))]
    result = gate(6, records=log(blocks=[*normal, *tailed("graph", 600_000, 5 * MS)]))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "not clearly within the limit 1.050 (noise floor" in result.reason


def test_a_tail_that_is_worse_within_its_interval_is_unknown(gate: Gate):
    graph = tailed("graph", 600_000, 3 * MS)[:2] + tailed("graph", 600_000, 700_000)[:4]
    result = gate(6, records=log(blocks=[*tailed("normal", MS, 2 * MS), *graph]))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "not clearly within the limit" in result.reason


def stalling(path: str, p50_ns: int, stalls: int) -> list[Block]:
    """Six blocks of 210 requests; in ``stalls`` of them one request takes a second."""
    many = spread(p50_ns) * 10
    return [
        Block(
            shape="b1",
            path=path,
            order=order,
            half="ab"[order % 2],
            latencies_ns=(1_000 * MS, *many[1:]) if order < stalls else many,
            cpu_ns=1_000_000,
        )
        for order in range(6)
    ]


@pytest.mark.parametrize(
    ("normal", "graph", "status"),
    [
        (0, 0, GateStatus.PASS),
        (0, 1, GateStatus.UNKNOWN),
        (0, 3, GateStatus.FAIL),
        (3, 3, GateStatus.PASS),
    ],
)
def test_stalls_too_rare_for_a_quantile_count(gate: Gate, normal: int, graph: int, status: GateStatus):
    blocks = [*stalling("normal", MS, normal), *stalling("graph", 600_000, graph)]
    result = gate(6, records=log(blocks=blocks))
    assert result.status is status, result.reason
    if status is not GateStatus.PASS:
        assert "all timed requests together take" in result.reason


def test_p99_is_left_out_with_too_few_requests(gate: Gate):
    blocks = [*timed("normal", MS, blocks=4), *timed("graph", 600_000, blocks=4)]
    result = gate(6, records=log(blocks=blocks))
    assert result.status is GateStatus.PASS
    assert result.measured["p99"]["reason"] == "P99 needs 100 requests per path, there are 84"


def test_p95_must_be_known(gate: Gate):
    blocks = [
        Block(shape="b1", path=path, order=i, half="ab"[i % 2], latencies_ns=(ns, ns), cpu_ns=10)
        for path, ns in (("normal", MS), ("graph", 600_000))
        for i in range(6)
    ]
    result = gate(6, records=log(blocks=blocks))
    assert result.status is GateStatus.UNKNOWN
    assert result.reason == "P95 needs 20 requests per path, there are 12"


@pytest.mark.parametrize(("cpu_ns", "status"), [(110_000, GateStatus.PASS), (111_000, GateStatus.FAIL)])
def test_cpu_time_per_request_is_limited(gate: Gate, cpu_ns: int, status: GateStatus):
    result = gate(6, records=log(graph_cpu_ns=cpu_ns))
    assert result.status is status
    assert (result.code is Reason.REGRESS) == (status is GateStatus.FAIL)


def test_throughput_and_the_processs_cpu_time_are_told(gate: Gate):
    normal = [changed(block, process_cpu_ns=300_000 * 21) for block in timed("normal", MS)]
    graph = [changed(block, process_cpu_ns=150_000 * 21) for block in timed("graph", 500_000)]
    measured = gate(6, records=log(blocks=[*normal, *graph])).measured
    assert (measured["normal_per_s"], measured["graph_per_s"]) == (1_000, 2_000)
    assert (measured["normal_process_cpu_ns"], measured["graph_process_cpu_ns"]) == (300_000, 150_000)
    assert measured["replay_ns"]["reason"] == "the bare replay was not timed"


def test_the_processs_cpu_time_may_be_unknown(gate: Gate):
    assert gate(6).measured["graph_process_cpu_ns"]["reason"] == "the process's CPU time was not read"


def test_cpu_time_too_short_for_the_clock_is_unknown(gate: Gate):
    blocks = [*timed("normal", MS, cpu_ns=0), *timed("graph", 600_000, cpu_ns=10)]
    assert gate(6, records=log(blocks=blocks)).status is GateStatus.UNKNOWN


@pytest.mark.parametrize(("growth", "status"), [(1 << 30, GateStatus.PASS), ((1 << 30) + 1, GateStatus.FAIL)])
def test_memory_growth_is_limited(gate: Gate, growth: int, status: GateStatus):
    free = 10 << 30
    points = [
        memory(Phase.WARM_UP, free),
        memory(Phase.CAPTURE, 0),
        memory(Phase.STEADY_REPLAY, free - growth),
    ]
    result = gate(6, records=log(memory_points=points))
    assert (result.status, result.measured["memory_growth_bytes"]) == (status, growth)
    assert (result.code is Reason.MEMORY) == (status is GateStatus.FAIL)


@pytest.mark.parametrize("phase", [Phase.EXPECTED, Phase.STEADY_REPLAY])
def test_memory_that_was_not_recorded_is_unknown(gate: Gate, phase: Phase):
    result = gate(6, records=log(memory_points=[memory(phase, 1)]))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "is not recorded" in result.reason


# --- alarms and absence ---------------------------------------------------------------------------


def test_saving_more_than_the_gpu_was_idle_is_an_alarm(gate: Gate):
    # Idle 0.2 ms of 1 ms: at most 0.3 ms can be saved, the graph saves 0.4 ms.
    result = gate(6, diagnosis=diagnosis(requests=requests(busy_ns=800_000)))
    assert (result.status, result.code) == (GateStatus.FAIL, Reason.ESCAPED_WORK)
    assert "faster than the GPU work takes" in result.reason


@pytest.mark.parametrize("given", [None, diagnosis(requests=not_measured())])
def test_without_known_work_there_is_no_alarm(gate: Gate, given: object):
    assert gate(6, diagnosis=given).status is GateStatus.PASS


@pytest.mark.parametrize("path", ["normal", "graph"])
def test_a_trial_that_ended_before_all_blocks_is_unknown(gate: Gate, path: str):
    other = {"normal": "graph", "graph": "normal"}[path]
    result = gate(6, records=log(blocks=timed(other, MS), completed=False))
    assert (result.status, result.code) == (GateStatus.UNKNOWN, Reason.NOT_TRIED)
    assert result.reason.startswith("not everything was compared: the trial of shape b1 ended in phase")
    assert result.measured["latency"]["type"] == "not_measured"
    assert f"0 timed blocks of the {path} path" in result.measured["latency"]["reason"]


def test_too_few_blocks_give_no_interval(gate: Gate):
    result = gate(6, records=log(blocks=[*timed("normal", MS), *timed("graph", 600_000, blocks=3)]))
    assert "3 timed blocks of the graph path, 4 are needed" in result.reason


def test_without_both_halves_there_is_no_noise_floor(gate: Gate):
    normal = [block for block in timed("normal", MS, blocks=12) if block.half == "a"]
    result = gate(6, records=log(blocks=[*normal, *timed("graph", 600_000)]))
    assert "no A/A blocks" in result.reason


def test_a_trial_that_was_not_completed_is_unknown(gate: Gate):
    assert gate(6, records=log(completed=False)).status is GateStatus.UNKNOWN


def test_a_blocking_finding_of_the_comparison_fails(gate: Gate):
    finding = Finding(
        shape="b1", phase=Phase.TRAJECTORY, code=Reason.UNSTABLE_ADDRESS, message="an input moved"
    )
    assert gate(6, records=log(more=[finding])).code is Reason.UNSTABLE_ADDRESS


def test_what_else_speaks_of_the_paths_counts(gate: Gate):
    evidence = passing()
    more = [fails(Reason.REPLAY_RACE, "rung 5, concurrent requests: it races")]
    result = comparison_gate(evidence, view_trial(evidence), Policy(), more)
    assert (result.status, result.code) == (GateStatus.FAIL, Reason.REPLAY_RACE)
    assert gate(6).status is GateStatus.PASS


def test_an_own_graph_path_that_was_tried_is_judged(gate: Gate):
    records = shape_records(blocks=[*timed("normal", MS), *timed("graph", 600_000)])
    own = [changed(record, method="own") if hasattr(record, "method") else record for record in records]
    result = gate(6, records=trial(tuple(own)))
    assert result.status is GateStatus.PASS
    assert result.measured["copy_in_ns"]["reason"] == "the copy was not timed"
