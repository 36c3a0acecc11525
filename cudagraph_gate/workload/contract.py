"""What a workload module may declare, and the check that it declares it rightly.

``build(shape)`` and ``inputs(shape, seed)`` are enough: the step, and the inputs of one request.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from cudagraph_gate.errors import WorkloadError

UserFunction = Callable[..., Any]

DEFAULT_SHAPES: Final[Mapping[str, Any]] = {"default": None}
"""Without ``SHAPES`` there is one shape, and ``build`` and ``inputs`` get None for it."""

NEAR: Final = 0.5
"""difflib ratio from which a name is worth suggesting: shape names are short, and b8 for c8 is 0.5."""

_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "build": ("shape",),
    "inputs": ("shape", "seed"),
    "request": ("step", "shape", "seed"),
    "build_graphed": ("shape",),
    "build_explicit": ("shape", "graph"),
    "check": ("expected", "actual"),
    "state": (),
    "between": ("i",),
    "version": (),
    "teardown": (),
}
_REQUIRED: Final = ("build", "inputs")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A loaded workload module that keeps the contract. Optional parts that it lacks are None."""

    name: str
    """The file's name without ``.py``."""
    path: Path
    """Absolute."""
    module: ModuleType
    sha256: str
    """Of the file's bytes, exactly those that were run."""
    lines: Mapping[str, int]
    """Line of each top-level definition."""
    build: UserFunction
    inputs: UserFunction
    shapes: Mapping[str, Any]
    """Shape name to what ``build`` and ``inputs`` get."""
    traffic: Mapping[str, float] | Path | None = None
    """Shape name to weight, or a CSV file of arrivals."""
    updatable: tuple[str, ...] | None = None
    """Inputs that may change between replays; None: all of them."""
    request: UserFunction | None = None
    build_graphed: UserFunction | None = None
    build_explicit: UserFunction | None = None
    check: UserFunction | None = None
    state: UserFunction | None = None
    between: UserFunction | None = None
    version: UserFunction | None = None
    teardown: UserFunction | None = None

    @property
    def folder(self) -> Path:
        """The folder that the workload's own files lie in."""
        return self.path.parent

    def where(self, name: str) -> str:
        """``file.py:LINE`` of a top-level definition; ``file.py`` where the line is not known."""
        return location(self.path, self.lines.get(name))


def location(path: Path, line: int | None) -> str:
    """``file.py:LINE``, as errors name a place in the user's code."""
    return path.name if line is None else f"{path.name}:{line}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known name, if one is near, and all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=NEAR)
    every = f"known: {', '.join(names)}" if names else "there are none"
    return f"did you mean {near[0]}? {every}" if near else every


def workload_of(module: ModuleType, path: Path, sha256: str, lines: Mapping[str, int]) -> Workload:
    """The workload that an imported module declares.

    Raises WorkloadError, with file and line, for the first part that breaks the contract.
    """
    declared = _Declared(module, path, lines)
    functions = {name: declared.function(name) for name in _PARAMETERS}
    declared.require(functions)
    shapes = declared.shapes()
    return Workload(
        name=path.stem,
        path=path,
        module=module,
        sha256=sha256,
        lines=lines,
        shapes=shapes,
        traffic=declared.traffic(shapes),
        updatable=declared.updatable(),
        **functions,
    )


