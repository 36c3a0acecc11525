"""A whole recording from completed buffers to the timeline, with a libcupti that is written in the tests."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

import pytest
from cupti_records import NEWEST_SIZES, record
from scripted_cupti import Library

from cudagraph_gate.timeline.cupti import CuptiRecorder
from cudagraph_gate.timeline.cupti_kinds import FULL_KINDS, LIGHT_KINDS
from cudagraph_gate.timeline.cupti_library import Cupti
from cudagraph_gate.timeline.recorder import Level

GRAPH_TRACE, EVENTS = 49, 36
START, END = 2, 4
LAUNCH = 307


class Program:
    """Makes records as a program would; their texts lie in memory of this process."""

    def __init__(self, level: Level, folder: Path, **options: Any) -> None:
        made: Any = Library(**options.pop("statuses", {}))
        made.sizes = dict(NEWEST_SIZES)
        self.library: Library = made
        self._texts: list[ctypes.Array[ctypes.c_char]] = []
        self.recorder = CuptiRecorder(
            level, folder, cupti=Cupti(made, "/somewhere/libcupti.so"), buffer_bytes=4096, **options
        )

    def text(self, text: str) -> int:
        self._texts.append(ctypes.create_string_buffer(text.encode()))
        return ctypes.addressof(self._texts[-1])

    def kernels(self, name: str, *starts: int) -> bytes:
        pointer = self.text(name)
        return b"".join(
            record(10, name=pointer, start=start, end=start + 5, correlation_id=start) for start in starts
        )

    def calls(self, *starts: int) -> bytes:
        thread = threading.get_native_id()
        return b"".join(
            record(4, cbid=LAUNCH, start=start - 3, end=start - 1, correlation_id=start, thread_id=thread)
            for start in starts
        )

    def range(self, name: str, number: int, start: int, end: int) -> bytes:
        pointer = self.text(name)
        return record(12, flags_=START, id=number, timestamp=start, name=pointer) + record(
            12, flags_=END, id=number, timestamp=end
        )

    def forget(self) -> None:
        """As a module that is unloaded takes its kernels' names with it."""
        for text in self._texts:
            ctypes.memset(ctypes.addressof(text), 0, len(text))


def test_the_records_of_all_buffers_become_one_timeline(tmp_path: Path) -> None:
    program = Program("full", tmp_path)
    program.recorder.start()
    program.library.fill(program.kernels("scale", 10, 20) + program.calls(10, 20))
    program.library.pending = [program.range("step", 1, 5, 40) + program.kernels("add", 30)]
    timeline = program.recorder.stop()
    assert timeline.operations["name"].astype(str).tolist() == ["scale", "scale", "add"]
    assert timeline.calls["name"].astype(str).tolist() == ["cuLaunchKernel", "cuLaunchKernel"]
    assert timeline.ranges["name"].astype(str).tolist() == ["step"]
    assert (timeline.meta.source, timeline.meta.level) == ("CUPTI 130001", "full")
    assert timeline.meta.problems == ()
    assert timeline.meta.dropped_records == 42, "what CUPTI says that it dropped"


def test_names_are_read_before_they_can_be_gone(tmp_path: Path) -> None:
    program = Program("light", tmp_path)
    program.recorder.start()
    program.library.fill(program.kernels("scale", 10))
    program.recorder.flush()
    program.forget()
    assert program.recorder.stop().operations["name"].astype(str).tolist() == ["scale"]


def test_a_long_recording_reuses_its_buffers(tmp_path: Path) -> None:
    program = Program("light", tmp_path)
    program.recorder.start()
    for start in range(10, 1010, 10):
        program.library.fill(program.kernels("scale", start))
    assert program.recorder.recorded_bytes == 100 * NEWEST_SIZES[10]
    assert program.recorder.stop().operations["start_ns"].tolist() == list(range(10, 1010, 10))


def test_a_second_recording_begins_empty(tmp_path: Path) -> None:
    program = Program("full", tmp_path)
    found = []
    for start in (10, 20):
        program.recorder.start()
        program.library.fill(program.kernels("scale", start))
        found.append(program.recorder.stop().operations["start_ns"].tolist())
    assert found == [[10], [20]]


