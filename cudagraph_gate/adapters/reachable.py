"""What a step can reach without being called: where a framework's modules, optimisers and generators hide."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def reachable(step: Callable[..., Any]) -> dict[str, Any]:
    """What a step is, is bound to, closes over, was partially applied to, or names as a global.

    Keys are prefixes for the names of what is found there, such as ``model.``; the step's own is empty.
    """
    owner = getattr(step, "__self__", None)
    found = {"": step, "self.": owner}
    found |= {f"self.{name}.": value for name, value in getattr(owner, "__dict__", {}).items()}
    if isinstance(step, functools.partial):
        found |= {f"argument {index}.": value for index, value in enumerate(step.args)}
        found |= {f"argument {name}.": value for name, value in step.keywords.items()}
        return found | reachable(step.func)
    function = inspect.unwrap(step)  # ``@torch.no_grad()`` wraps the function whose names count
    code = getattr(function, "__code__", None)
    if code is None:
        return found
    cells = getattr(function, "__closure__", None) or ()
    closed = dict(zip(code.co_freevars, map(_content, cells), strict=False))
    named = getattr(function, "__globals__", {})
    globals_used = {name: named[name] for name in code.co_names if name in named}
    return found | {f"{name}.": value for name, value in (globals_used | closed).items()}


def reachable_of(step: Callable[..., Any], kind: type | tuple[type, ...]) -> dict[str, Any]:
    """The reachable objects of a kind by their prefix, each object once."""
    seen: dict[int, tuple[str, Any]] = {}
    for prefix, value in reachable(step).items():
        if isinstance(value, kind):
            seen.setdefault(id(value), (prefix, value))
    return dict(seen.values())


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
