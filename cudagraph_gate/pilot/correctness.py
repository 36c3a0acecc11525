"""Correctness as a trajectory: several requests in a row from one restored state, outputs and state compared.

Warm-up and capture change state, so both paths start from the same snapshot. The normal path runs more than
once, which shows what it changes and how far it strays from itself.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Final

import numpy as np
from msgspec import structs

from cudagraph_gate.adapters import Adapter
from cudagraph_gate.device.port import HostArray
from cudagraph_gate.pilot.comparing import (
    Leaf,
    Moment,
    Trajectory,
    compare_final_state,
    compare_values,
    repeat_tolerances,
)
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.records import Comparison
from cudagraph_gate.workload import flatten

TRAJECTORY_REQUESTS: Final = 5
"""Public faults are right on the first one or two replays and wrong later."""

Step = Callable[[Inputs], Any]


@dataclass(frozen=True)
class Expectation:
    """The normal path's trajectory, how far it differs from itself, and the state that it starts from."""

    inputs: Sequence[Inputs]
    start: Mapping[str, Any]
    changing: frozenset[str]
    normal: Trajectory
    repeated: Trajectory
    tolerances: Mapping[str, float]


def expect(session: Session, input_sets: Sequence[Inputs]) -> Expectation:
    """Run the normal path three times from the same state: to see what it changes, and how it repeats."""
    inputs = [input_sets[index % len(input_sets)] for index in range(TRAJECTORY_REQUESTS)]
    adapter = session.adapter
    start = {name: adapter.static_like(value) for name, value in session.state().items()}
    before = digests(adapter, session.state())

    def normal(values: Inputs) -> Any:
        return session.call(values)

    first = follow(session, normal, inputs, start, frozenset())
    changing = frozenset(name for name, digest in first.final_state.items() if digest != before.get(name))
    second = follow(session, normal, inputs, start, changing)
    third = follow(session, normal, inputs, start, changing)
    return Expectation(inputs, start, changing, second, third, repeat_tolerances(second, third))


def follow(
    session: Session,
    step: Step,
    inputs: Sequence[Inputs],
    start: Mapping[str, Any],
    changing: frozenset[str],
    *,
    before_each: Callable[[], None] = lambda: None,
) -> Trajectory:
    """Restore the start, run the requests with ``between`` after each, and read what each left behind."""
    restore(session, start)
    moments = []
    with session.adapter.preserved_randomness():
        for index, values in enumerate(inputs):
            before_each()
            returned = step(values)
            session.adapter.synchronize()
            moments.append(_moment(session, returned, changing))
            session.between(index)
        final = digests(session.adapter, session.state())
    return Trajectory(tuple(moments), final)


def restore(session: Session, start: Mapping[str, Any]) -> None:
    """Copy the start values back into the state, wherever it lies now."""
    for name, value in session.state().items():
        if name in start:
            session.adapter.copy_into(value, start[name])
    session.device.synchronize()


def _moment(session: Session, returned: Any, changing: frozenset[str]) -> Moment:
    adapter = session.adapter
    state = session.state() if changing else {}
    return Moment(
        outputs={name: _read(adapter, leaf) for name, leaf in flatten(returned)},
        state={name: _read(adapter, state[name]) for name in sorted(changing & set(state))},
        returned=copied(adapter, returned) if session.workload.check is not None else None,
    )


def _read(adapter: Adapter, leaf: Any) -> Leaf:
    return adapter.to_host(leaf) if adapter.is_device_array(leaf) else leaf


def digests(adapter: Adapter, named: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of each array's values, by name."""
    return {name: digest(adapter.to_host(value)) for name, value in named.items()}


def digest(values: HostArray) -> str:
    """SHA-256 of an array's dtype, shape and values."""
    whole = hashlib.sha256(f"{values.dtype}{values.shape}".encode())
    whole.update(np.ascontiguousarray(values).tobytes())
    return whole.hexdigest()


def copied(adapter: Adapter, value: Any) -> Any:
    """Nested outputs with every device array copied, so that later replays leave them alone."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(copied(adapter, item) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(copied(adapter, item) for item in value)
    if isinstance(value, Mapping):
        other: Any = copy.copy(value)
        for name, item in value.items():
            other[name] = copied(adapter, item)
        return other
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{name: copied(adapter, getattr(value, name)) for name in vars(value)})
    return adapter.static_like(value) if adapter.is_device_array(value) else value


def compare_paths(session: Session, expected: Expectation, actual: Trajectory) -> Iterator[Comparison]:
    """The graph path against the normal one: outputs and state of each request, then all state."""
    shape = session.shape_name
    pairs = zip(expected.normal.moments, actual.moments, strict=True)
    for request, (want, got) in enumerate(pairs):
        yield _compare_outputs(session, expected, request, want, got)
        if expected.changing:
            wanted, given = _named(want.state, "state"), _named(got.state, "state")
            yield compare_values(shape, request, "state", wanted, given, expected.tolerances)
    if expected.start:
        yield _compare_final(session, expected, actual)


def _compare_outputs(
    session: Session, expected: Expectation, request: int, want: Moment, got: Moment
) -> Comparison:
    wanted, given = _named(want.outputs, "output"), _named(got.outputs, "output")
    found = compare_values(session.shape_name, request, "outputs", wanted, given, expected.tolerances)
    if set(wanted) != set(given):
        names = ", ".join(sorted(set(wanted) ^ set(given)))
        return structs.replace(found, equal=False, exact=False, detail=f"not returned by both paths: {names}")
    if session.workload.check is None:
        return found
    accepted, why = _accepted_by_check(session, want.returned, got.returned)
    return structs.replace(found, equal=accepted, detail=why)


def _compare_final(session: Session, expected: Expectation, actual: Trajectory) -> Comparison:
    # Entries that change were compared with their tolerances, request by request.
    def unchanging(digests: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in digests.items() if name not in expected.changing}

    want, got = unchanging(expected.normal.final_state), unchanging(actual.final_state)
    return compare_final_state(session.shape_name, len(actual.moments) - 1, want, got)


def _accepted_by_check(session: Session, expected: Any, actual: Any) -> tuple[bool, str]:
    """What the workload's ``check`` says: False or an AssertionError refuses, anything else accepts."""
    check = session.workload.check
    if check is None:
        return True, ""
    with session.blaming_user():
        try:
            answer = check(expected, actual)
        except AssertionError as error:
            return False, f"check: {error}" if str(error) else "check raised AssertionError"
    return (False, "check returned a false value") if answer is not None and not answer else (True, "")


def _named(leaves: Mapping[str, Leaf], what: str) -> dict[str, Leaf]:
    return {f"{what} {name}": leaf for name, leaf in leaves.items()}
