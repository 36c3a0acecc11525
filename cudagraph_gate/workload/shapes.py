"""Choosing the shapes of a trial: declared ones, new ones, or those of a recorded request mix."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

from cudagraph_gate.errors import UsageError, WorkloadError
from cudagraph_gate.workload.contract import Workload, did_you_mean

MIX_COLUMNS: Final = ("arrival_s", "shape")
"""Columns of a request mix in a CSV file: arrival time in seconds, and the shape's name."""
LATEST_S: Final = 10**11
"""No time in seconds is as late: that is a clock in ms or ns."""

_NS: Final = 10**9
_HOW: Final = "write --shapes like b1,b8 or b1=1x128,b8=8x128 or traffic.csv"


@dataclass(frozen=True, kw_only=True)
class Mix:
    """A request mix: how often each shape is asked for, and when, if that was recorded."""

    weights: Mapping[str, float]
    """Share of the requests by shape name, in order of first arrival (or as declared); they add up to 1."""
    shapes: tuple[str, ...] = ()
    """Shape name of each recorded request, in order of arrival; empty where only weights are known."""
    arrivals_ns: tuple[int, ...] = ()
    """When each of them arrived, from the first on; ascending."""
    note: str = ""
    """What had to be put right in the file."""


def select_shapes(workload: Workload, wanted: str | None) -> dict[str, Any]:
    """Shape name to value, for what ``--shapes`` names.

    None means every declared shape; ``b1,b8`` picks declared ones; ``b1=1x128`` makes a new one, (1, 128),
    and ``n=64`` the int 64; a CSV file picks the distinct shapes of its mix, in order of first arrival.
    Raises UsageError for what can't be read and WorkloadError for a shape that is not declared.
    """
    if wanted is None:
        return dict(workload.shapes)
    if wanted.lower().endswith(".csv"):
        return _shapes_of_mix(workload, Path(wanted))
    chosen: dict[str, Any] = {}
    for item in wanted.split(","):
        name, value = _shape(workload, item.strip())
        if name in chosen:
            raise UsageError(f"--shapes names {name} twice", hint=_HOW)
        chosen[name] = value
    return chosen


def _shape(workload: Workload, item: str) -> tuple[str, Any]:
    name, equals, text = (part.strip() for part in item.partition("="))
    if not name:
        raise UsageError(f"--shapes has the item {item!r}, which has no name", hint=_HOW)
    if not equals:
        return name, _declared(workload, name, workload.path.name)
    value = _parsed(item, text)
    if name in workload.shapes and workload.shapes[name] != value:
        # Evidence names a shape by its name alone: one name must not mean two shapes.
        raise UsageError(
            f"{name} is declared as {workload.shapes[name]!r}", hint="give the new shape another name"
        )
    return name, value


def _parsed(item: str, text: str) -> int | tuple[int, ...]:
    if not re.fullmatch(r"[0-9]+(x[0-9]+)*", text):
        raise UsageError(f"--shapes has the item {item!r}, which is no shape", hint=_HOW)
    numbers = tuple(int(part) for part in text.split("x"))
    return numbers if len(numbers) > 1 else numbers[0]


def _declared(workload: Workload, name: str, where: str) -> Any:
    if name not in workload.shapes:
        raise WorkloadError(f"no shape {name}", where=where, hint=did_you_mean(name, workload.shapes))
    return workload.shapes[name]


def mix_of(workload: Workload, wanted: str | None) -> Mix | None:
    """The request mix: the CSV file that ``--shapes`` names, else the workload's ``TRAFFIC``, else None.

    Raises what :func:`read_mix` raises.
    """
    if wanted is not None and wanted.lower().endswith(".csv"):
        return read_mix(workload, Path(wanted))
    traffic = workload.traffic
    if isinstance(traffic, Path):
        return read_mix(workload, traffic)
    if traffic is None:
        return None
    total = math.fsum(traffic.values())
    return Mix(weights={name: weight / total for name, weight in traffic.items()})


def read_mix(workload: Workload, path: Path) -> Mix:
    """The requests of a CSV file with ``MIX_COLUMNS``, in order of arrival.

    Raises UsageError with file and line for a time that is no number of seconds, a line without shape, a
    file without requests or that can't be read; WorkloadError for a shape that is not declared.
    """
    requests = []
    for line, time, name in _mix(path):
        where = f"{path.name}:{line}"
        if not name:
            raise UsageError("the line has no shape", where=where, hint=_HOW)
        _declared(workload, name, where)
        requests.append((_seconds(time, where), name))
    if not requests:
        raise UsageError("has no requests", where=str(path), hint="add lines of arrival_s,shape")
    ordered = sorted(requests, key=lambda request: request[0])  # stable: equal times keep the file's order
    first = ordered[0][0]
    names = tuple(name for _time, name in ordered)
    return Mix(
        weights={name: count / len(names) for name, count in Counter(names).items()},
        shapes=names,
        arrivals_ns=tuple(round((time - first) * _NS) for time, _name in ordered),
        note="" if ordered == requests else f"{path.name}: its lines are not in order of arrival; sorted",
    )


def _seconds(text: str, where: str) -> Decimal:
    """An exact number: a float of seconds since 1970 would be off by hundreds of ns."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("nan")
    if not value.is_finite() or not -LATEST_S < value < LATEST_S:
        what = f"arrival_s is {text!r}, no time in seconds" if text else "the line has no arrival_s"
        raise UsageError(what, where=where, hint="write seconds like 0.25, from any start")
    return value


def _shapes_of_mix(workload: Workload, path: Path) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for line, _time, name in _mix(path):
        if not name:
            raise UsageError("the line has no shape", where=f"{path.name}:{line}", hint=_HOW)
        if name not in chosen:
            chosen[name] = _declared(workload, name, f"{path.name}:{line}")
    if not chosen:
        raise UsageError("has no requests", where=str(path), hint="add lines of arrival_s,shape")
    return chosen


def _mix(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line number, arrival time as text, and shape name of each request of the mix."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file, skipinitialspace=True)
            lacking = [name for name in MIX_COLUMNS if name not in (rows.fieldnames or ())]
            if lacking:
                what = f"has no column {' and no column '.join(lacking)}"
                raise UsageError(what, where=f"{path.name}:1", hint=f"start it with {','.join(MIX_COLUMNS)}")
            for row in rows:
                time, shape = ((row[column] or "").strip() for column in MIX_COLUMNS)
                yield rows.line_num, time, shape
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"can't be read ({reason})", where=str(path), hint=_HOW) from error
