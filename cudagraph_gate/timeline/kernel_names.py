"""Kernel names as a person says them, from the symbols that recorders write."""

from __future__ import annotations

import re
from typing import Final

_MANGLED: Final = re.compile(r"_ZN?K?(?=\d)")
_ANONYMOUS: Final = "(anonymous)"
_UNNAMED: Final = "\0"


def kernel_name(symbol: str) -> str:
    """A kernel's qualified name without template arguments and parameters: ``at::native::softmax``.

    Reads the nested name at the front of an Itanium-mangled symbol, and demangled C++ (``void f<4>(int)``).
    """
    match = _MANGLED.match(symbol)
    if not match:
        return _without_arguments(symbol)
    rest, parts = symbol[match.end() :], []
    while number := re.match(r"\d+", rest):
        end = number.end() + int(number[0])
        parts.append(rest[number.end() : end])
        rest = rest[end:]
    named = [_ANONYMOUS if part.startswith("_GLOBAL__N_") else part for part in parts if part]
    return "::".join(named) or symbol


def _without_arguments(demangled: str) -> str:
    """The name of a demangled function; text that is none stays as it is."""
    if not demangled.endswith((")", ">")):
        return demangled
    depth, kept = 0, ""
    for character in demangled.replace("(anonymous namespace)", _UNNAMED):
        depth += character in "<(["
        kept += character if depth == 0 else ""
        depth -= character in ">)]"
    words = kept.split()  # the type that it returns stands before its name
    return words[-1].replace(_UNNAMED, _ANONYMOUS) if words and depth == 0 else demangled
