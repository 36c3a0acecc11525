"""Correctness as a trajectory: several requests in a row from one restored state, outputs and state compared.

Warm-up and capture change state, so both paths start from the same snapshot. The normal path runs more than
once, which shows what it changes and how far it strays from itself.

Restored are the arrays that ``state()`` names or the framework knows of, and its random generators. What
the step or ``between`` keep on the host (counters, schedules, Python's and NumPy's generators) goes on from
run to run: where outputs depend on it, the normal path does not repeat itself, and that is what is said.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final

import numpy as np
from msgspec import structs

from cudagraph_gate.adapters import Adapter
from cudagraph_gate.adapters.cuda_core import ArrayAdapter
from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.pilot.comparing import (
    Leaf,
    Moment,
    Trajectory,
    compare_final_state,
    compare_values,
    difference,
    repeat_tolerances,
)
from cudagraph_gate.pilot.digests import AS_AT_START, changed_state, final_state
from cudagraph_gate.pilot.session import Inputs, Session
from cudagraph_gate.records import Comparison
from cudagraph_gate.workload import call_user, flatten

TRAJECTORY_REQUESTS: Final = 5
"""Public faults are right on the first one or two replays and wrong later."""

INPUT_OFFSET_BYTES: Final = 256
"""Where every other request's inputs begin inside a larger allocation: what cuMemAlloc aligns to, so that
kernels that read several elements at once still may."""

CHURN_BLOCKS: Final = 4
"""Blocks of each size: more than a replay's surroundings leave free of one size."""
CHURN_BYTES: Final = 512 * 1024**2
"""Most memory that is churned at once; the small sizes, which are reused most, come first."""

Step = Callable[[Inputs], Any]


@dataclass(frozen=True)
class Start:
    """What every trajectory begins with, and what it runs."""

    requests: Sequence[Inputs]
    state: Mapping[str, Any]
    """Copies of the state's arrays."""
    random: Any
    """State of the framework's random generators."""
    changing: frozenset[str] = frozenset()
    """State entries that the normal path changes; they are read after each request."""


@dataclass(frozen=True)
class Expectation:
    """The normal path's trajectory, and how far it differs from itself."""

    start: Start
    normal: Trajectory
    repeated: Trajectory
    tolerances: Mapping[str, float]
    lost_inputs: tuple[str, ...] = ()
    """Inputs that the step changes in place and does not return: replays change copies of them."""


def expect(session: Session, input_sets: Sequence[Inputs], *, more: Sequence[Inputs] = ()) -> Expectation:
    """Run the normal path three times from the same state: to see what it changes, and how it repeats.

    ``more`` are requests that follow the usual ones, such as those of extreme seeds.
    """
    adapter, state = session.adapter, session.state()
    start = Start(
        requests=[*(input_sets[index % len(input_sets)] for index in range(TRAJECTORY_REQUESTS)), *more],
        state={name: adapter.static_like(value) for name, value in state.items()},
        random=adapter.random_state(session.step),
    )
    lost: dict[str, None] = {}
    changing: set[str] = set()

    def watch(given: Inputs, passed: Inputs, returned: Any) -> None:
        lost.update(dict.fromkeys(changed_unseen(session, given, passed, returned)))
        changing.update(changed_state(session, start.state, besides=changing))

    first = follow(session, session.call, start, after_each=watch)
    # What ``between`` changes shows at the end only, what it puts back only before it.
    changing.update(name for name, told in first.final_state.items() if told != AS_AT_START)
    start = replace(start, changing=frozenset(changing))
    second, third = (follow(session, session.call, start) for _ in range(2))
    return Expectation(start, second, third, repeat_tolerances(second, third), tuple(lost))


def beginning(expected: Expectation, requests: int) -> Expectation:
    """The first requests of a trajectory; the state at its end is compared where it never changes."""
    normal, repeated = (
        replace(path, moments=path.moments[:requests]) for path in (expected.normal, expected.repeated)
    )
    start = replace(expected.start, requests=expected.start.requests[:requests])
    return replace(expected, start=start, normal=normal, repeated=repeated)


def normal_again(session: Session, expected: Expectation) -> Comparison:
    """The normal path's first request once more, against what it gave. Raises what the step raises."""
    first = replace(expected.start, requests=expected.start.requests[:1])
    once = follow(session, session.call, first)
    want, got = expected.normal.moments[0].values(), once.moments[0].values()
    return compare_values(session.shape_name, 0, "normal_again", want, got, expected.tolerances)


def changed_unseen(session: Session, given: Inputs, passed: Inputs, returned: Any) -> list[str]:
    """Names of the inputs that no longer hold what was given, and that no returned array covers."""
    adapter = session.adapter
    outputs = [span(adapter, leaf) for leaf in device_arrays(session, returned)]
    names = []
    for name, before, after in zip(session.input_names, given, passed, strict=True):
        low, high = span(adapter, after)
        if any(start <= low and high <= end for start, end in outputs):
            continue
        if difference(adapter.to_host(before), adapter.to_host(after)).error:
            names.append(name)
    return names


