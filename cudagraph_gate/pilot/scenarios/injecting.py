"""Running an action in the middle of the user's step, at any of the calls that it makes.

``sys.setprofile`` sees every call of the thread, whatever the framework, and what it raises is raised where
the step stands. Only calls that the step's own code or a framework's Python makes are points: any of them
might fail by itself. Inside the device, and where locks are taken, nothing may be raised from outside.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

from cudagraph_gate.adapters import Adapter

PROTECTED: Final = frozenset(
    {"cudagraph_gate", "contextlib", "threading", "queue", "weakref", "gc", "importlib", "cuda", "cupti"}
)
"""Packages in which an exception from outside would leave a lock taken or a driver call half told."""


def calls_of(step: Callable[..., Any], *inputs: Any) -> int:
    """At how many points of one run of ``step`` something can be injected; at least one."""
    count = 0

    def see(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += _is_point(frame, event)

    _profiled(see, step, inputs)
    return max(1, count)


class Injected:
    """``step`` in which ``action`` runs once: at its ``at``-th call, when it is captured first."""

    def __init__(
        self, adapter: Adapter, step: Callable[..., Any], at: int, action: Callable[[], None]
    ) -> None:
        self._adapter = adapter
        self._step = step
        self._at = at
        self._action = action
        self.fired = False

    def __call__(self, *inputs: Any) -> Any:
        """One run of the step."""
        if self.fired or not self._adapter.current_stream().is_capturing:
            return self._step(*inputs)
        left = self._at

        def see(frame: FrameType, event: str, _argument: Any) -> None:
            nonlocal left
            if self.fired or not _is_point(frame, event):
                return
            left -= 1
            if left < 0:
                self.fired = True
                sys.setprofile(None)  # the action's own calls are not the step's
                self._action()

        return _profiled(see, self._step, inputs)


def _is_point(frame: FrameType, event: str) -> bool:
    """Whether a call begins here that the step's own code, or a framework's, makes."""
    if event not in ("call", "c_call"):
        return False
    caller = frame.f_back if event == "call" else frame
    return all(_package(each) not in PROTECTED for each in _up_to_the_step(caller))


def _up_to_the_step(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None and frame.f_code is not _profiled.__code__:
        yield frame
        frame = frame.f_back


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _profiled(see: Callable[[FrameType, str, Any], None], step: Callable[..., Any], inputs: Any) -> Any:
    before = sys.getprofile()
    sys.setprofile(see)
    try:
        return step(*inputs)
    finally:
        sys.setprofile(before)
