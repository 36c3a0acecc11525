"""A step with its graph: an explicit state machine, each failure of which leads back to the normal path.

idle → warming → capturing → instantiated → ready ⇄ updating, ready ⇄ reinstantiating; from anywhere →
invalid → fallback. Once a phase has failed, the executable is destroyed and never launched again; calling the
step runs the normal one. ``docs/graph_cache.md`` shows it in an application.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Protocol, Self

from cudagraph_gate.adapters import Adapter, CapturedStep, Executable
from cudagraph_gate.device.port import Graph, UpdateResult
from cudagraph_gate.errors import DeviceError
from cudagraph_gate.graphs.update import Check, InputError, InputRules


class State(StrEnum):
    """Where a graphed step stands."""

    IDLE = "idle"
    WARMING = "warming"
    CAPTURING = "capturing"
    INSTANTIATED = "instantiated"
    READY = "ready"
    UPDATING = "updating"
    REINSTANTIATING = "reinstantiating"
    INVALID = "invalid"
    FALLBACK = "fallback"


TRANSITIONS: Final = frozenset(
    {
        (State.IDLE, State.WARMING),
        (State.WARMING, State.CAPTURING),
        (State.CAPTURING, State.INSTANTIATED),
        (State.INSTANTIATED, State.READY),
        (State.READY, State.UPDATING),
        (State.UPDATING, State.READY),
        (State.READY, State.REINSTANTIATING),
        (State.REINSTANTIATING, State.READY),
        (State.INVALID, State.FALLBACK),
        *((state, State.INVALID) for state in State if state not in (State.INVALID, State.FALLBACK)),
    }
)
"""Every move that is allowed; any other is a bug of the caller."""
_BESIDES: Final = (DeviceError, RuntimeError)
"""What cleaning up after a failure may raise; the failure itself is the one to report."""


class GraphSource(Protocol):
    """Where the graph of a step comes from."""

    def static_inputs(self, example: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arrays that the graph will read, one for each input, holding the example's values."""

    def capture(self, static: tuple[Any, ...]) -> CapturedStep:
        """Make the graph on them. Raises what the step or the driver raised; nothing captures afterwards."""


@dataclass(frozen=True)
class StreamCapture:
    """The usual source: the step is captured by its framework's adapter, on copies of the inputs."""

    adapter: Adapter
    step: Callable[..., Any]

    def static_inputs(self, example: tuple[Any, ...]) -> tuple[Any, ...]:
        """Enqueue a copy of each input."""
        return tuple(self.adapter.static_like(value) for value in example)

    def capture(self, static: tuple[Any, ...]) -> CapturedStep:
        """Capture one call of the step."""
        return self.adapter.capture(self.step, static)


