"""What one request runs, and whether all requests run the same."""

from __future__ import annotations

from typing import Any

import pytest
from made_timelines import Row, call, diagnosed, kernel, request, sync

from cudagraph_gate.model import Cause, Diagnosis, IdleCauses, NotMeasured, Requests


def found(diagnosis: Diagnosis) -> Requests:
    assert isinstance(diagnosis.requests, Requests)
    return diagnosis.requests


def served(*steps: list[Row], calls: tuple[Row, ...] = (), **meta: Any) -> Requests:
    """Requests of 100 ns, one every 100 ns; each kernel is submitted 5 ns before it starts."""
    rows = [
        row
        | {"start_ns": row["start_ns"] + 100 * place, "end_ns": row["end_ns"] + 100 * place, "correlation": 0}
        for place, step in enumerate(steps)
        for row in step
    ]
    rows = [row | {"correlation": number} for number, row in enumerate(rows, start=1)]
    launched = [call(row["start_ns"] - 5, row["start_ns"] - 2, row["correlation"]) for row in rows]
    marks = [request(100 * place, 100 * place + 90) for place in range(len(steps))]
    return found(diagnosed(rows, [*launched, *calls], marks, **meta))


STEP = [kernel(10, 30, name="gemm"), kernel(20, 40, name="gemm", stream=8), kernel(50, 60, name="relu")]


def test_medians_describe_one_request() -> None:
    requests = served(STEP, STEP, STEP)
    assert (requests.count, requests.wall.p50, requests.busy_ns) == (3, 90, 40)
    assert (requests.operations, requests.submissions) == (3, 3)
    assert requests.kernels == {"gemm": 2, "relu": 1}
    assert (requests.stable, requests.unstable_share) == (True, 0.0)


@pytest.mark.parametrize(
    "change", [{"name": "tanh"}, {"grid_x": 2}, {"block_z": 2}, {"bytes": 8}, {"stream": 8}]
)
def test_a_changed_operation_makes_requests_unstable(change: Row) -> None:
    requests = served(STEP, STEP, [*STEP[:2], STEP[2] | change], STEP)
    assert (requests.stable, requests.unstable_share) == (False, 0.25)


def test_an_operation_more_makes_requests_unstable() -> None:
    requests = served(STEP, [*STEP, kernel(70, 75, name="rare")], STEP)
    assert requests.unstable_share == pytest.approx(1 / 3)
    assert "rare" not in requests.kernels


def test_timing_between_streams_does_not_make_requests_unstable() -> None:
    later = [STEP[0] | {"start_ns": 21, "end_ns": 41}, *STEP[1:]]
    assert served(STEP, later).stable


def test_another_order_on_one_stream_makes_requests_unstable() -> None:
    swapped = [STEP[0] | {"name": "relu"}, STEP[1], STEP[2] | {"name": "gemm"}]
    assert not served(STEP, swapped).stable


def test_graph_nodes_are_compared_in_order_of_their_numbers() -> None:
    def replay(begin: int, first: str, second: str, correlation: int) -> list[Row]:
        numbers = {"a": 1, "b": 2}
        return [
            kernel(begin + at, begin + at + 5, correlation, name=name, graph=3, node=numbers[name])
            for at, name in ((10, first), (20, second))
        ]

    rows = replay(0, "a", "b", 1) + replay(100, "b", "a", 2)
    calls = [call(2, 5, 1, name="cuGraphLaunch"), call(102, 105, 2, name="cuGraphLaunch")]
    requests = found(diagnosed(rows, calls, [request(0, 90), request(100, 190)]))
    assert (requests.stable, requests.operations, requests.submissions) == (True, 2, 1)


def test_operations_belong_to_the_request_that_submitted_them() -> None:
    rows = [kernel(60, 120, 1), kernel(130, 170, 2)]
    requests = found(diagnosed(rows, [call(0, 5, 1), call(50, 55, 2)], [request(0, 100), request(101, 180)]))
    assert (requests.count, requests.operations, requests.busy_ns) == (2, 1, 50)
    assert requests.unstable_share == 0.5


