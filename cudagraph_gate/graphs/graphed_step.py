"""A step with its graph: an explicit state machine, each failure of which leads back to the normal path.

idle → warming → capturing → instantiated → ready ⇄ updating; from anywhere → invalid → fallback. Once a
phase has failed, the executable is destroyed and never launched again; calling the step runs the normal one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Any, Final

from cudagraph_gate.adapters import Adapter, CapturedStep, Executable
from cudagraph_gate.device.port import UpdateResult
from cudagraph_gate.errors import DeviceError


class State(StrEnum):
    """Where a graphed step stands."""

    IDLE = "idle"
    WARMING = "warming"
    CAPTURING = "capturing"
    INSTANTIATED = "instantiated"
    READY = "ready"
    UPDATING = "updating"
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
        (State.INVALID, State.FALLBACK),
        *((state, State.INVALID) for state in State if state not in (State.INVALID, State.FALLBACK)),
    }
)
"""Every move that is allowed; any other is a bug of the caller."""
_BESIDES: Final = (DeviceError, RuntimeError)
"""What cleaning up after a failure may raise; the failure itself is the one to report."""


class GraphedStep:
    """``step`` captured with static copies of ``inputs``.

    ``updatable`` says per input whether replays take new values; the others keep the values of the capture.
    """

    def __init__(
        self,
        adapter: Adapter,
        step: Callable[..., Any],
        inputs: Sequence[Any],
        *,
        updatable: Sequence[bool] | None = None,
    ) -> None:
        self._adapter = adapter
        self._step = step
        self._example = tuple(inputs)
        self._updatable = tuple(updatable) if updatable is not None else (True,) * len(self._example)
        self._static: tuple[Any, ...] = ()
        self._captured: CapturedStep | None = None
        self._executable: Executable | None = None
        self.state = State.IDLE

    # --- phases -----------------------------------------------------------------------------------
    def warm_up(self, runs: int) -> None:
        """Run the normal step ``runs`` times, so that nothing is set up for the first time in capture."""
        self._move(State.WARMING)
        with self._failing_to_fallback():
            for _ in range(runs):
                self._step(*self._example)
            self._adapter.synchronize()

    def capture(self) -> CapturedStep:
        """Capture the step on static copies of the inputs. Raises what the step or the driver raised."""
        self._move(State.CAPTURING)
        with self._failing_to_fallback():
            self._static = tuple(self._adapter.static_like(value) for value in self._example)
            self._adapter.synchronize()
            try:
                self._captured = self._adapter.capture(self._step, self._static)
            except BaseException:
                with suppress(*_BESIDES):
                    self._adapter.recover()
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
            self._adapter.synchronize()
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

    # --- use --------------------------------------------------------------------------------------
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

        Raises ValueError or TypeError for inputs that do not fit; the graph stays usable.
        """
        if len(inputs) != len(self._static):
            raise ValueError(f"{len(inputs)} inputs for a graph of {len(self._static)}")
        try:
            for target, source, moves in zip(self._static, inputs, self._updatable, strict=True):
                if moves:
                    self._adapter.copy_into(target, source)
        except (ValueError, TypeError):
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
        """Give the graph up: it and its executable are destroyed, calls run the normal step."""
        if self.state in (State.INVALID, State.FALLBACK):
            return
        self._move(State.INVALID)
        executable, captured = self._executable, self._captured
        self._executable, self._captured, self._static = None, None, ()
        if executable is not None:
            with suppress(*_BESIDES):
                executable.destroy()
        if captured is not None:
            with suppress(*_BESIDES):
                captured.graph.destroy()
        self._move(State.FALLBACK)

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
