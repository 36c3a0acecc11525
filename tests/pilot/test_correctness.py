"""The trajectory's disturbances, its requests, and what noise in one output must not hide."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opened_sessions import Opened, opened

from cudagraph_gate.adapters.cuda_core import ArrayAdapter
from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.comparing import compare_values
from cudagraph_gate.pilot.correctness import INPUT_OFFSET_BYTES, TRAJECTORY_REQUESTS, Step
from cudagraph_gate.pilot.graph_path import ready_graph
from cudagraph_gate.records import Comparison

WEIGHTS = """
        class Holder:
            def __init__(self):
                self.weights = array(3)
                self.itself = self

        kept = []
        def build(shape):
            global work, holder
            work, holder = array(), Holder()
            return step

        def step(x):
            device.copy(work, x)
            add(work, holder.weights)
            return work

        def between(i):
            global holder
            KEEP
            holder = Holder()
        """
"""Each ``between`` replaces the weights by equal ones; only their cycle of references holds the old ones."""


def compared(
    workload: Opened, step: Step, before_each: Callable[[int], None] = lambda request: None
) -> list[Comparison]:
    """The trajectory by ``step`` against the normal path."""
    session = workload.session
    expected = correctness.expect(session, session.input_sets(1))
    actual = correctness.follow(session, step, expected.start, before_each=before_each)
    return list(correctness.compare_paths(session, expected, actual))


def churned(workload: Opened) -> list[int]:
    """Requests in which a captured graph is wrong although the weights never change, under churn."""
    session, graph = workload.session, ready_graph(workload.session, workload.first)

    def disturb(_request: int) -> None:
        correctness.churn(session, workload.first)

    return [found.request for found in compared(workload, graph.replay, disturb) if not found.equal]


def test_memory_that_only_garbage_holds_does_not_look_right_by_luck(tmp_path: Path) -> None:
    assert churned(opened(tmp_path, WEIGHTS.replace("KEEP", "pass"))) != []


def test_memory_that_the_workload_keeps_stays_right(tmp_path: Path) -> None:
    assert churned(opened(tmp_path, WEIGHTS.replace("KEEP", "kept.append(holder)"))) == []


def test_churn_collects_garbage(tmp_path: Path) -> None:
    workload = opened(tmp_path)
    device = workload.session.device
    before = device.memory_info().free_bytes

    class Cycle:
        def __init__(self) -> None:
            self.array, self.itself = device.empty((1024,), np.uint8), self

    Cycle()
    correctness.churn(workload.session, [])
    assert device.memory_info().free_bytes == before


# --- where the inputs lie -----------------------------------------------------------------------------


def test_every_other_copy_of_an_input_begins_inside_its_allocation(tmp_path: Path) -> None:
    workload = opened(tmp_path)
    session, (value,) = workload.session, workload.first
    plain, inner = (correctness.placed(session, value, request) for request in (0, 1))
    assert (inner.to_host() == value.to_host()).all()
    assert (inner.shape, inner.dtype) == (value.shape, value.dtype)
    assert len({value.pointer, plain.pointer, inner.pointer}) == 3
    start = inner.pointer - INPUT_OFFSET_BYTES
    del inner
    whole = session.device.empty((INPUT_OFFSET_BYTES + value.nbytes,), np.uint8)
    assert whole.pointer == start, "the freed block is the next of its size"


def test_a_framework_with_its_own_allocator_places_its_copies_itself(tmp_path: Path) -> None:
    class Framework(ArrayAdapter):
        """An adapter of other arrays."""

    workload = opened(tmp_path)
    session = workload.session
    object.__setattr__(session, "adapter", Framework(session.device))
    copies = [correctness.placed(session, workload.first[0], request) for request in range(2)]
    assert all(type(copy) is type(workload.first[0]) for copy in copies)
    copies[1].free()  # not a view: it is an allocation of its own
    assert copies[1].pointer == 0


def test_a_step_finds_its_inputs_at_other_addresses_each_time(tmp_path: Path) -> None:
    workload = opened(tmp_path)
    session, seen = workload.session, []

    def step(inputs: Any) -> Any:
        seen.append(inputs[0].pointer)
        return session.call(inputs)

    assert all(found.equal for found in compared(workload, step))
    assert all(one != other for one, other in pairwise(seen))


# --- requests -----------------------------------------------------------------------------------------


def test_more_requests_follow_the_usual_ones(tmp_path: Path) -> None:
    workload = opened(tmp_path)
    session = workload.session
    sets, extreme = session.input_sets(1), session.inputs(0)
    expected = correctness.expect(session, sets, more=[extreme])
    assert len(expected.start.requests) == TRAJECTORY_REQUESTS + 1
    assert expected.start.requests[-1] is extreme
    (last,) = expected.normal.moments[-1].outputs.values()
    np.testing.assert_allclose(last, extreme[0].to_host() + 6, rtol=1e-6)


SEEN = """
        SEEN = []
        def between(i):
            SEEN.append(i)

        def state():
            return {"work": work}
        """


def test_between_counts_from_nought_in_each_trajectory_of_either_path(tmp_path: Path) -> None:
    workload = opened(tmp_path, SEEN)
    assert all(found.equal for found in compared(workload, workload.session.call))
    assert list(range(TRAJECTORY_REQUESTS)) * 4 == workload.session.workload.module.SEEN


def test_a_request_by_itself_is_followed_by_nothing(tmp_path: Path) -> None:
    workload = opened(tmp_path, SEEN)
    session = workload.session
    start = correctness.expect(session, session.input_sets(1)).start
    before = session.workload.module.SEEN[:]
    alone = correctness.follow(session, session.call, start, alone=True)
    assert len(alone.moments) == TRAJECTORY_REQUESTS
    assert alone.final_state == {}
    assert before == session.workload.module.SEEN


def test_a_failing_between_is_placed_in_the_users_file(tmp_path: Path) -> None:
    workload = opened(tmp_path, "def between(i):\n    1 / (i - 2)\n")
    with pytest.raises(WorkloadError, match=r"between\(2\) raised ZeroDivisionError") as caught:
        correctness.expect(workload.session, workload.session.input_sets(1))
    assert caught.value.where == workload.place("1 / (i - 2)")


# --- noise --------------------------------------------------------------------------------------------

TWO_OUTPUTS = """
        def build(shape):
            global noisy, exact, calls
            noisy, exact, calls = array(), array(), 0
            return step

        def step(x):
            global calls
            calls += 1
            device.copy(noisy, x)
            add(noisy, calls % 2 / 2)
            device.copy(exact, x)
            return {"noisy": noisy, "exact": exact}
        """
"""A trajectory has an odd number of requests, so that ``noisy`` is 0.5 away from itself in the next one."""


@pytest.mark.parametrize(("off", "wrong"), [(0.0, []), (1e-3, [0, 1, 2, 3, 4])])
def test_a_noisy_output_hides_no_error_in_another_one(tmp_path: Path, off: float, wrong: list[int]) -> None:
    workload = opened(tmp_path, TWO_OUTPUTS)

    def step(inputs: Any) -> Any:
        outputs = workload.session.call(inputs)
        if off:
            workload.session.workload.module.add(outputs["exact"], off)
        return outputs

    found = compared(workload, step)
    assert [each.request for each in found if not each.equal] == wrong
    assert {(each.detail, each.tolerance) for each in found if not each.equal} <= {("output exact", 0.0)}
    assert all(each.tolerance == pytest.approx(2.0) for each in found if each.equal)


def test_within_tolerance_the_record_holds_the_largest_difference() -> None:
    one, other = ({"loose": np.float32([0]), "same": np.float32([0])} for _ in range(2))
    other["loose"] = np.float32([3])
    found = compare_values("b1", 0, "outputs", one, other, {"loose": 8.0})
    assert (found.equal, found.exact) == (True, False)
    assert (found.max_abs_error, found.tolerance, found.detail) == (3.0, 8.0, "loose")


def test_what_is_beyond_a_tight_tolerance_comes_before_a_larger_difference_within_another() -> None:
    one = {"loose": np.float32([0]), "tight": np.float32([0])}
    other = {"loose": np.float32([7]), "tight": np.float32([0.5])}
    found = compare_values("b1", 0, "outputs", one, other, {"loose": 8.0})
    assert (found.equal, found.max_abs_error, found.tolerance, found.detail) == (False, 0.5, 0.0, "tight")
