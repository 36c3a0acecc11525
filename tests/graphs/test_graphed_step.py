"""The state machine around a graph: allowed and forbidden moves, failures, and the normal path after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from counting_adapter import CountingAdapter, FakeError

from cudagraph_gate.adapters import CapturedStep, Executable
from cudagraph_gate.graphs import GraphedStep, State
from cudagraph_gate.graphs.graphed_step import TRANSITIONS

PHASES: dict[str, Callable[[GraphedStep], object]] = {
    "warm_up": lambda graphed: graphed.warm_up(3),
    "capture": GraphedStep.capture,
    "instantiate": GraphedStep.instantiate,
    "upload": GraphedStep.upload,
    "update": GraphedStep.update,
    "reinstantiate": GraphedStep.reinstantiate,
}
IN_ORDER = ("warm_up", "capture", "instantiate", "upload")
STATE_AFTER = dict(
    zip(IN_ORDER, (State.WARMING, State.CAPTURING, State.INSTANTIATED, State.READY), strict=True)
)
NEXT_PHASES = {
    State.IDLE: {"warm_up"},
    State.WARMING: {"capture"},
    State.CAPTURING: {"instantiate"},
    State.INSTANTIATED: {"upload"},
    State.READY: {"update", "reinstantiate"},
    State.FALLBACK: set(),
}
"""What may be called in each state that a caller can see."""
FORBIDDEN = [
    (state, name) for state, allowed in NEXT_PHASES.items() for name in PHASES if name not in allowed
]


class Doubling:
    """A step that counts its runs: twice the first input plus the second."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, first: Any, second: Any) -> Any:
        self.runs += 1
        return 2 * first + second


def values(start: float) -> Any:
    return np.arange(4.0) + start


def made(state: State = State.READY, **options: Any) -> tuple[GraphedStep, CountingAdapter, Doubling]:
    """A graphed step brought to ``state``, its adapter and the step inside."""
    adapter, step = CountingAdapter(), Doubling()
    graphed = GraphedStep(adapter, step, (values(0), values(10)), **options)
    if state is State.FALLBACK:
        graphed.invalidate()
    for name in IN_ORDER:
        if graphed.state is state:
            break
        PHASES[name](graphed)
    assert graphed.state is state
    adapter.calls.counts.clear()
    step.runs = 0
    return graphed, adapter, step


# --- moves ------------------------------------------------------------------------------------------


def test_the_phases_lead_from_idle_to_ready() -> None:
    graphed, _adapter, _step = made(State.IDLE)
    for name, state in STATE_AFTER.items():
        PHASES[name](graphed)
        assert graphed.state is state


def test_an_update_leads_back_to_ready() -> None:
    graphed, adapter, _step = made()
    assert graphed.update().ok
    assert graphed.state is State.READY
    assert adapter.calls.counts["update"] == 1


def test_instantiating_again_leads_back_to_ready_with_a_new_executable() -> None:
    graphed, adapter, _step = made()
    graphed.reinstantiate()
    assert graphed.state is State.READY
    assert adapter.calls.counts == {"synchronize": 2, "destroy": 1, "instantiate": 1, "upload": 1}
    np.testing.assert_array_equal(graphed(values(5), values(7)), 2 * values(5) + values(7))


def test_a_framework_may_have_a_way_of_its_own_to_instantiate_again() -> None:
    graphed, adapter, _step = made(State.CAPTURING)
    captured: Any = graphed._captured
    given: list[Executable] = []

    def reinstantiate(old: Executable) -> Executable:
        given.append(old)
        return captured.instantiate()  # type: ignore[no-any-return]

    captured.reinstantiate = reinstantiate
    graphed.instantiate()
    graphed.upload()
    graphed.reinstantiate()
    assert len(given) == 1
    assert (adapter.calls.counts["destroy"], adapter.calls.counts["instantiate"]) == (0, 2)
    assert graphed.state is State.READY


def test_preparing_goes_through_all_phases() -> None:
    graphed, adapter, step = made(State.IDLE)
    assert graphed.prepare(warm_up_runs=2) is graphed
    assert graphed.state is State.READY
    assert step.runs == 3  # two to warm up, one captured
    assert adapter.calls.counts["upload"] == 1