class GraphedStep:
    """``step`` captured with static copies of ``inputs``, or its graph made by another ``source``.

    ``updatable`` says per input whether replays take new values; the others keep the values of the capture.
    ``rules`` says more of the inputs: which values they may have, and who may change. By default an input
    must have the shape, dtype, device and strides of its example.

    One executable has one set of static inputs and outputs: requests must take turns, on one stream or
    ordered by events. Each replay overwrites the outputs of the last one: copy what is kept.
    """

    def __init__(
        self,
        adapter: Adapter,
        step: Callable[..., Any],
        inputs: Sequence[Any],
        *,
        updatable: Sequence[bool] | None = None,
        source: GraphSource | None = None,
        rules: InputRules | None = None,
    ) -> None:
        if rules is not None and updatable is not None:
            raise ValueError("rules say what is updatable: give one of both")
        self.adapter = adapter
        self._step = step
        self._source = source or StreamCapture(adapter, step)
        self._example = tuple(inputs)
        self._rules = rules or InputRules.of(self._example)
        self._updatable = tuple(updatable) if updatable is not None else self._rules.updatable
        if not len(self._rules.rules) == len(self._updatable) == len(self._example):
            raise ValueError(f"rules for {len(self._updatable)} inputs, not {len(self._example)}")
        self._static: tuple[Any, ...] = ()
        self._moving: list[tuple[int, Any, Check]] = []
        """Position, static array and check of each updatable input."""
        self._captured: CapturedStep | None = None
        self._executable: Executable | None = None
        self.state = State.IDLE

    # --- phases -----------------------------------------------------------------------------------
    def prepare(self, warm_up_runs: int = 3, *, state: Sequence[Any] = ()) -> Self:
        """All phases from idle to ready. Raises what a phase raised; the step falls back then.

        Warming up runs the step: arrays that it changes and that must not move on belong into ``state``. They
        and the framework's random generators are as before afterwards.
        """
        held = [self.adapter.static_like(value) for value in state]
        random = self.adapter.random_state(self._step)
        try:
            self.warm_up(warm_up_runs)
            self.capture()
            self.instantiate()
            self.upload()
        finally:
            for value, before in zip(state, held, strict=True):
                self.adapter.copy_into(value, before)
            self.adapter.set_random_state(random)
            self.adapter.synchronize()
        return self

    def warm_up(self, runs: int) -> None:
        """Run the normal step ``runs`` times, so that nothing is set up for the first time in capture.

        Each run gets copies of the inputs, which the step may change in place.
        """
        self._move(State.WARMING)
        with self._failing_to_fallback():
            passed = []  # held until the device is idle
            for _ in range(runs):
                passed.append(tuple(map(self.adapter.static_like, self._example)))
                self._step(*passed[-1])
            self.adapter.synchronize()

    def capture(self) -> CapturedStep:
        """Make the graph on static copies of the inputs. Raises what the step or the driver raised."""
        self._move(State.CAPTURING)
        with self._failing_to_fallback():
            self._static = self._source.static_inputs(self._example)
            if len(self._static) != len(self._example):
                raise ValueError(f"{len(self._static)} static inputs for a step of {len(self._example)}")
            self._moving = self._checked()
            self.adapter.synchronize()
            try:
                self._captured = self._source.capture(self._static)
            except BaseException:
                with suppress(*_BESIDES):
                    self.adapter.recover()
                raise
            return self._captured

    def instantiate(self) -> None:
        """Build the executable graph."""
        captured = self._captured
        self._move(State.INSTANTIATED)
        with self._failing_to_fallback():
            if captured is None:
                raise RuntimeError("instantiated before it was captured")
            self._executable = captured.instantiate()

    def upload(self) -> None:
        """Send the executable to the device; the step is ready afterwards."""
        self._check(State.READY)
        with self._failing_to_fallback():
            self._live().upload()
            self.adapter.synchronize()
        self._move(State.READY)

    def update(self) -> UpdateResult:
        """Update the executable from its own graph; a refusal by the driver invalidates the step."""
        captured = self._captured
        self._move(State.UPDATING)
        with self._failing_to_fallback():
            if captured is None:
                raise RuntimeError("updated before it was captured")
            result = self._live().update(captured.graph)
        if result.ok:
            self._move(State.READY)
        else:
            self.invalidate()
        return result

    def reinstantiate(self) -> None:
        """Destroy the executable and make it again of the same graph, up to the upload; ready afterwards."""
        self._move(State.REINSTANTIATING)
        with self._failing_to_fallback():
            self.adapter.synchronize()  # the last replay must be over
            old, self._executable = self._live(), None  # whatever happens now, it is not launched again
            self._executable = self._rebuilt(old)
            self._executable.upload()
            self.adapter.synchronize()
        self._move(State.READY)

    def _rebuilt(self, old: Executable) -> Executable:
        captured = self._captured
        if captured is None:
            raise RuntimeError("instantiated again before it was captured")
        # A framework whose executables can't be destroyed without their graph knows another way.
        rebuild: Callable[[Executable], Executable] | None = getattr(captured, "reinstantiate", None)
        if rebuild is not None:
            return rebuild(old)
        old.destroy()
        return captured.instantiate()

    # --- use --------------------------------------------------------------------------------------
    @property
    def graph(self) -> Graph | None:
        """The graph that was captured or built, while there is one."""
        return self._captured.graph if self._captured is not None else None

    @property
    def source(self) -> GraphSource:
        """Where the graph comes from; makes further graphs of the same step."""
        return self._source

    @property
    def example(self) -> tuple[Any, ...]:
        """The inputs that the step was made with; none once it was given up."""
        return self._example

    @property
    def outputs(self) -> Any:
        """The static outputs: each replay overwrites them."""
        return self._captured.outputs if self._captured is not None else None

    @property
    def variables(self) -> tuple[Any, ...]:
        """The static inputs into which each replay copies new values."""
        return tuple(value for value, moves in zip(self._static, self._updatable, strict=False) if moves)

    @property
    def constants(self) -> tuple[Any, ...]:
        """The static inputs that no replay changes."""
        return tuple(value for value, moves in zip(self._static, self._updatable, strict=False) if not moves)

    def copy_in(self, inputs: Sequence[Any]) -> None:
        """Enqueue copying the updatable inputs into the static ones.

        Raises InputError (a ValueError) for inputs that do not fit: all are checked before any is copied,
        and the graph stays usable.
        """
        if len(inputs) != len(self._static):
            if self._captured is None:
                raise RuntimeError(f"there is no graph in state {self.state}")
            raise InputError(f"{len(inputs)} inputs for a graph of {len(self._static)}")
        moving, copy = self._moving, self.adapter.copy_into
        try:
            for index, _target, check in moving:
                check(inputs[index])
            for index, target, _check in moving:
                copy(target, inputs[index])
        except (ValueError, TypeError):  # the adapter looks closer; nothing was launched on it
            raise
        except BaseException:
            self.invalidate()
            raise

    def launch(self) -> None:
        """Enqueue one replay on the current stream."""
        executable = self._live()
        try:  # not the context manager: its microsecond would count as the graph's
            executable.launch()
        except BaseException:
            self.invalidate()
            raise

    def replay(self, inputs: Sequence[Any]) -> Any:
        """Copy the inputs in, enqueue one replay, and return the static outputs."""
        self.copy_in(inputs)
        self.launch()
        return self.outputs

    def __call__(self, *inputs: Any) -> Any:
        """One request: by the graph where it is ready, else by the normal step."""
        return self.replay(inputs) if self.state is State.READY else self._step(*inputs)

    # --- end --------------------------------------------------------------------------------------
    def invalidate(self) -> None:
        """Give the graph up: it and its executable are destroyed, calls run the normal step.

        Nothing is waited for: a replay that may still run must be synchronised with before.
        """
        if self.state in (State.INVALID, State.FALLBACK):
            return
        self._move(State.INVALID)
        executable, captured = self._executable, self._captured
        self._executable, self._captured, self._static, self._moving = None, None, (), []
        self._example = ()  # nothing is captured any more
        if executable is not None:
            with suppress(*_BESIDES):
                executable.destroy()
        if captured is not None:
            with suppress(*_BESIDES):
                captured.graph.destroy()
        self._move(State.FALLBACK)

    def _checked(self) -> list[tuple[int, Any, Check]]:
        moving = []
        sides = zip(self._rules.rules, self._static, self._example, self._updatable, strict=True)
        for index, (rule, static, example, moves) in enumerate(sides):
            if moves:
                # What tells no shape is at least held to its size.
                sized = rule if rule.shape is not None else replace(rule, nbytes=self.adapter.nbytes(static))
                moving.append((index, static, sized.compiled(self.adapter, example)))
        return moving

    def _live(self) -> Executable:
        if self._executable is None:
            raise RuntimeError(f"there is no executable graph in state {self.state}")
        return self._executable

    def _check(self, to: State) -> None:
        if (self.state, to) not in TRANSITIONS:
            raise RuntimeError(f"a graphed step can't go from {self.state} to {to}")

    def _move(self, to: State) -> None:
        self._check(to)
        self.state = to

    @contextmanager
    def _failing_to_fallback(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.invalidate()
            raise