def device_arrays(session: Session, outputs: Any) -> list[Any]:
    """The device arrays among nested outputs."""
    return [leaf for _name, leaf in flatten(outputs) if session.adapter.is_device_array(leaf)]


def span(adapter: Adapter, array: Any) -> tuple[int, int]:
    """First address of an array's elements and the one behind them, as if they lay side by side."""
    start = adapter.address(array)
    return start, start + adapter.nbytes(array)


def follow(
    session: Session,
    step: Step,
    start: Start,
    *,
    before_each: Callable[[int], None] = lambda request: None,
    after_each: Callable[[Inputs, Inputs, Any], None] = lambda given, passed, returned: None,
    alone: bool = False,
) -> Trajectory:
    """Restore the start, run the requests with ``between`` after each, and read what each left behind.

    ``between`` counts from 0 in every trajectory. With ``alone`` it is left out, and so are the digests of
    all state at the end.
    """
    restore(session, start)
    moments = []
    for request, values in enumerate(start.requests):
        before_each(request)
        # Copies: a step may change its inputs in place, and the next run must find them as they were.
        passed = tuple(placed(session, value, request) for value in values)
        returned = step(passed)
        session.adapter.synchronize()
        after_each(values, passed, returned)
        moments.append(_moment(session, returned, start.changing))
        if not alone:
            session.between(request)
    return Trajectory(tuple(moments), {} if alone else final_state(session, start.state))


def placed(session: Session, value: Any, request: int) -> Any:
    """A copy of an input at an address of its own; every other time not at the start of its allocation.

    Where a framework's own allocator decides, each copy begins an allocation.
    """
    copied_value = session.adapter.static_like(value)
    if request % 2 == 0 or type(session.adapter) is not ArrayAdapter or not copied_value.nbytes:
        return copied_value
    whole = session.device.empty((INPUT_OFFSET_BYTES + copied_value.nbytes,), np.uint8)
    pointer = whole.pointer + INPUT_OFFSET_BYTES
    inner = session.device.view(pointer, copied_value.shape, copied_value.dtype, whole)
    session.adapter.copy_into(inner, copied_value)
    return inner


def restore(session: Session, start: Start) -> None:
    """Take the start values back into the state, wherever it lies now, and into the random generators.

    Raises WorkloadError for an array that has another shape or dtype now.
    """
    for name, value in session.state().items():
        if name in start.state:
            try:
                session.adapter.copy_into(value, start.state[name])
            except ValueError as error:
                raise WorkloadError(
                    f"state(): {name} did not keep its shape and dtype ({error})",
                    where=session.workload.where("state"),
                    hint="a graph needs state arrays of one size: allocate the largest one once",
                ) from error
    session.adapter.set_random_state(start.random)
    session.device.synchronize()


def poison(
    session: Session, static: Sequence[Any], changing: frozenset[str], constants: Sequence[Any] = ()
) -> None:
    """Overwrite the static outputs, so that a replay that writes none of them is seen.

    A step may return its state itself, or one of its ``constants``, the inputs that no replay changes: what
    these held is put back.
    """
    adapter = session.adapter
    spans = [span(adapter, leaf) for leaf in static]

    def returned(value: Any) -> bool:
        low, high = span(adapter, value)
        return any(start < high and low < end for start, end in spans)

    kept = [value for name, value in session.state().items() if name in changing or returned(value)]
    kept += [value for value in constants if returned(value)]
    held = [adapter.static_like(value) for value in kept]
    for leaf in static:
        adapter.poison(leaf)
    for value, before in zip(kept, held, strict=True):
        adapter.copy_into(value, before)


def churn(session: Session, arrays: Sequence[Any], *, limit_bytes: int = CHURN_BYTES) -> None:
    """Collect garbage, then allocate, poison and free memory of the sizes that matter, as other work would.

    Memory that a graph still reads although it was freed, or although only a cycle of dead objects held it,
    then no longer holds what it held by luck.
    """
    gc.collect()
    adapter = session.adapter
    sizes: dict[int, Any] = {}
    for array in sorted(arrays, key=adapter.nbytes):
        sizes.setdefault(adapter.nbytes(array), array)
    scratch, total = [], 0
    for size, array in sizes.items():
        total += size * CHURN_BLOCKS
        if total > limit_bytes:
            break
        scratch += [adapter.static_like(array) for _ in range(CHURN_BLOCKS)]
    for block in scratch:
        adapter.poison(block)
    adapter.synchronize()


def addresses(session: Session) -> dict[str, int]:
    """Where each state array lies now."""
    return {name: session.adapter.address(value) for name, value in session.state().items()}