@pytest.mark.parametrize(("state", "name"), FORBIDDEN, ids=str)
def test_a_phase_out_of_order_is_refused_and_changes_nothing(state: State, name: str) -> None:
    graphed, adapter, step = made(state)
    with pytest.raises(RuntimeError, match=f"can't go from {state} to"):
        PHASES[name](graphed)
    assert graphed.state is state
    assert not adapter.calls.counts
    assert step.runs == 0


def test_every_state_can_become_invalid_except_those_that_gave_up() -> None:
    assert {before for before, after in TRANSITIONS if after is State.INVALID} == set(State) - {
        State.INVALID,
        State.FALLBACK,
    }
    assert {after for before, after in TRANSITIONS if before is State.INVALID} == {State.FALLBACK}
    assert not [after for before, after in TRANSITIONS if before is State.FALLBACK]


@pytest.mark.parametrize("state", [state for state in NEXT_PHASES if state is not State.READY])
def test_calls_run_the_normal_step_until_the_graph_is_ready(state: State) -> None:
    graphed, adapter, step = made(state)
    np.testing.assert_array_equal(graphed(values(1), values(2)), 2 * values(1) + values(2))
    assert step.runs == 1
    assert adapter.calls.counts["launch"] == 0


# --- phases -----------------------------------------------------------------------------------------


def test_warming_up_runs_the_step_and_waits() -> None:
    graphed, adapter, step = made(State.IDLE)
    graphed.warm_up(3)
    assert step.runs == 3
    assert adapter.calls.counts == {"static_like": 6, "synchronize": 1}  # each run has copies of two inputs


def test_warming_up_leaves_inputs_alone_that_the_step_changes_in_place() -> None:
    given = values(2)

    def step(x: Any) -> Any:
        x += 1
        return x

    GraphedStep(CountingAdapter(), step, (given,)).warm_up(3)
    np.testing.assert_array_equal(given, values(2))


def test_preparing_leaves_the_applications_state_as_it_was() -> None:
    total = values(0)

    def step(x: Any) -> Any:
        np.add(total, x, out=total)
        return total

    GraphedStep(CountingAdapter(), step, (values(2),)).prepare(state=[total])
    np.testing.assert_array_equal(total, values(0))


def test_the_capture_uses_static_copies_that_were_waited_for() -> None:
    graphed, adapter, _step = made(State.WARMING)
    captured = graphed.capture()
    assert captured.outputs is graphed.outputs
    assert adapter.calls.counts == {"static_like": 2, "synchronize": 1, "capture": 1}


def test_uploading_waits_for_the_upload() -> None:
    graphed, adapter, _step = made(State.INSTANTIATED)
    graphed.upload()
    assert adapter.calls.counts == {"upload": 1, "synchronize": 1}


# --- use --------------------------------------------------------------------------------------------


def test_a_request_copies_its_inputs_and_launches_once() -> None:
    graphed, adapter, _step = made()
    returned = graphed(values(5), values(7))
    assert adapter.calls.counts == {"copy_into": 2, "launch": 1}
    assert returned is graphed.outputs
    np.testing.assert_array_equal(returned, 2 * values(5) + values(7))


def test_each_replay_overwrites_the_static_outputs() -> None:
    graphed, _adapter, _step = made()
    first = graphed(values(5), values(7))
    second = graphed(values(1), values(1))
    assert first is second
    np.testing.assert_array_equal(first, 3 * values(1))


def test_inputs_that_may_not_change_keep_the_captures_values() -> None:
    graphed, adapter, _step = made(updatable=(True, False))
    np.testing.assert_array_equal(graphed(values(5), values(99)), 2 * values(5) + values(10))
    assert adapter.calls.counts["copy_into"] == 1


def test_a_launch_alone_replays_the_values_that_are_there() -> None:
    graphed, _adapter, _step = made()
    graphed.copy_in((values(3), values(4)))
    graphed.launch()
    np.testing.assert_array_equal(graphed.outputs, 2 * values(3) + values(4))