def test_ranges_of_the_counted_name_are_counted_at_a_flush(tmp_path: Path) -> None:
    program = Program("light", tmp_path, count_range="step")
    program.recorder.start()
    program.library.fill(program.range("step", 1, 5, 9) + program.range("load", 2, 10, 11))
    program.recorder.flush()
    assert program.recorder.ended_ranges == 1
    program.library.pending = [program.range("step", 3, 12, 13)]
    program.recorder.flush()
    assert program.recorder.ended_ranges == 2
    program.recorder.stop()


# --- the host's side --------------------------------------------------------------------------------


def test_full_has_the_cpu_time_of_submitting_threads_on_cuptis_clock(tmp_path: Path) -> None:
    program = Program("full", tmp_path)
    program.library.clock_ahead_ns = 3_600_000_000_000
    program.recorder.start()
    began = program.library.clock_ns()
    program.library.fill(program.calls(10))
    threading.Event().wait(0.05)
    found = program.recorder.stop().cpu_times
    ended = program.library.clock_ns()
    assert set(found["thread"]) == {threading.get_native_id()}
    slack = 50_000_000
    assert began - slack <= found["start_ns"].min() <= found["end_ns"].max() <= ended + slack
    assert (found["on_cpu_ns"] <= found["end_ns"] - found["start_ns"]).all()


def test_full_has_the_line_of_a_blocking_call(tmp_path: Path) -> None:
    program = Program("full", tmp_path)
    program.recorder.start()
    program.library.call_back(correlation=10)
    program.library.fill(program.calls(10, 20))
    first, second = program.recorder.stop().calls["site"].astype(str)
    assert first.endswith(" call_back"), "the double's own line is the innermost one here"
    assert second == ""


def test_light_asks_for_neither(tmp_path: Path) -> None:
    program = Program("light", tmp_path)
    program.recorder.start()
    program.library.fill(program.kernels("scale", 10))
    assert program.recorder.stop().cpu_times.empty
    assert "cuptiSubscribe" not in [name for name, _ in program.library.called]


@pytest.mark.parametrize(
    ("statuses", "problem"),
    [
        ({"cuptiSubscribe": 39}, "call sites are not recorded: cuptiSubscribe failed with status 39"),
        (
            {"cuptiGetThreadIdType": 7},
            "CPU times are not recorded: this CUPTI does not number threads as Linux does",
        ),
    ],
)
def test_what_can_not_be_had_is_said_and_the_rest_recorded(
    tmp_path: Path, statuses: dict[str, int], problem: str
) -> None:
    program = Program("full", tmp_path, statuses=statuses)
    program.recorder.start()
    program.library.fill(program.kernels("scale", 10))
    timeline = program.recorder.stop()
    assert timeline.meta.problems == (problem,)
    assert len(timeline.operations) == 1


def test_a_clock_that_was_set_meanwhile_leaves_cpu_times_out(tmp_path: Path) -> None:
    program = Program("full", tmp_path)
    program.recorder.start()
    program.library.clock_ahead_ns = 5_000_000_000
    timeline = program.recorder.stop()
    assert timeline.cpu_times.empty
    assert timeline.meta.problems == ("CPU times are not recorded: the host's clock was set meanwhile",)


# --- what is asked of CUPTI -------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "kinds"), [("light", LIGHT_KINDS), ("full", FULL_KINDS)])
def test_each_level_enables_its_kinds_and_disables_them(
    tmp_path: Path, level: Level, kinds: tuple[int, ...]
) -> None:
    program = Program(level, tmp_path)
    program.recorder.start()
    program.recorder.stop()
    called = program.library.called
    assert [args[0] for name, args in called if name == "cuptiActivityEnable"] == list(kinds)
    assert [args[0] for name, args in called if name == "cuptiActivityDisable"] == list(kinds)


def test_whole_graphs_are_never_traced_because_that_crashes_the_next_replay() -> None:
    assert GRAPH_TRACE not in (*LIGHT_KINDS, *FULL_KINDS)
    assert EVENTS in FULL_KINDS
    assert EVENTS not in LIGHT_KINDS