def test_at_level_light_the_queued_stamp_tells_the_request() -> None:
    rows = [kernel(95, 120, 1, queued_ns=40, submitted_ns=45), kernel(130, 150, 2)]
    requests = found(diagnosed(rows, [], [request(0, 90), request(92, 200)], level="light"))
    assert (requests.operations, requests.submissions, requests.busy_ns) == (1, 1, 22)


def test_the_synchronisation_that_ends_a_request_is_not_counted_as_blocking() -> None:
    ends = sync(62, 80), sync(162, 180)
    assert served(STEP, STEP, calls=ends).blocking_calls == 0
    assert served(STEP, STEP, calls=(*ends, sync(33, 42), sync(133, 142))).blocking_calls == 1


def test_a_blocking_call_before_the_last_submission_counts() -> None:
    assert served(STEP, calls=(sync(33, 42),)).blocking_calls == 1


def test_a_blocking_call_nested_in_another_counts_once() -> None:
    outer = sync(32, 43, name="cudaStreamSynchronize")
    assert served(STEP, calls=(outer, sync(33, 42))).blocking_calls == 1


def test_submission_idle_counts_inside_requests_only() -> None:
    rows = [kernel(0, 20, 1), kernel(50, 60, 2), kernel(150, 160, 3)]
    calls = [call(-9, -5, 1), call(30, 40, 2), call(130, 140, 3)]
    requests = found(diagnosed(rows, calls, [request(-10, 70), request(120, 160)]))
    assert requests.submission_idle_ns == (30 + 40) // 2


def test_submission_idle_is_that_of_the_worst_device() -> None:
    rows = [kernel(0, 20, 1), kernel(50, 60, 2), kernel(0, 10, 3, device=1), kernel(50, 60, 4, device=1)]
    calls = [call(-9, -5, 1), call(30, 40, 2), call(-4, -2, 3), call(41, 45, 4)]
    assert found(diagnosed(rows, calls, [request(-10, 60)])).submission_idle_ns == 40


def test_submission_idle_is_not_measured_where_idle_is_not() -> None:
    requests = served(STEP, dropped_records=1)
    assert isinstance(requests.submission_idle_ns, NotMeasured)
    assert requests.idle == requests.submission_idle_ns


def test_idle_by_cause_is_summed_over_the_requests() -> None:
    rows = [kernel(0, 20, 1), kernel(50, 60, 2), kernel(150, 160, 3)]
    calls = [call(-9, -5, 1), call(30, 40, 2), call(130, 140, 3)]
    requests = found(diagnosed(rows, calls, [request(-10, 70), request(120, 160)]))
    assert requests.idle == IdleCauses(
        by_cause={
            Cause.HOST_WORK: 10 + 20,
            Cause.HOST_API: 10 + 10,
            Cause.LAUNCH_LATENCY: 10 + 10,
            Cause.RAMP: 10,
        }
    )


def test_requests_of_each_process_have_the_idle_time_of_its_device() -> None:
    rows = [kernel(0, 20, 1), kernel(50, 60, 2), kernel(0, 30, 1, process=2), kernel(50, 60, 2, process=2)]
    calls = [call(30, 40, 2), call(30, 40, 2, process=2, thread=20)]
    marks = [request(0, 60), request(0, 60, process=2), request(0, 60, process=3)]
    requests = found(diagnosed(rows, calls, marks))
    assert requests.idle == IdleCauses(
        by_cause={Cause.HOST_WORK: 10, Cause.HOST_API: 20, Cause.LAUNCH_LATENCY: 20}
    )


def test_without_marks_there_are_no_requests() -> None:
    assert diagnosed([kernel(0, 10)]).requests == NotMeasured(reason="no request is marked in the timeline")


def test_requests_without_operations_are_not_measured() -> None:
    reason = NotMeasured(reason="no marked request of the window submitted a GPU operation")
    assert diagnosed([], [], [request(0, 10)]).requests == reason
    assert diagnosed([kernel(0, 10)], [], [request(0, 10)], window=(2, 8)).requests == reason


def test_requests_of_two_processes_keep_their_own_work() -> None:
    rows = [kernel(10, 20, 1), kernel(10, 40, 1, process=2), kernel(50, 60, 2, process=2)]
    requests = found(diagnosed(rows, [], [request(0, 90), request(0, 90, process=2)]))
    assert (requests.count, requests.operations, requests.busy_ns) == (2, 2, 25)
