"""Kineto files that are damaged, cut off, odd or of another kind."""

from __future__ import annotations

import gzip
import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_files import PROCESS, Row, call, event, kernel, on_gpu, pair, read, starts, text_of, write

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.errors import EvidenceError, ExitCode
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.timeline.kineto import read_kineto
from cudagraph_gate.timeline.table import Timeline

CUT = "the file ends inside the array of events"
HOUR_US = 3_600_000_000


def launches(count: int) -> list[Row]:
    return [row for place in range(count) for row in pair(100 * place, place + 1)]


def text_with(odd: str, count: int = 3) -> bytes:
    """A file whose second event is ``odd``, before and after events that are sound."""
    rows = [json.dumps(row) for row in launches(count)]
    return f'{{"traceEvents": [\n{rows[0]},\n{odd},\n{",".join(rows[1:])}\n]}}'.encode()


def not_measurable(timeline: Timeline) -> bool:
    (device,) = diagnose(timeline, NotMeasured(reason="a file")).devices
    return isinstance(device.idle_ns, NotMeasured)


# --- cut off ----------------------------------------------------------------------------------------
def test_a_truncated_gzip_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    content = gzip.compress(text_of(launches(5000)))
    timeline = read_kineto(write(tmp_path, content[: len(content) // 2]))
    assert 1000 < len(timeline.operations) < 4000
    assert timeline.meta.problems[0] == "the gzip stream is cut off"
    assert not_measurable(timeline)


def test_a_damaged_gzip_stream_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(text_of(launches(30_000))))
    content[200_000:200_040] = bytes(40)
    timeline = read_kineto(write(tmp_path, bytes(content)))
    assert len(timeline.operations) > 1000
    assert not_measurable(timeline)


def test_several_gzip_members_are_one_file(tmp_path: Path) -> None:
    content = text_of(launches(20))
    path = write(tmp_path, gzip.compress(content[:700]) + gzip.compress(content[700:]) + bytes(64))
    assert len(read_kineto(path).operations) == 20


@given(cut=st.integers(0, 1200))
@settings(max_examples=40, deadline=None)
def test_json_cut_anywhere_gives_the_events_before_the_cut(cut: int, tmp_path_factory: Any) -> None:
    rows = [json.dumps(row) for row in launches(6)]
    ends = list(accumulate(len(row) + 1 for row in rows))
    path = write(tmp_path_factory.mktemp("cut"), b'{"traceEvents": [' + ",".join(rows).encode()[:cut])
    whole = sum(end - 1 <= cut for end in ends)
    if not whole:
        with pytest.raises(EvidenceError, match=CUT):
            read_kineto(path)
        return
    timeline = read_kineto(path)
    assert len(timeline.operations) + len(timeline.calls) == whole
    assert timeline.meta.problems[0] == CUT
    assert timeline.meta.dropped_records >= 1


def test_what_comes_after_the_events_may_be_cut_off(tmp_path: Path) -> None:
    content = text_of(pair(1, 5))[:-1] + b', "baseTimeNanoseconds": 5000, "traceName": "/tm'
    assert starts(read_kineto(write(tmp_path, content))) == [11_000]


# --- damaged events ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "odd",
    [
        '{"ph": "X", "cat": "kernel", "ts": 1 "dur": 2}',
        '{"ph": "X", "cat": "kernel", "name": "lost quote, "ts": 1, "dur": 2}',
        '{"ph": "X", "cat": "kernel", "name": "line\nbreak", "ts": 1, "dur": 2}',
        '{"ph": "X", "cat": "kernel", "ts": 0x10, "dur": 2, "args": {"a": [{}, {}]}}',
    ],
)
def test_an_event_that_is_no_json_costs_itself_only(tmp_path: Path, odd: str) -> None:
    timeline = read_kineto(write(tmp_path, text_with(odd)))
    assert starts(timeline) == [5000, 105_000, 205_000]
    assert len(timeline.calls) == 3
    assert timeline.meta.problems[0].endswith("events are no valid JSON")
    assert not_measurable(timeline)


@pytest.mark.parametrize("odd", ["null", "7", '"text"', "[]", "{}", '{"ph": 3}'])
def test_what_is_no_event_is_counted(tmp_path: Path, odd: str) -> None:
    timeline = read_kineto(write(tmp_path, text_with(odd)))
    assert len(timeline.operations) == 3
    assert timeline.meta.problems == ("1 entries are no events",)


@pytest.mark.parametrize("ts", ["NaN", "Infinity", "null", "-1", "1e300", '"soon"', "true", "[]", "9e18"])
def test_an_operation_without_a_valid_start_is_left_out_and_said(tmp_path: Path, ts: str) -> None:
    odd = f'{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": {ts}, "dur": 2}}'
    timeline = read_kineto(write(tmp_path, text_with(odd)))
    assert starts(timeline) == [5000, 105_000, 205_000]
    assert timeline.meta.problems == ("1 kernels have no valid start time",)
    assert not_measurable(timeline)


@pytest.mark.parametrize("dur", ['"dur": NaN', '"dur": -3', '"dur": null', '"duration": 3', '"dur": 1e300'])
def test_an_operation_without_a_valid_duration_is_left_out_and_said(tmp_path: Path, dur: str) -> None:
    odd = f'{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 50, {dur}}}'
    timeline = read_kineto(write(tmp_path, text_with(odd)))
    assert starts(timeline) == [5000, 105_000, 205_000]
    assert timeline.meta.problems == ("1 kernels have no valid duration",)


def test_an_operator_without_a_duration_hides_no_operation(tmp_path: Path) -> None:
    timeline = read(tmp_path, [*launches(2), event("cpu_op", "aten::add", 1, -1)])
    assert timeline.meta.problems == ("1 cpu_ops have no valid duration",)
    assert timeline.meta.dropped_records == 0


def test_texts_where_numbers_stand_are_read_as_numbers(tmp_path: Path) -> None:
    row = kernel(0, 0, 0) | {"ts": "50.5", "dur": "2", "pid": "0"}
    row["args"] = {"device": "1", "stream": "0x10", "correlation": "1", "bytes": "many"}
    timeline = read(tmp_path, [*launches(1), row])
    found = timeline.operations.iloc[1]
    assert [found[name] for name in ("start_ns", "end_ns", "device", "stream", "correlation")] == [
        50_500,
        52_500,
        1,
        16,
        1,
    ]


def test_numbers_beyond_64_bits_count_as_0_and_are_said(tmp_path: Path) -> None:
    row = on_gpu("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 50, 1, 1, bytes=10159970886766084423)
    huge = kernel(60, 1, 1, **{"graph id": 10**30}) | {"tid": 2**70}
    timeline = read(tmp_path, [*launches(1), row, huge])
    assert list(timeline.operations["bytes"]) == [0, 0, 0]
    assert timeline.meta.problems == (
        "1 copies have a number that can't be read and counts as 0",
        "1 kernels have a number that can't be read and counts as 0",
    )
    assert timeline.meta.dropped_records == 0


def test_a_stream_beyond_32_bits_counts_as_0_and_is_said(tmp_path: Path) -> None:
    timeline = read(tmp_path, [*launches(1), kernel(50, 1, 1, stream=2**40)])
    assert list(timeline.operations["stream"]) == [7, 0]
    assert timeline.meta.problems == ("1 events have a number that can't be read and counts as 0",)


def test_bytes_that_are_no_utf_8_are_replaced_and_said(tmp_path: Path) -> None:
    content = text_of([*launches(1), kernel(50, 1, 1, name="ab")]).replace(b'"ab"', b'"a\xff\xfeb"')
    timeline = read_kineto(write(tmp_path, content))
    assert list(timeline.operations["name"]) == ["k", "a\ufffd\ufffdb"]
    assert timeline.meta.problems == ("1 events hold bytes that are no UTF-8",)
    assert timeline.meta.dropped_records == 0


def test_of_duplicate_keys_the_last_counts(tmp_path: Path) -> None:
    odd = '{"ph": "X", "cat": "kernel", "name": "a", "name": "b", "ts": 9, "ts": 50, "dur": 2}'
    timeline = read_kineto(write(tmp_path, text_with(odd)))
    assert list(timeline.operations["name"]) == ["k", "b", "k", "k"]
    assert starts(timeline) == [5000, 50_000, 105_000, 205_000]


def test_a_huge_event_is_read(tmp_path: Path) -> None:
    stack = [{"frame": "x" * 50}] * 300_000
    timeline = read(
        tmp_path, [*launches(2), event("cpu_op", "big", 1, 2, args={"stack": stack}), *pair(900, 9)]
    )
    assert (len(timeline.operations), len(timeline.ranges)) == (3, 1)
    assert timeline.meta.problems == ()


def test_deep_nesting_is_no_crash(tmp_path: Path) -> None:
    deep = '{"ph": "X", "args": ' + "[" * 100_000 + "]" * 100_000 + "}"
    assert len(read_kineto(write(tmp_path, text_with(deep))).operations) == 3


@given(damage=st.lists(st.tuples(st.integers(30, 1500), st.binary(min_size=1, max_size=4)), max_size=4))
@settings(max_examples=60, deadline=None)
def test_no_damage_makes_more_than_a_clear_error(
    damage: list[tuple[int, bytes]], tmp_path_factory: Any
) -> None:
    content = bytearray(text_of(launches(6)))
    for place, replacement in damage:
        content[place : place + len(replacement)] = replacement
    try:
        timeline = read_kineto(write(tmp_path_factory.mktemp("damage"), bytes(content)))
    except EvidenceError:
        return
    diagnose(timeline, NotMeasured(reason="a file"))
    assert (timeline.operations["end_ns"] >= timeline.operations["start_ns"]).all()


# --- phases -----------------------------------------------------------------------------------------
def test_begin_and_end_events_make_intervals_that_nest(tmp_path: Path) -> None:
    base = {"cat": "cpu_op", "pid": PROCESS, "tid": PROCESS}
    events = [
        base | {"ph": "B", "name": "outer", "ts": 1},
        base | {"ph": "B", "name": "inner", "ts": 2},
        base | {"ph": "B", "name": "other", "ts": 3, "tid": 5},
        base | {"ph": "E", "ts": 4},
        base | {"ph": "E", "ts": 9},
        base | {"ph": "E", "ts": 10},
    ]
    timeline = read(tmp_path, [*events, *pair(1, 5)])
    ranges = timeline.ranges
    assert list(zip(ranges["name"], ranges["end_ns"], strict=True)) == [("outer", 9000), ("inner", 4000)]
    assert timeline.meta.problems == ("2 events begin or end without the other",)


def test_unknown_phases_are_counted_and_known_ones_passed_over(tmp_path: Path) -> None:
    known = [{"ph": phase, "name": "x", "ts": 3, "pid": 1, "tid": 1} for phase in "MisfC"]
    timeline = read(tmp_path, [*launches(1), *known, event("kernel", "k", 1, 1, ph="?")])
    assert timeline.meta.problems == ("1 events have an unknown phase",)
    assert len(timeline.operations) == 1


# --- clocks -----------------------------------------------------------------------------------------
def test_an_event_days_away_is_left_out_and_said(tmp_path: Path) -> None:
    timeline = read(tmp_path, [*launches(3), kernel(72 * HOUR_US, 1, 1)])
    assert starts(timeline) == [5000, 105_000, 205_000]
    assert timeline.meta.problems[0].startswith("1 events (1 of them operations) lie more than an hour")
    assert not_measurable(timeline)


def test_ranges_around_the_recording_are_kept(tmp_path: Path) -> None:
    timeline = read(tmp_path, [*launches(2), event("user_annotation", "before", 0, 1)])
    assert len(timeline.ranges) == 1


def test_events_out_of_order_are_sorted(tmp_path: Path) -> None:
    timeline = read(tmp_path, list(reversed(launches(3))))
    assert starts(timeline) == [5000, 105_000, 205_000]
    assert list(timeline.calls["start_ns"]) == [0, 100_000, 200_000]


# --- nothing to read --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"   \n", "the file is empty"),
        (b"hello", "not JSON"),
        (b"\x00\xff\xfe" * 99, "not JSON"),
        (b"SQLite format 3\x00", "an SQLite database"),
        (b"\x1f\x8b\x08\x00", "the gzip stream is cut off"),
        (b'{"schema": "1.0", "nodes": [{"id": 1}]}', "a PyTorch execution trace"),
        (b'{"a": 1}', "no array traceEvents"),
        (b'{"traceEvents": null}', "no array traceEvents"),
        (b'{"traceEvents": []}', "it has no events"),
        (b"[]", "it has no events"),
        (b"[1, 2]", "2 entries are no events"),
        (b'{"traceEvents": [', CUT),
        (b'{"traceEvents": [{"ph": "M", "name": "x"}]}', "it has no events"),
        (
            b'{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": -1, "dur": 1}]}',
            "1 kernels have no valid start time",
        ),
    ],
)
def test_a_file_with_nothing_to_read_says_why(tmp_path: Path, content: bytes, reason: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(EvidenceError, match=reason) as caught:
        read_kineto(path)
    assert caught.value.exit_code == ExitCode.EVIDENCE
    assert caught.value.where == str(path)
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="directory"):
        read_kineto(tmp_path)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="No such file"):
        read_kineto(tmp_path / "none.json")


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    assert (
        len(
            read_kineto(
                write(tmp_path, b"\xef\xbb\xbf" + text_of([*pair(1, 5), call(50, 1, 6), kernel(60, 1, 6)]))
            ).operations
        )
        == 2
    )