@dataclass(frozen=True)
class _Declared:
    """The top-level names of an imported workload module."""

    module: ModuleType
    path: Path
    lines: Mapping[str, int]

    def error(self, name: str, what: str, hint: str) -> WorkloadError:
        return WorkloadError(what, where=location(self.path, self.lines.get(name)), hint=hint)

    def get(self, name: str) -> Any:
        return vars(self.module).get(name)

    def function(self, name: str) -> Any:
        function = self.get(name)
        if function is None:
            return None
        call = f"{name}({', '.join(_PARAMETERS[name])})"
        if not callable(function):
            what = f"{name} is of type {type(function).__name__}, not a function"
            raise self.error(
                name, what, f"define {call}" if name in _REQUIRED else f"define {call} or rename it"
            )
        if not _accepts(function, len(_PARAMETERS[name])):
            what = f"{name}{_signature_text(function)} can't be called as {call}"
            raise self.error(name, what, f"give {name} {_count(len(_PARAMETERS[name]))}")
        return function

    def require(self, functions: Mapping[str, Any]) -> None:
        absent = [name for name in _REQUIRED if functions[name] is None]
        if absent == ["inputs"]:
            raise self.error(
                "build", "build without inputs", "define inputs(shape, seed): fresh inputs of one request"
            )
        if absent == ["build"]:
            raise self.error(
                "inputs", "inputs without build", "define build(shape), which returns step(*inputs)"
            )
        if absent:
            hint = f"define both, or profile it as a script: cgate profile {self.path.name}"
            raise self.error("build", "neither build(shape) nor inputs(shape, seed)", hint)

    def shapes(self) -> dict[str, Any]:
        shapes = self.get("SHAPES")
        if shapes is None:
            return dict(DEFAULT_SHAPES)
        hint = 'write it like SHAPES = {"b1": (1, 128)}'
        if not isinstance(shapes, dict):
            raise self.error("SHAPES", f"SHAPES is of type {type(shapes).__name__}, not a dict", hint)
        if not shapes:
            raise self.error("SHAPES", "SHAPES is empty", hint)
        for name in shapes:
            if not isinstance(name, str):
                raise self.error("SHAPES", f"SHAPES has the key {name!r}, which is not a str", hint)
            if not name or set(name) & set(",="):
                raise self.error("SHAPES", f"SHAPES has the name {name!r}", "use names without , and =")
        return dict(shapes)

    def traffic(self, shapes: Mapping[str, Any]) -> dict[str, float] | Path | None:
        traffic = self.get("TRAFFIC")
        if traffic is None:
            return None
        if isinstance(traffic, str | Path):
            return self._traffic_file(Path(traffic))
        hint = 'write it like TRAFFIC = {"b1": 0.9, "b8": 0.1}, or name a CSV file'
        if not isinstance(traffic, dict) or not traffic:
            kind = type(traffic).__name__
            what = "is empty" if isinstance(traffic, dict) else f"is of type {kind}, not a dict"
            raise self.error("TRAFFIC", f"TRAFFIC {what}", hint)
        for name, weight in traffic.items():
            if name not in shapes:
                raise self.error("TRAFFIC", f"TRAFFIC has no shape {name!r}", did_you_mean(str(name), shapes))
            if not _is_positive(weight):
                raise self.error(
                    "TRAFFIC", f"TRAFFIC gives {name} the weight {weight!r}", "use numbers above 0"
                )
        return {name: float(weight) for name, weight in traffic.items()}

    def _traffic_file(self, path: Path) -> Path:
        path = self.path.parent / path
        if path.suffix.lower() != ".csv" or not path.is_file():
            raise self.error(
                "TRAFFIC", f"TRAFFIC names {path.name}: no such CSV file", f"looked in {path.parent}"
            )
        return path

    def updatable(self) -> tuple[str, ...] | None:
        names = self.get("UPDATABLE")
        if names is None:
            return None
        if not isinstance(names, Sequence) or isinstance(names, str | bytes):
            what = f"UPDATABLE is of type {type(names).__name__}, not a list of names"
            raise self.error("UPDATABLE", what, 'write it like UPDATABLE = ["x"]')
        for name in names:
            if not isinstance(name, str) or not name.isidentifier():
                what = f"UPDATABLE has {name!r}, which is no input's name"
                raise self.error("UPDATABLE", what, "name parameters of step")
        return tuple(names)


def _is_positive(weight: object) -> bool:
    number = isinstance(weight, int | float) and not isinstance(weight, bool)
    return number and math.isfinite(weight) and weight > 0  # type: ignore[arg-type,operator]


def _accepts(function: UserFunction, count: int) -> bool:
    """Whether ``function`` can be called with ``count`` positional arguments."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return True  # a builtin that doesn't say: the call will tell
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _signature_text(function: UserFunction) -> str:
    parameters = inspect.signature(function).parameters.values()
    bare = (p.replace(annotation=inspect.Parameter.empty) for p in parameters)
    return f"({', '.join(str(p) for p in bare)})"


def _count(parameters: int) -> str:
    return {0: "no parameters", 1: "1 parameter"}.get(parameters, f"{parameters} parameters")