def _moment(session: Session, returned: Any, changing: frozenset[str]) -> Moment:
    adapter = session.adapter
    state = session.state() if changing else {}
    return Moment(
        outputs={name: _read(adapter, leaf) for name, leaf in flatten(returned)},
        state={name: _read(adapter, state[name]) for name in sorted(changing & set(state))},
        returned=copied(adapter, returned) if session.workload.check is not None else None,
    )


def _read(adapter: Adapter, leaf: Any) -> Leaf:
    if adapter.is_device_array(leaf):
        return adapter.to_host(leaf)
    if hasattr(leaf, "__array__") and not isinstance(leaf, np.ndarray | np.generic):
        with suppress(Exception):  # a tensor in host memory; what can't be read so is a plain value
            return adapter.to_host(leaf).copy()
    return _own(leaf)


def _own(leaf: Leaf) -> Leaf:
    """A host value copied: the step may return the same one again with other values in it."""
    if getattr(type(leaf), "__eq__", None) is object.__eq__:  # only ever equal to itself
        return leaf
    with suppress(Exception):
        return copy.deepcopy(leaf)
    return leaf


def copied(adapter: Adapter, value: Any) -> Any:
    """Nested outputs with every device array copied, so that later replays leave them alone."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(copied(adapter, item) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(copied(adapter, item) for item in value)
    if isinstance(value, Mapping):
        other: Any = copy.copy(value) if isinstance(value, MutableMapping) else dict(value)
        for name, item in value.items():
            other[name] = copied(adapter, item)
        return other
    if is_dataclass(value) and not isinstance(value, type):
        same = copy.copy(value)
        for field in fields(value):  # not replace(): fields may be frozen, or no parameters of __init__
            object.__setattr__(same, field.name, copied(adapter, getattr(value, field.name)))
        return same
    return adapter.static_like(value) if adapter.is_device_array(value) else _own(value)


def compare_paths(session: Session, expected: Expectation, actual: Trajectory) -> Iterator[Comparison]:
    """The graph path against the normal one: outputs and state of each request, then all state."""
    shape = session.shape_name
    pairs = zip(expected.normal.moments, actual.moments, strict=True)
    for request, (want, got) in enumerate(pairs):
        yield _compare_outputs(session, expected, request, want, got)
        if expected.start.changing:
            wanted, given = _named(want.state, "state"), _named(got.state, "state")
            yield compare_values(shape, request, "state", wanted, given, expected.tolerances)
    if expected.start.state:
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
        return {name: value for name, value in digests.items() if name not in expected.start.changing}

    want, got = unchanging(expected.normal.final_state), unchanging(actual.final_state)
    return compare_final_state(session.shape_name, len(actual.moments) - 1, want, got)


def _accepted_by_check(session: Session, expected: Any, actual: Any) -> tuple[bool, str]:
    """What the workload's ``check`` says: False or an AssertionError refuses, anything else accepts."""
    check = session.workload.check
    if check is None:
        return True, ""

    def judged() -> tuple[bool, str]:
        try:
            answer = check(expected, actual)
        except AssertionError as error:
            return False, f"check: {error}" if str(error) else "check raised AssertionError"
        return _as_answer(session, answer)

    found: tuple[bool, str] = call_user(judged, workload=session.workload, what="check(expected, actual)")
    return found


def require_discerning_check(session: Session, expected: Expectation) -> None:
    """Raises WorkloadError where the workload's ``check`` accepts outputs that were overwritten.

    One that computes its answer and forgets to return it would let every wrong graph through.
    """
    right = expected.normal.moments[0].returned
    if session.workload.check is None or not device_arrays(session, right):
        return
    spoilt = copied(session.adapter, right)
    for leaf in device_arrays(session, spoilt):
        session.adapter.poison(leaf)
    session.adapter.synchronize()
    try:
        accepted, _why = _accepted_by_check(session, right, spoilt)
    except WorkloadError:  # it can't be computed of such values, which refuses them as well
        return
    if accepted:
        raise WorkloadError(
            "check accepts outputs that were overwritten: it can't tell a wrong graph from a right one",
            where=session.workload.where("check"),
            hint="return True or False, or use assert",
        )


def _as_answer(session: Session, answer: Any) -> tuple[bool, str]:
    try:
        refused = answer is not None and not answer
    except (ValueError, TypeError, RuntimeError) as error:  # an array of answers
        raise WorkloadError(
            f"check returned a {type(answer).__name__} that is neither true nor false",
            where=session.workload.where("check"),
            hint="return True or False, or use assert",
        ) from error
    return (False, "check returned a false value") if refused else (True, "")


def _named(leaves: Mapping[str, Leaf], what: str) -> dict[str, Leaf]:
    return {f"{what} {name}": leaf for name, leaf in leaves.items()}
