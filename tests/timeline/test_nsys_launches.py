"""Launches of an export whose operation is not in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudagraph_gate.diagnosis import diagnose
from cudagraph_gate.model import NotMeasured
from cudagraph_gate.timeline.nsys import read_nsys
from cudagraph_gate.timeline.table import TimelineMeta
from tests.timeline import nsys_files as tables
from tests.timeline.nsys_files import THREAD, Export, global_tid

LAUNCH = "cudaLaunchKernel_v7000"
GRAPH_LAUNCH = "cudaGraphLaunch_v10000"


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "report.sqlite")


def meta(export: Export) -> TimelineMeta:
    return read_nsys(export.done()).meta


def launched(export: Export, *correlations: int, name: str = LAUNCH, thread: int = THREAD) -> Export:
    """A call at 100 times each correlation."""
    for one in correlations:
        tid = global_tid(thread=thread)
        export.call(name, 100 * one, 100 * one + 5, one, globalTid=tid)
    return export


def ran(export: Export, *correlations: int) -> Export:
    """The kernel of each correlation, 10 ns after the start of its call."""
    for one in correlations:
        export.kernel(100 * one + 10, 100 * one + 50, one)
    return export


def test_missing_kernels_make_idle_not_measurable(export: Export) -> None:
    launched(export, *range(1, 7))
    timeline = read_nsys(ran(export, 1, 3, 6).done())
    assert timeline.meta.dropped_records == 3
    assert timeline.meta.problems == ("3 of 6 launch calls have no operation in the file",)
    idle = diagnose(timeline, NotMeasured(reason="a file")).devices[0].idle_ns
    assert isinstance(idle, NotMeasured)


def test_launches_after_the_last_one_that_ran_are_no_loss(export: Export) -> None:
    said = meta(ran(launched(export, 1, 2, 3, 4), 1, 2))
    assert said.dropped_records == 0
    assert said.problems == ("2 launches had not run when the recording ended",)


def test_launches_that_failed_need_no_operation(export: Export) -> None:
    export.call(LAUNCH, 150, 155, 9, returnValue=1)
    said = meta(ran(launched(export, 1, 2), 1, 2))
    assert (said.dropped_records, said.problems) == (0, ())


@pytest.mark.parametrize(("capturing", "lost"), [(THREAD, 0), (THREAD + 1, 1)])
def test_a_capture_covers_the_launches_of_its_own_thread(export: Export, capturing: int, lost: int) -> None:
    tid = global_tid(thread=capturing)
    export.call("cudaStreamBeginCapture_v10000", 150, 155, 50, globalTid=tid)
    export.call("cudaStreamEndCapture_v10000", 250, 255, 51, globalTid=tid)
    assert meta(ran(launched(export, 1, 2, 3), 1, 3)).dropped_records == lost


def test_whole_graphs_and_nodes_are_operations_of_their_launch(export: Export) -> None:
    launched(export, 1, 2, 3, name=GRAPH_LAUNCH)
    export.operation(tables.GRAPH_TRACE, 110, 150, 1, graphId=3)
    export.operation(tables.MEMCPY, 210, 250, 2, copyKind=8, graphNodeId=(4 << 32) + 1)
    export.kernel(310, 350, 3, graphNodeId=(5 << 32) + 1)
    said = meta(export)
    assert said.dropped_records == 0
    assert len(said.problems) == 1
    assert "recorded as a whole" in said.problems[0]


def test_graph_launches_without_any_row_say_how_to_record_them(export: Export) -> None:
    launched(ran(launched(export, 1, 3), 1, 3), 2, name=GRAPH_LAUNCH)
    said = meta(export)
    assert said.dropped_records == 1
    assert said.problems == (
        "1 of 3 launch calls have no operation in the file (nsys profile --cuda-graph-trace=node)",
    )


def test_a_kernel_of_another_process_is_not_that_of_the_launch(export: Export) -> None:
    launched(export, 1, 2, 3).kernel(210, 250, 2, globalPid=global_tid(200, 0))
    assert meta(ran(export, 1, 3)).dropped_records == 1


def test_kernels_without_a_correlation_stand_for_launches_that_seem_lost(export: Export) -> None:
    launched(export, 1, 2, 3, 4).kernel(210, 250, None)
    said = meta(ran(export, 1, 4))
    assert said.dropped_records == 1
    assert said.problems == (
        "1 of 4 launch calls have no operation in the file",
        "1 operations lack what tells their launch call",
    )


def test_launches_without_correlations_are_not_judged(export: Export) -> None:
    launched(export.without(tables.RUNTIME, "correlationId"), 1, 2, 3)
    said = meta(ran(export, 1, 3))
    assert said.dropped_records == 0
    assert said.problems == ("3 launch calls name no operation: whether it is in the file is not known",)


def test_a_loss_that_several_signs_tell_counts_once(export: Export) -> None:
    export.add("DIAGNOSTIC_EVENT", text="Dropped 2 CUDA events")
    assert meta(ran(launched(export, 1, 2, 3, 4), 1, 4)).dropped_records == 2


def test_a_file_without_operations_has_lost_no_launch(export: Export) -> None:
    said = meta(launched(export, 1, 2))
    assert said.dropped_records == 0
    assert "no GPU operation" in said.problems[0]
