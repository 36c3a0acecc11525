"""One event of a Chrome trace as Kineto writes it: only the fields that a timeline needs.

Everything else in a file (hosts, users, environment, command lines, tensor shapes) is skipped by the decoder
and never becomes a value here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

Number = int | str | None
"""Integers as files hold them: old files write ``"24572"``, HIP files streams like ``"0x0"``."""
Triple = tuple[int, int, int]


class Arguments(msgspec.Struct, gc=False):
    """The arguments of an event; 0 and None where the file has none."""

    correlation: Number = 0
    device: Number = None
    context: Number = 0
    stream: Number = None
    bytes: Number = 0
    graph: Number = msgspec.field(name="graph id", default=0)
    node: Number = msgspec.field(name="graph node id", default=0)
    grid: Triple | None = None
    block: Triple | None = None
    wait_stream: Number = msgspec.field(name="wait_on_stream", default=0)
    wait_event: Number = msgspec.field(name="wait_on_cuda_event_id", default=0)
    wait_record: Number = msgspec.field(name="wait_on_cuda_event_record_corr_id", default=0)


class Event(msgspec.Struct, gc=False):
    """One event; ``ts`` and ``dur`` in µs, NaN where the file has none."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Number = 0
    tid: Number = 0
    ts: float = math.nan
    dur: float = math.nan
    args: Arguments | None = None


NO_ARGUMENTS: Final = Arguments()

INTEGER_ARGUMENTS: Final = {
    field.name: field.encode_name
    for field in msgspec.structs.fields(Arguments)
    if field.name not in ("grid", "block")
}


def decoder() -> msgspec.json.Decoder[list[Event]]:
    """Decodes an array of events; raises msgspec.DecodeError for one that is not as Kineto writes it."""
    return msgspec.json.Decoder(list[Event])


def event_of(raw: object) -> Event:
    """An event from any JSON value, as far as its fields can be read; without a phase where it is none."""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("ph"), str):
        return Event()
    given = raw.get("args")
    return Event(
        ph=raw["ph"],
        cat=text_of(raw.get("cat")),
        name=text_of(raw.get("name")),
        pid=_number(raw.get("pid", 0)),
        tid=_number(raw.get("tid", 0)),
        ts=_time(raw.get("ts")),
        dur=_time(raw.get("dur")),
        args=_arguments(given) if isinstance(given, Mapping) else None,
    )


def text_of(value: object) -> str:
    """A JSON value as a name. Bytes that are no UTF-8 (kept as surrogates while reading) become U+FFFD."""
    text = value if isinstance(value, str) else "" if value is None else str(value)
    return text.encode("utf-8", "surrogateescape" if _escaped(text) else "replace").decode("utf-8", "replace")


def _escaped(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _arguments(raw: Mapping[str, Any]) -> Arguments:
    numbers = {name: _number(raw[encoded]) for name, encoded in INTEGER_ARGUMENTS.items() if encoded in raw}
    return Arguments(**numbers, grid=_triple(raw.get("grid")), block=_triple(raw.get("block")))


def _number(value: object) -> Number:
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    return value if isinstance(value, int | str) else None


def _time(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _triple(value: object) -> Triple | None:
    if not isinstance(value, list) or len(value) != 3 or not all(isinstance(part, int) for part in value):
        return None
    return value[0], value[1], value[2]