@pytest.mark.parametrize(
    "inputs", [(), (values(0),), (values(0),) * 3, (values(0), np.zeros(5)), (np.zeros((4, 1)), values(0))]
)
def test_inputs_that_do_not_fit_are_refused_and_the_graph_stays_ready(inputs: tuple[Any, ...]) -> None:
    graphed, adapter, _step = made()
    with pytest.raises(ValueError, match=r"inputs for a graph of 2|does not fit"):
        graphed.replay(inputs)
    assert adapter.calls.counts["launch"] == 0
    np.testing.assert_array_equal(graphed(values(5), values(7)), 2 * values(5) + values(7))


@pytest.mark.parametrize("state", [State.IDLE, State.WARMING, State.CAPTURING, State.FALLBACK])
def test_launching_without_an_executable_is_refused_and_changes_nothing(state: State) -> None:
    graphed, _adapter, _step = made(state)
    with pytest.raises(RuntimeError, match=f"no executable graph in state {state}"):
        graphed.launch()
    assert graphed.state is state


@pytest.mark.parametrize("state", [State.IDLE, State.WARMING, State.FALLBACK])
@pytest.mark.parametrize("act", [GraphedStep.copy_in, GraphedStep.replay])
def test_without_a_graph_nothing_is_copied(state: State, act: Callable[..., object]) -> None:
    graphed, adapter, _step = made(state)
    with pytest.raises(RuntimeError, match=f"no graph in state {state}"):
        act(graphed, (values(0), values(0)))
    assert graphed.state is state
    assert not adapter.calls.counts


@pytest.mark.parametrize("state", list(NEXT_PHASES))
def test_what_the_graph_holds_can_be_asked_for_at_any_time(state: State) -> None:
    graphed, _adapter, _step = made(state)
    captured = state in (State.CAPTURING, State.INSTANTIATED, State.READY)
    assert (graphed.graph is not None, graphed.outputs is not None) == (captured, captured)
    assert len(graphed.variables) == (2 if captured else 0)
    assert graphed.constants == ()
    assert len(graphed.example) == (0 if state is State.FALLBACK else 2)


# --- sources ------------------------------------------------------------------------------------------


class Built:
    """A source whose static inputs are its own."""

    def __init__(self, adapter: CountingAdapter, count: int = 2) -> None:
        self._adapter = adapter
        self.static = tuple(np.full(4, -1.0) for _ in range(count))

    def static_inputs(self, example: tuple[Any, ...]) -> tuple[Any, ...]:
        for target, value in zip(self.static, example, strict=False):
            target[...] = value
        return self.static

    def capture(self, static: tuple[Any, ...]) -> CapturedStep:
        return self._adapter.capture(lambda first, second: first - second, static)


def test_a_graph_of_another_source_goes_through_the_same_states() -> None:
    adapter = CountingAdapter()
    source = Built(adapter)
    graphed = GraphedStep(adapter, Doubling(), (values(9), values(1)), source=source)
    assert graphed.source is source
    graphed.prepare()
    np.testing.assert_array_equal(graphed.outputs, values(9) - values(1))
    np.testing.assert_array_equal(graphed(values(5), values(2)), np.full(4, 3.0))
    np.testing.assert_array_equal(source.static[0], values(5))
    assert adapter.calls.counts["static_like"] == 6  # of the warm-up alone


def test_a_source_with_other_inputs_than_the_step_leads_to_the_normal_path() -> None:
    adapter = CountingAdapter()
    graphed = GraphedStep(adapter, Doubling(), (values(9), values(1)), source=Built(adapter, count=3))
    graphed.warm_up(1)
    with pytest.raises(ValueError, match="3 static inputs for a step of 2"):
        graphed.capture()
    assert graphed.state is State.FALLBACK


