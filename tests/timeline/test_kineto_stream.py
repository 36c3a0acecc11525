"""The stream of events: however the bytes are cut, the events are those of the file."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_files import Row, call, kernel

from cudagraph_gate.errors import EvidenceError
from cudagraph_gate.timeline.kineto_events import Arguments, Event, event_of, text_of
from cudagraph_gate.timeline.kineto_stream import EventStream

AWKWARD = st.text(st.sampled_from('{}[],:"\\ \nλphX'), max_size=12)
NESTED = st.recursive(
    AWKWARD, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(AWKWARD, inner, max_size=2)
)
STYLES: tuple[dict[str, Any], ...] = (
    {},
    {"indent": 2},
    {"separators": (",", ":")},
    {"separators": (" , ", " : ")},
    {"ensure_ascii": False},
)


@st.composite
def events(draw: st.DrawFn) -> Row:
    return kernel(
        draw(st.integers(0, 99)), 1, 3, name=draw(AWKWARD), more=draw(NESTED), **{draw(AWKWARD): "x"}
    )


def streamed(content: bytes, block_bytes: int) -> tuple[list[Event], EventStream]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(content)
        stream = EventStream(path, block_bytes=block_bytes)
        return [event for part in stream for event in part], stream


@given(
    rows=st.lists(events(), min_size=1, max_size=6),
    style=st.sampled_from(STYLES),
    block_bytes=st.integers(1, 400),
    bare=st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_however_bytes_are_cut_the_events_are_the_files(
    rows: list[Row], style: dict[str, Any], block_bytes: int, bare: bool
) -> None:
    top = {"before": [{"a": 1}, {"b": 2}], "traceEvents": rows, "baseTimeNanoseconds": 12}
    content = json.dumps(rows if bare else top, **style).encode()
    found, stream = streamed(content, block_bytes)
    assert [(event.name, event.ts) for event in found] == [(row["name"], row["ts"]) for row in rows]
    assert (stream.ending, dict(stream.lost)) == ("", {})
    assert stream.base_ns == (0 if bare else 12)


@given(block_bytes=st.integers(1, 400))
@settings(max_examples=30, deadline=None)
def test_however_bytes_are_cut_a_damaged_event_costs_itself_only(block_bytes: int) -> None:
    rows = [json.dumps(row) for row in (call(1, 1, 1), kernel(2, 1, 1), kernel(3, 1, 1))]
    odd = '{"ph": "X", "cat": "kernel", "ts": 1 "dur": 2}'
    found, stream = streamed(
        f'{{"traceEvents": [{rows[0]}, {odd}, {rows[1]}, {rows[2]}]}}'.encode(), block_bytes
    )
    assert [event.ts for event in found] == [1, 2, 3]
    assert dict(stream.lost) == {"events are no valid JSON": 1}


def test_a_damaged_last_event_costs_itself_only() -> None:
    content = (
        f'{{"traceEvents": [{json.dumps(kernel(2, 1))}, {{"ph": "X", "ts": 01}}], "baseTimeNanoseconds": 5}}'
    )
    found, stream = streamed(content.encode(), 1 << 20)
    assert [event.ts for event in found] == [2]
    assert (stream.ending, stream.base_ns) == ("", 5)
    assert dict(stream.lost) == {"events are no valid JSON": 1}


def test_the_base_is_read_where_it_is_text() -> None:
    content = b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1}], "baseTimeNanoseconds": "77"}'
    assert streamed(content, 1 << 20)[1].base_ns == 77


def test_bytes_behind_the_trace_are_passed_over() -> None:
    found, stream = streamed(b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1}]} trailing { text', 16)
    assert len(found) == 1
    assert stream.ending == ""


def test_what_the_file_is_instead_is_said() -> None:
    with pytest.raises(EvidenceError, match="an OpenTelemetry trace"):
        streamed(b'{"resourceSpans": []}', 1 << 20)


# --- one event ----------------------------------------------------------------------------------------
def test_an_event_from_any_json_has_what_could_be_read() -> None:
    raw = {
        "ph": "X",
        "name": 7,
        "pid": 2.0,
        "tid": [],
        "ts": "1.5",
        "dur": False,
        "args": {"grid": [1, "x", 2]},
    }
    event = event_of(raw)
    assert (event.ph, event.cat, event.name, event.pid, event.tid, event.ts) == ("X", "", "7", 2, None, 1.5)
    assert event.dur != event.dur, "a truth value is no duration"
    assert event.args == Arguments()


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (3, "3"), ("λ", "λ"), ("a\udcffb", "a\ufffdb"), ("a\ud800", "a?")]
)
def test_names_are_text_that_can_be_written(value: object, text: str) -> None:
    assert text_of(value) == text
