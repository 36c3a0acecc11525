"""Where in the program calls were made: the innermost Python function or operator around each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Rows = Mapping[str, Ints]
"""Intervals: columns ``start_ns``, ``end_ns``, ``tid`` and ``name`` (codes)."""

NOWHERE: Final = -1

_FUNCTION: Final = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)$", re.DOTALL)
_FOLDER: Final = re.compile(r".*[/\\:]", re.DOTALL)


def function_site(name: str) -> str:
    """``file:line function`` from Kineto's ``file(line): function``; empty for built-in functions.

    Paths, relative ones too, say whose machine it was: only the file's name is kept.
    """
    found = _FUNCTION.match(name)
    if found is None:
        return ""
    return f"{_FOLDER.sub('', found['file'])}:{found['line']} {found['function']}"


def innermost_around(calls: Rows, intervals: Rows) -> Ints:
    """For each call, the row of the innermost of ``intervals`` that encloses it on its thread, or NOWHERE."""
    result = np.full(len(calls["start_ns"]), NOWHERE, dtype=np.int64)
    for thread in np.unique(calls["tid"]):
        chosen = np.flatnonzero(calls["tid"] == thread)
        around = np.flatnonzero(intervals["tid"] == thread)
        starts, ends = calls["start_ns"][chosen], calls["end_ns"][chosen]
        result[chosen] = _innermost(starts, ends, around, intervals)
    return result


def _innermost(starts: Ints, ends: Ints, rows: Ints, intervals: Rows) -> Ints:
    begins, finishes = intervals["start_ns"][rows], intervals["end_ns"][rows]
    ordered = np.sort(starts)
    holding = np.searchsorted(ordered, finishes, "right") > np.searchsorted(ordered, begins, "left")
    # An interval without length encloses no call, and would count as ended before what begins with it.
    holding &= finishes > begins
    rows, begins, finishes = rows[holding], begins[holding], finishes[holding]
    order = np.lexsort((-finishes, begins))
    rows, begins, finishes = rows[order], begins[order], finishes[order]
    # Calls nest, so intervals of one depth don't overlap: one search a depth, deeper ones override.
    depth = np.arange(len(rows)) - np.searchsorted(np.sort(finishes), begins, "right")
    result = np.full(len(starts), NOWHERE, dtype=np.int64)
    for level in np.unique(depth):
        at = np.flatnonzero(depth == level)
        place = np.searchsorted(begins[at], starts, "right") - 1
        found = (place >= 0) & (finishes[at][place] >= ends)
        result[found] = rows[at][place[found]]
    return result