# --- failures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "call", "act"),
    [
        (State.IDLE, "synchronize", PHASES["warm_up"]),
        (State.WARMING, "static_like", PHASES["capture"]),
        (State.WARMING, "synchronize", PHASES["capture"]),
        (State.WARMING, "capture", PHASES["capture"]),
        (State.CAPTURING, "instantiate", PHASES["instantiate"]),
        (State.INSTANTIATED, "upload", PHASES["upload"]),
        (State.INSTANTIATED, "synchronize", PHASES["upload"]),
        (State.READY, "update", PHASES["update"]),
        (State.READY, "synchronize", PHASES["reinstantiate"]),
        (State.READY, "destroy", PHASES["reinstantiate"]),
        (State.READY, "instantiate", PHASES["reinstantiate"]),
        (State.READY, "upload", PHASES["reinstantiate"]),
        (State.READY, "launch", GraphedStep.launch),
        (State.READY, "launch", lambda graphed: graphed(values(0), values(0))),
        (State.READY, "copy_into", lambda graphed: graphed(values(0), values(0))),
    ],
)
def test_a_failure_leads_to_the_normal_path(
    state: State, call: str, act: Callable[[GraphedStep], object]
) -> None:
    graphed, adapter, step = made(state)
    adapter.calls.fail(call)
    with pytest.raises(FakeError, match=call):
        act(graphed)
    adapter.calls.failing.clear()
    adapter.calls.counts.clear()
    assert graphed.state is State.FALLBACK
    assert graphed.outputs is None
    np.testing.assert_array_equal(graphed(values(5), values(7)), 2 * values(5) + values(7))
    assert step.runs >= 1
    assert not adapter.calls.counts


@pytest.mark.parametrize("call", ["upload", "launch", "update"])
def test_after_a_failure_graph_and_executable_are_destroyed_once(call: str) -> None:
    graphed, adapter, _step = made(State.INSTANTIATED if call == "upload" else State.READY)
    adapter.calls.fail(call)
    with pytest.raises(FakeError):
        getattr(graphed, call)()
    graphed.invalidate()
    assert (adapter.calls.counts["destroy"], adapter.calls.counts["destroy_graph"]) == (1, 1)


def test_a_graph_that_was_never_instantiated_is_destroyed_too() -> None:
    graphed, adapter, _step = made(State.CAPTURING)
    graphed.invalidate()
    assert adapter.calls.counts == {"destroy_graph": 1}


def test_after_a_failed_capture_the_framework_is_mended() -> None:
    graphed, adapter, _step = made(State.WARMING)
    adapter.calls.fail("capture", "recover")
    with pytest.raises(FakeError, match="capture failed"):
        graphed.capture()
    assert adapter.calls.counts["recover"] == 1


def test_the_steps_own_error_passes_through_the_capture() -> None:
    adapter = CountingAdapter()

    def broken(_value: Any) -> Any:
        raise KeyError("weights")

    graphed = GraphedStep(adapter, broken, (values(0),))
    graphed.warm_up(0)
    with pytest.raises(KeyError, match="weights"):
        graphed.capture()
    assert graphed.state is State.FALLBACK


def test_an_interruption_leads_to_the_normal_path_too() -> None:
    graphed, adapter, _step = made()
    adapter.calls.failing["launch"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        graphed.launch()
    assert graphed.state is State.FALLBACK
    assert adapter.calls.counts["destroy"] == 1


@pytest.mark.parametrize("names", [("destroy",), ("destroy_graph",), ("destroy", "destroy_graph")])
def test_a_failure_while_destroying_does_not_hide_the_first_one(names: tuple[str, ...]) -> None:
    graphed, adapter, _step = made()
    adapter.calls.fail("launch", *names)
    with pytest.raises(FakeError, match="launch failed"):
        graphed.launch()
    assert graphed.state is State.FALLBACK
    assert (adapter.calls.counts["destroy"], adapter.calls.counts["destroy_graph"]) == (1, 1)


def test_a_refused_update_gives_the_graph_up() -> None:
    graphed, adapter, _step = made()
    adapter.calls.fail("refuse_update")
    result = graphed.update()
    assert (result.ok, result.result) == (False, "answer")
    assert graphed.state is State.FALLBACK
    assert adapter.calls.counts["destroy"] == 1


@pytest.mark.parametrize("state", list(NEXT_PHASES))
def test_giving_up_is_possible_in_every_state_and_twice(state: State) -> None:
    graphed, adapter, _step = made(state)
    graphed.invalidate()
    graphed.invalidate()
    assert graphed.state is State.FALLBACK
    assert adapter.calls.counts["destroy"] == (state in (State.INSTANTIATED, State.READY))
