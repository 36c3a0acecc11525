"""Calling user code, and checking what it gives back: each failure becomes one line with its place."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, Final

from cudagraph_gate.errors import DeviceError, NoDeviceError, WorkloadError
from cudagraph_gate.workload.contract import UserFunction, Workload, did_you_mean

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages: a virtual environment beside the workload is not the user's code."""


def call_user(function: UserFunction, *args: Any, workload: Workload, what: str) -> Any:
    """Call user code; ``what`` names it in the error, such as ``build(b1)``.

    Raises WorkloadError, with file and line in the user's code, for any exception and for ``sys.exit``.
    A DeviceError passes unchanged: the trial turns it into evidence. NoDeviceError and KeyboardInterrupt
    pass too.
    """
    try:
        return function(*args)
    except (DeviceError, NoDeviceError):
        raise
    except (Exception, SystemExit) as error:
        failed = user_error(error, workload.folder, what)
        # A call with the wrong number of arguments fails before any line of the function runs.
        failed.where = failed.where or _definition(function, workload.folder)
        raise failed from error


def user_error(error: BaseException, folder: Path, what: str) -> WorkloadError:
    """The WorkloadError that tells what user code raised, and where in ``folder``.

    A WorkloadError keeps its own words and gains the place.
    """
    where = user_frame(error, folder)
    if isinstance(error, WorkloadError):
        return WorkloadError(error.what, where=error.where or where, hint=error.hint)
    if isinstance(error, SystemExit):
        code = "" if error.code is None else repr(error.code)
        return WorkloadError(
            f"{what} called sys.exit({code})", where=where, hint="raise an exception instead"
        )
    return WorkloadError(f"{what} raised {error_text(error)}", where=where)


def error_text(error: BaseException) -> str:
    """``Type: first line`` of an exception."""
    try:
        message = str(error.msg) if isinstance(error, SyntaxError) else str(error)
    except Exception:  # noqa: BLE001  (an exception of the user's whose text can't be made)
        message = ""
    lines = message.strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def user_frame(raised: BaseException | TracebackType | None, folder: Path) -> str | None:
    """The innermost frame in ``folder`` as ``file.py:LINE``, or None when no frame lies in it.

    A syntax error in one of the user's other files is placed there, not at the import.
    """
    if isinstance(raised, SyntaxError) and raised.filename and raised.lineno:
        inside = _inside(raised.filename, folder)
        if inside is not None:
            return f"{inside}:{raised.lineno}"
    trace = raised.__traceback__ if isinstance(raised, BaseException) else raised
    places = [
        f"{inside}:{line}"
        for frame, line in traceback.walk_tb(trace)
        if (inside := _inside(frame.f_code.co_filename, folder)) is not None
    ]
    return places[-1] if places else None


def _inside(filename: str, folder: Path) -> str | None:
    """The file's path relative to ``folder`` if it is the user's."""
    try:
        relative = Path(filename).resolve().relative_to(folder.resolve())
    except ValueError:
        return None
    return None if _INSTALLED & set(relative.parts) else relative.as_posix()


def name_inputs(step: UserFunction, inputs: Any) -> tuple[str, ...]:
    """One name for each input: step's positional parameters, and ``input0``… where it has none."""
    try:
        # A torch module's own signature is (*args, **kwargs); the names are those of forward.
        parameters = inspect.signature(getattr(step, "forward", step)).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in positional]
    count = len(_as_tuple(inputs))
    return tuple(names[index] if index < len(names) else f"input{index}" for index in range(count))


def check_inputs(workload: Workload, inputs: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """What ``inputs(shape, seed)`` returned, as a tuple; a single array counts as one input.

    ``names`` are those of :func:`name_inputs`. Raises WorkloadError for None, for a dict, and when
    ``UPDATABLE`` names an input that step does not have.
    """
    if inputs is None:
        hint = "return a tuple of step's inputs; () if it takes none"
        raise WorkloadError("inputs returned None", where=workload.where("inputs"), hint=hint)
    if isinstance(inputs, dict):
        hint = "return a tuple in the order of step's parameters"
        raise WorkloadError("inputs returned a dict", where=workload.where("inputs"), hint=hint)
    for name in workload.updatable or ():
        if name not in names:
            what = f"UPDATABLE names {name}, which is no input of step"
            raise WorkloadError(what, where=workload.where("UPDATABLE"), hint=did_you_mean(name, names))
    return _as_tuple(inputs)


def _as_tuple(inputs: Any) -> tuple[Any, ...]:
    if inputs is None:
        return ()
    return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)


def check_outputs(workload: Workload, step: UserFunction, outputs: Any) -> tuple[tuple[str, Any], ...]:
    """The leaves of what step returned, with their names.

    Raises WorkloadError, with the line of step, when there is none: nothing could be compared.
    """
    leaves = flatten(outputs)
    if not leaves:
        where = _definition(step, workload.folder) or workload.where("build")
        raise WorkloadError("step returned nothing", where=where, hint="return the output array(s)")
    return leaves


def _definition(step: UserFunction, folder: Path) -> str | None:
    """``file.py:LINE`` where step is defined, if that is the user's code."""
    function = inspect.unwrap(getattr(step, "func", getattr(step, "forward", step)))
    code = getattr(function, "__code__", None) or getattr(type(step).__call__, "__code__", None)
    if not isinstance(code, CodeType):
        return None
    inside = _inside(code.co_filename, folder)
    return None if inside is None else f"{inside}:{code.co_firstlineno}"


def flatten(value: Any) -> tuple[tuple[str, Any], ...]:
    """The leaves of nested outputs with dotted path names: ``0``, ``logits``, ``cache.1.key``.

    Tuples, lists, mappings (anything with ``items()``) and dataclasses are opened, None is dropped, all
    else is a leaf. A value that is a leaf itself is called ``output``.
    """
    return tuple((".".join(path) or "output", leaf) for path, leaf in _leaves(value, ()))


def _leaves(
    value: Any, path: tuple[str, ...], above: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    if id(value) in above:
        raise WorkloadError(
            f"the step's outputs contain themselves at {'.'.join(path)}", hint="return a plain tuple or dict"
        )
    children = _children(value)
    if children is not None:
        for name, child in children:
            yield from _leaves(child, (*path, name), (*above, id(value)))
    elif value is not None:
        yield path, value


def _children(value: Any) -> list[tuple[str, Any]] | None:
    """Names and values one level down; None for a leaf."""
    if isinstance(value, tuple | list):
        names = getattr(value, "_fields", range(len(value)))
        return [(str(name), child) for name, child in zip(names, value, strict=True)]
    if callable(getattr(value, "items", None)) and not isinstance(value, type):
        return [(str(name), child) for name, child in value.items()]
    if is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    return None
