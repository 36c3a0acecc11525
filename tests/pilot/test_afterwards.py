"""One request compared again after many: what ``between`` did later, or requests did, is found and named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opened_sessions import opened

from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.afterwards import FIRST_LOOK, WALK_REQUESTS, Afterwards, next_look
from cudagraph_gate.pilot.graph_path import ready_graph
from cudagraph_gate.pilot.measure import Request, blocks, graph_request, normal_request
from cudagraph_gate.records import Finding, PathName, Phase

WEIGHTS = """
        def build(shape):
            global work, weights
            work, weights = array(), array(1)
            return step

        def step(x):
            device.copy(work, x)
            add(work, weights)
            return work
        """
STATE = """
        def state():
            return {"weights": weights}
        """


IN_PLACE = "device.copy(weights, array(2))"


def between(change: str, when: str = "i == 20") -> str:
    """A ``between`` that changes something late: after all requests of the trajectory."""
    return f"""
        def between(i):
            global weights, work
            if {when}:
                {change}
        """


class Walked:
    """A captured graph that was found right, then compared again after a walk."""

    def __init__(self, folder: Path, text: str = "", *, far: int | None = None) -> None:
        self.opened = opened(folder, WEIGHTS + text)
        session, log = self.opened.session, self.opened.log
        sets = session.input_sets(1)
        self.expected = correctness.expect(session, sets)
        made_at = correctness.addresses(session)
        self.graph = ready_graph(session, sets[0])
        assert self.right_before()
        log.phase = Phase.TIMING
        self.afterwards = Afterwards(
            session,
            self.graph.replay,
            self.expected,
            log,
            made_at=made_at,
            static=correctness.device_arrays(session, self.graph.outputs),
        )
        if far is not None:
            session.counted.next_index = far
        self.agrees = self.afterwards.walk()

    def right_before(self) -> bool:
        """Whether the trajectory sees nothing wrong."""
        session = self.opened.session
        actual = correctness.follow(session, self.graph.replay, self.expected.start)
        return all(found.equal for found in correctness.compare_paths(session, self.expected, actual))

    def time(self) -> bool:
        """Time both paths, and compare again."""
        session = self.opened.session
        requests: Mapping[PathName, Request] = {
            "normal": normal_request(session),
            "graph": graph_request(session, self.graph),
        }
        for _block in blocks(session, requests, session.input_sets(1), 3):
            pass
        return self.afterwards.look()

    @property
    def finding(self) -> Finding:
        """The only one."""
        (only,) = self.opened.of(Finding)
        return only


# --- what is found ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "at"),
    [
        ("i == 20", 26),
        ("i % 10 == 9", 11),
        ("i % 25 == 24", 26),
        ("i % 50 == 49", 59),
        ("i % 100 == 99", 134),
    ],
)
def test_weights_that_are_replaced_late_are_found_and_between_is_named(
    tmp_path: Path, when: str, at: int
) -> None:
    walked = Walked(tmp_path, between("weights = array(2 + i)", when))
    found = walked.finding
    assert not walked.agrees
    assert (found.code, found.phase, found.blocks) == (Reason.UNSTABLE_ADDRESS, Phase.TIMING, True)
    assert found.message.startswith(f"after between(0) to between({at}) the graph path gives other outputs")
    assert "output output" in found.message
    assert found.where == walked.opened.place("def between(i):")
    assert "let between change" in found.advice


@given(every=st.integers(FIRST_LOOK, WALK_REQUESTS // 2), offset=st.integers(0, 200))
def test_some_look_comes_after_an_odd_number_of_changes(every: int, offset: int) -> None:
    offset %= every
    looks, due = [], next_look(5)  # the trajectory has had five
    for index in range(5, WALK_REQUESTS):
        if index + 1 >= due:
            looks.append(index)
            due = next_look(index + 1)
    looks.append(WALK_REQUESTS - 1)
    changes = [index for index in range(WALK_REQUESTS) if index % every == offset]
    assert any(sum(change <= look for change in changes) % 2 for look in looks)


def test_what_is_replaced_after_the_walk_is_found_by_a_look_after_timing(tmp_path: Path) -> None:
    change = between("old.append(weights); weights = array(2)", "i == 250")
    walked = Walked(tmp_path, "\n        old = []\n" + change)
    assert walked.agrees
    assert not walked.time()
    assert walked.finding.code is Reason.UNSTABLE_ADDRESS


def test_equal_weights_elsewhere_are_found_where_state_names_them(tmp_path: Path) -> None:
    walked = Walked(tmp_path, STATE + between("weights = array(1)"))
    assert not walked.agrees
    assert walked.finding.code is Reason.UNSTABLE_ADDRESS
    assert walked.finding.message.startswith("state weights lies elsewhere after between(0) to between(")
    assert walked.finding.message.endswith("the graph still uses the old memory")


def test_equal_weights_elsewhere_are_found_where_the_old_memory_is_used_again(tmp_path: Path) -> None:
    walked = Walked(tmp_path, between("weights = array(1); array(1, 2 * N)"))
    assert walked.finding.code is Reason.UNSTABLE_ADDRESS


@pytest.mark.parametrize("every", [25, 40])
def test_what_a_normal_call_would_put_right_is_found(tmp_path: Path, every: int) -> None:
    walked = Walked(
        tmp_path,
        f"""
        old, value = True, 1.0

        def step(x):
            global old
            if old:
                device.copy(weights, array(value))
                old = False
            device.copy(work, x)
            add(work, weights)
            return work

        def between(i):
            global old, value
            if i % {every} == {every} - 1:
                old, value = True, value + 1
        """,
    )
    assert walked.finding.code is Reason.UNSTABLE_ADDRESS


def test_a_value_of_the_host_that_changes_late_is_found(tmp_path: Path) -> None:
    text = """
        scale = [0]

        def step(x):
            device.copy(work, x)
            add(work, scale[0])
            return work
        """
    walked = Walked(tmp_path, text + between("scale[0] = 3"))
    assert "error 3)" in walked.finding.message
    assert "keep what the step reads in device memory" in walked.finding.advice


def test_without_a_between_a_path_that_goes_wrong_later_is_wrong(tmp_path: Path) -> None:
    workload = opened(tmp_path, WEIGHTS)
    session = workload.session
    expected = correctness.expect(session, session.input_sets(1))
    stale = ready_graph(session, workload.first)
    afterwards = Afterwards(
        session, lambda _inputs: stale.replay(workload.first), expected, workload.log, made_at={}
    )
    assert afterwards.walk(), "without a between nothing can have changed yet"
    assert not afterwards.look()
    assert not afterwards.look(), "and it is said once"
    (found,) = workload.of(Finding)
    assert (found.code, found.where, found.advice) == (Reason.WRONG_OUTPUT, "", "")
    assert found.message.startswith("after many requests the graph path gives other outputs than")


def test_a_path_that_writes_nothing_is_found_by_the_poison(tmp_path: Path) -> None:
    workload = opened(tmp_path, WEIGHTS)
    session = workload.session
    expected = correctness.expect(session, session.input_sets(1))
    work = session.workload.module.work
    afterwards = Afterwards(session, lambda _inputs: work, expected, workload.log, made_at={}, static=[work])
    assert not afterwards.look()


# --- what holds -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        between("device.copy(weights, array(2))"),
        STATE + between("device.copy(weights, array(2))", "True"),
    ],
    ids=["none", "reloaded late", "reloaded each time"],
)
def test_what_changes_in_place_holds(tmp_path: Path, text: str) -> None:
    walked = Walked(tmp_path, text)
    assert walked.agrees
    assert walked.opened.of(Finding) == []


SEEN = """
        SEEN = []
        def between(i):
            SEEN.append(i)
        """


def test_a_look_leaves_the_count_alone(tmp_path: Path) -> None:
    walked = Walked(tmp_path, SEEN, far=WALK_REQUESTS)
    assert walked.agrees
    seen = walked.opened.session.workload.module.SEEN
    assert seen == [*range(5)] * 4, "three expectations and a trajectory"


def test_a_walk_counts_on_to_its_end(tmp_path: Path) -> None:
    walked = Walked(tmp_path, SEEN)
    assert walked.opened.session.workload.module.SEEN[20:] == list(range(5, WALK_REQUESTS))


def test_a_slow_between_ends_the_walk_early(tmp_path: Path) -> None:
    workload = opened(tmp_path, WEIGHTS + between("time.sleep(0.001)", "True"))
    session = workload.session
    expected = correctness.expect(session, session.input_sets(1))
    graph = ready_graph(session, workload.first)
    afterwards = Afterwards(session, graph.replay, expected, workload.log, made_at={}, budget_s=0.02)
    assert afterwards.walk()
    assert 6 <= session.next_index < 30


# --- what decides nothing -----------------------------------------------------------------------------


def test_a_normal_path_that_stopped_repeating_itself_leaves_it_undecided(tmp_path: Path) -> None:
    text = """
        late = []

        def step(x):
            device.copy(work, x)
            if late:
                late.append(1)
            add(work, len(late) % 2)
            return work
        """
    walked = Walked(tmp_path, text + between("late.append(1)"))
    assert not walked.agrees
    assert walked.finding.code is Reason.UNMEASURABLE
    assert "the normal path does not repeat itself" in walked.finding.message
