"""Rung 4: what one run of several instances says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudagraph_gate.gates.instances import instances_check, measured_instances, view_instances
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.model import GateStatus, NotMeasured, Reason
from cudagraph_gate.records import Finding, InstanceRun, Phase, Record

MIB = 1 << 20


def run(*, blocks: int = 10, swing: float = 0.0, **change: Any) -> InstanceRun:
    """Four instances that agree, take 64 MiB each and gain 60 % in each of their blocks of rounds.

    ``swing`` makes every other block of both paths so much slower.
    """
    given: dict[str, Any] = {
        "shape": "b1",
        "count": 4,
        "requests": 10,
        "wrong": 0,
        "bytes_per_instance": 64 * MIB,
        "normal_ns": 1_000_000,
        "graph_ns": 400_000,
    } | change
    for path in ("normal", "graph"):
        median = given[f"{path}_ns"]
        if not isinstance(median, NotMeasured):
            by_block = tuple(round(median * (1 + swing * (at % 2))) for at in range(blocks))
            given.setdefault(f"{path}_blocks_ns", by_block)
    return InstanceRun(**given)


def judged(*records: Record, **policy: Any) -> tuple[GateStatus, Reason | None, str]:
    check = instances_check(view_instances(records, "b1"), "b1", Policy(**policy))
    return check.status, check.code, check.sentence


def test_instances_that_agree_and_gain_hold() -> None:
    status, code, sentence = judged(run())
    assert (status, code) == (GateStatus.PASS, None)
    assert "40 requests of 4 instances agree" in sentence
    assert "each instance takes 64.0 MiB" in sentence
    assert "a round of 4 requests 1.00 ms normal, 400 µs graph, gain 60.0 % (60.0 % to 60.0 %)" in sentence


def test_without_a_run_nothing_was_tried() -> None:
    finding = Finding(shape="b1", phase=Phase.INSTANCES, code=Reason.MEMORY, message="none left")
    for records in ((), (finding,), (run(shape="b8"),)):
        assert judged(*records)[:2] == (GateStatus.UNKNOWN, Reason.NOT_TRIED)
    assert measured_instances(view_instances([run(shape="b8")], "b1")) == {}


def test_the_newest_run_counts() -> None:
    assert judged(run(wrong=1), run())[0] is GateStatus.PASS
    assert judged(run(), run(wrong=1))[0] is GateStatus.FAIL


def test_wrong_outputs_fail_with_the_first_difference() -> None:
    untimed = NotMeasured(reason="wrong outputs are not worth timing")
    status, code, sentence = judged(
        run(wrong=3, detail="instance 1, request 0", normal_ns=untimed, graph_ns=untimed)
    )
    assert (status, code) == (GateStatus.FAIL, Reason.REPLAY_RACE)
    expected = "3 of 40 requests of 4 instances differ from the normal path: instance 1, request 0"
    assert sentence == expected


@pytest.mark.parametrize("change", [{"requests": 0}, {"count": 1}])
def test_what_was_not_compared_is_not_known(change: dict[str, int]) -> None:
    assert judged(run(**change))[:2] == (GateStatus.UNKNOWN, Reason.NOT_TRIED)


@pytest.mark.parametrize(
    ("limit", "status", "code"),
    [(64 * MIB, GateStatus.PASS, None), (64 * MIB - 1, GateStatus.FAIL, Reason.MEMORY)],
)
def test_the_limit_on_memory_is_that_of_each_instance(
    limit: int, status: GateStatus, code: Reason | None
) -> None:
    assert judged(run(), max_memory_bytes=limit)[:2] == (status, code)


@pytest.mark.parametrize(
    ("graph_ns", "status", "code"),
    [
        (949_000, GateStatus.PASS, None),
        (951_000, GateStatus.FAIL, Reason.NO_GAIN),
        (1_000_000, GateStatus.FAIL, Reason.NO_GAIN),
        (1_001_000, GateStatus.FAIL, Reason.REGRESS),
    ],
)
def test_the_gain_must_still_be_there(graph_ns: int, status: GateStatus, code: Reason | None) -> None:
    assert judged(run(graph_ns=graph_ns))[:2] == (status, code)


def test_a_gain_inside_the_noise_of_the_normal_path_is_none() -> None:
    # Its even blocks take 1 ms and its odd ones 1.3 ms: normal against normal differs by 30 %.
    status, code, sentence = judged(run(graph_ns=750_000, swing=0.3))
    assert (status, code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "gain 25.0 % (25.0 % to 25.0 %): not clearly beyond the noise floor 30.0 %" in sentence
    assert judged(run(graph_ns=690_000, swing=0.3))[0] is GateStatus.PASS


def test_medians_without_blocks_have_no_interval_and_decide_nothing() -> None:
    older = InstanceRun(
        shape="b1",
        count=4,
        requests=10,
        wrong=0,
        bytes_per_instance=64 * MIB,
        normal_ns=1_000_000,
        graph_ns=400_000,
    )
    status, code, sentence = judged(older)
    assert (status, code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert sentence == "gain of 4 instances: rounds were not logged by block"
    assert measured_instances(view_instances([older], "b1"))["speed_up"] == 2.5


def test_few_blocks_are_undecided() -> None:
    assert judged(run(blocks=3))[2] == "gain of 4 instances: 3 blocks of the normal path, 4 are needed"


@pytest.mark.parametrize("name", ["bytes_per_instance", "normal_ns", "graph_ns"])
def test_what_was_not_measured_is_unknown_with_its_reason(name: str) -> None:
    status, code, sentence = judged(run(**{name: NotMeasured(reason="too noisy")}))
    assert (status, code) == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)
    assert "too noisy" in sentence


@pytest.mark.parametrize("name", ["normal_ns", "graph_ns"])
def test_a_round_without_time_measures_nothing(name: str) -> None:
    assert judged(run(**{name: 0}))[:2] == (GateStatus.UNKNOWN, Reason.UNMEASURABLE)


@given(st.integers(0, 40), st.integers(0, 1 << 31), st.integers(1, 2_000_000))
@settings(deadline=None, max_examples=40)
def test_a_worse_run_never_gets_a_better_answer(wrong: int, nbytes: int, graph_ns: int) -> None:
    order = [GateStatus.FAIL, GateStatus.UNKNOWN, GateStatus.PASS]
    base = judged(run(graph_ns=graph_ns))[0]
    worse = run(graph_ns=graph_ns, wrong=wrong, bytes_per_instance=64 * MIB + nbytes)
    assert order.index(judged(worse)[0]) <= order.index(base)


def test_figures_for_the_report() -> None:
    measured = measured_instances(view_instances([run()], "b1"))
    assert measured == {
        "instances": 4,
        "requests": 10,
        "wrong_requests": 0,
        "bytes_per_instance": 64 * MIB,
        "normal_round_ns": 1_000_000,
        "graph_round_ns": 400_000,
        "speed_up": 2.5,
        "round": {"normal_ns": 1_000_000, "graph_ns": 400_000, "ratio": 0.4, "low": 0.4, "high": 0.4},
    }


def test_a_figure_that_was_not_measured_says_why() -> None:
    noisy = NotMeasured(reason="too noisy")
    found = measured_instances(view_instances([msgspec.structs.replace(run(), graph_ns=noisy)], "b1"))
    assert (found["graph_round_ns"], found["speed_up"]) == (noisy, noisy)
