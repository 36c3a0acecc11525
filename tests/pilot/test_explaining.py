"""The kind of fault behind a graph that differs from the normal path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from opened_sessions import Opened, opened

from cudagraph_gate.model import Reason
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.explaining import Case, Explanation, drawn_by_chance, explain, noise_like
from cudagraph_gate.pilot.graph_path import ready_graph
from cudagraph_gate.pilot.own_path import PathMaker, own_path
from cudagraph_gate.pilot.session import Session


def explained(workload: Opened, make_path: PathMaker = ready_graph) -> Explanation | None:
    """What is said of a graph that was followed amid churn."""
    session = workload.session
    expected = correctness.expect(session, session.input_sets(1))
    graph = make_path(session, workload.first)
    outputs, constants = getattr(graph, "outputs", None), getattr(graph, "constants", ())
    static = [leaf for leaf in [outputs] if session.adapter.is_device_array(leaf)]

    def poison(_request: int) -> None:
        correctness.poison(session, static, expected.start.changing, constants)

    def disturb(request: int) -> None:
        poison(request)
        churn(session)

    actual = correctness.follow(session, graph.replay, expected.start, before_each=disturb)
    wrong = [each for each in correctness.compare_paths(session, expected, actual) if not each.equal]
    assert wrong, "the workload of this test is meant to go wrong"
    return explain(Case(session, graph, expected, actual, poison, disturb))


def churn(session: Session) -> None:
    correctness.churn(session, [*session.state().values(), *session.inputs(1)])


def found(workload: Opened) -> Explanation:
    explanation = explained(workload)
    assert explanation is not None
    return explanation


def test_a_rate_of_the_host_that_the_scheduler_lowers_is_named(tmp_path: Path) -> None:
    explanation = found(
        opened(
            tmp_path,
            """
            rate = 0.5

            def step(x):
                device.copy(work, x)
                add(work, rate)
                return work

            def between(i):
                global rate
                rate = 0.5 / (i + 2)
            """,
        )
    )
    assert explanation.code is Reason.FROZEN_HOST_STATE
    assert "argument 1 of add" in explanation.message
    assert explanation.call == "add"


def test_another_way_of_the_host_is_named(tmp_path: Path) -> None:
    explanation = found(
        opened(
            tmp_path,
            """
            even = True

            def step(x):
                device.copy(work, x)
                add(work, 1, kernel=ADD if even else BUMP)
                add(work, 1 if even else 2)
                return work

            def between(i):
                global even
                even = i >= 3
            """,
        )
    )
    assert explanation.code is Reason.FROZEN_HOST_STATE


def test_state_that_each_call_binds_anew_is_named(tmp_path: Path) -> None:
    explanation = found(
        opened(
            tmp_path,
            """
            side = array()
            pool = [array() for _ in range(64)]

            def step(x):
                global side
                side = pool.pop(0)
                pool.append(side)
                device.copy(work, x)
                device.copy(side, x)
                return work

            def between(i):
                global side
                side = array(9)

            def state():
                return {"side": side}
            """,
        )
    )
    assert explanation.code is Reason.FROZEN_HOST_STATE
    assert "side" in explanation.message


def test_memory_that_was_freed_after_the_capture_is_told_from_a_wrong_computation(tmp_path: Path) -> None:
    explanation = found(
        opened(
            tmp_path,
            """
            def step(x):
                held.append(spare.pop())
                device.copy(work, x)
                add(work, held[-1])
                return work

            def between(i):
                held.clear()

            def _plus(shape, x, y, n):
                x[:n] += y[:n] if hasattr(y, "shape") and y.shape else y

            ADD = Kernel("add", "", _plus, 2_000)

            def add(x, y):
                device.launch(ADD, LAUNCH, (x, y, np.int32(N)))

            held, spare = [], [array(1) for _ in range(400)]
            """,
        )
    )
    assert explanation.code is Reason.LIFETIME


def test_a_padded_slot_that_overwrites_the_last_row_is_named(tmp_path: Path) -> None:
    explanation = found(
        opened(
            tmp_path,
            """
            ROWS = 4
            cache = device.array(np.zeros((ROWS, N), np.float32))

            def _put(shape, cache, x, row):
                cache[row] = x

            PUT = Kernel("put", "", _put, 2_000)

            def put(x, row):
                device.launch(PUT, LAUNCH, (cache, x, np.int32(row)))

            def step(x):
                device.copy(work, x)
                put(x, 0)
                if device.current_stream().is_capturing:
                    put(work, -1)
                return work

            def state():
                return {"cache": cache}
            """,
        )
    )
    assert explanation.code is Reason.PADDING
    assert "row 3" in explanation.message


def test_where_nothing_gives_the_fault_away_nothing_is_claimed(tmp_path: Path) -> None:
    workload = opened(
        tmp_path,
        """
        def step(x):
            device.copy(work, x)
            add(work, 2 if device.current_stream().is_capturing else 1)
            return work
        """,
    )
    assert explained(workload) is None


# --- chance ---------------------------------------------------------------------------------------


def draws(make: object, seed: int = 3) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    source = np.random.default_rng(seed)
    for _request in range(5):
        one, two, three = (make(source, run) for run in range(3))  # type: ignore[operator]
        yield one, two, three


@pytest.mark.parametrize(
    "draw",
    [
        lambda source, _run: (source.random(256) > 0.5) * 2.0,
        lambda source, _run: source.random(256),
        lambda source, _run: source.normal(size=256).astype(np.float32),
        lambda source, _run: source.integers(0, 9, 256),
    ],
    ids=["mask", "uniform", "normal", "integers"],
)
def test_independent_draws_are_chance(draw: object) -> None:
    assert noise_like(draws(draw))


@pytest.mark.parametrize(
    "value",
    [
        lambda _source, run: np.full(256, float(run)),
        lambda _source, run: np.linspace(0, 1, 256) * 0.5**run,
        lambda _source, run: np.linspace(0, 1, 256) * (run % 2),
        lambda _source, _run: np.ones(256),
        lambda source, _run: source.random(2),
    ],
    ids=["counter", "schedule", "two in turn", "the same", "too few"],
)
def test_what_follows_a_rule_is_no_chance(value: object) -> None:
    assert not noise_like(draws(value))


def test_a_seed_counted_up_on_the_host_is_chance_to_whoever_sees_the_outputs(tmp_path: Path) -> None:
    workload = opened(
        tmp_path,
        """
        calls = 0

        def _mask(shape, x, seed, n):
            x[:n] *= np.random.default_rng(int(seed)).random(n) > 0.5

        MASK = Kernel("mask", "", _mask, 2_000)

        def step(x):
            global calls
            calls += 1
            device.copy(work, x)
            device.launch(MASK, LAUNCH, (work, np.int32(calls), np.int32(N)))
            return work
        """,
    )
    expected = correctness.expect(workload.session, workload.session.input_sets(1))
    assert drawn_by_chance(workload.session, expected, "output output")


OWN = """
        def captured(x):
            table, stream = array(3), device.create_stream()
            with device.use_stream(stream):
                device.begin_capture(stream)
                try:
                    device.copy(work, x)
                    add(work, table)
                finally:
                    graph = device.end_capture(stream)
            {keep}
            return graph.instantiate()

        KEPT = []
        table = array(3)

        def step(x):
            device.copy(work, x)
            add(work, table)
            {spoil}
            return work

        def build_graphed(shape):
            static = array()
            executable = captured(static)

            def graphed(x):
                device.copy(static, x)
                executable.launch(device.current_stream())
                return work

            return graphed

        def _plus(shape, x, y, n):
            x[:n] += y[:n] if hasattr(y, "shape") and y.shape else y

        ADD = Kernel("add", "", _plus, 2_000)
"""


@pytest.mark.parametrize(
    ("keep", "spoil", "code"),
    [("", "", Reason.LIFETIME), ("KEPT.append(table)", "add(work, 1)", None)],
)
def test_an_own_path_whose_array_was_let_go_is_told_from_one_that_computes_something_else(
    tmp_path: Path, keep: str, spoil: str, code: Reason | None
) -> None:
    text = OWN.format(keep=keep, spoil=spoil)
    explanation = explained(opened(tmp_path, text), own_path)
    assert (None if explanation is None else explanation.code) is code
