"""Repeating sequences are found with marks, by blocking calls, and by their repetition alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_segments import Program, only, segments
from made_timelines import kernel, overhead, request, span, timeline

from cudagraph_gate.diagnosis.segments import segments_of
from cudagraph_gate.diagnosis.submission import operations_with_submission
from cudagraph_gate.model import NotMeasured, Segment


def marked(*iterations: str, name: str = "step", **others: object) -> Program:
    program = Program()
    for number, letters in enumerate(iterations):
        begin = program.now
        program.run(letters)
        program.ranges.append(span(f"{name}#{number}", begin, program.now, **others))
        program.wait(500)
    return program


def kernels(segment: Segment) -> str:
    return "".join(sorted(segment.kernels))


# --- marks ----------------------------------------------------------------------------------------
def test_requests_mark_the_iterations() -> None:
    program = Program()
    for _ in range(4):
        begin = program.now
        program.run("ABC")
        program.ranges.append(request(begin, program.now))
        program.run("X")
    segment = only(program.timeline())
    assert (segment.marked_by, segment.operations, segment.repeats) == ("request", 3, 4)
    assert segment.kernels == {"A": 1, "B": 1, "C": 1}
    assert segment.operation_share == pytest.approx(12 / 16)


def test_a_numbered_user_range_marks_the_iterations() -> None:
    segment = only(marked("ABC", "ABC", "ABC").timeline())
    assert (segment.marked_by, segment.operations, segment.repeats) == ("step", 3, 3)


def test_the_outermost_range_with_the_work_marks_the_iteration() -> None:
    program = marked("ABCD", "ABCD", "ABCD")
    for outer in tuple(program.ranges):
        program.ranges.append(span("inner", outer["start_ns"] + 1, outer["end_ns"] - 1))
    program.ranges.append(span("whole run", 0, program.now))
    assert only(program.timeline()).marked_by == "step"


def test_two_repeats_may_be_chance() -> None:
    assert segments(marked("ABC", "ABC").timeline()) == ()


def test_ranges_that_hold_one_operation_mark_nothing() -> None:
    assert segments(marked("A", "B", "A").timeline()) == ()


def test_operators_of_a_framework_are_the_last_resort() -> None:
    program = marked("AB", "CA", "BD", name="op", domain="cpu_op")
    assert only(program.timeline()).marked_by == "op"
    program = marked("AB", "AB", "AB", "AB", name="op", domain="cpu_op")
    assert only(program.timeline()).marked_by == ""


def test_blocking_calls_cut_an_iteration_into_parts() -> None:
    program = Program()
    for number in range(3):
        begin = program.now
        program.run("ABC").sync().run("X").sync().run("DE")
        program.ranges.append(span(f"step#{number}", begin, program.now))
    found = segments(program.timeline())
    assert sorted((kernels(one), one.repeats) for one in found) == [("ABC", 3), ("DE", 3)]
    assert all(one.marked_by == "step" for one in found)


# --- blocking calls -------------------------------------------------------------------------------
def test_runs_between_blocking_calls_repeat_as_they_are() -> None:
    program = Program()
    for _ in range(5):
        program.run("ABCD").sync()
    segment = only(program.timeline())
    assert (segment.operations, segment.repeats, segment.marked_by) == (4, 5, "")
    assert [(one.name, one.count, one.total_ns) for one in segment.blocking_calls] == [
        ("cuStreamSynchronize", 5, 300)
    ]


def test_a_synchronous_copy_is_a_boundary_and_no_part() -> None:
    program = Program()
    for _ in range(4):
        program.run("ABC")
        program.launch([("DtoH", {"kind": "memcpy"})], "cuMemcpyDtoH")
        program.calls[-1]["blocking"] = True
    segment = only(program.timeline())
    assert segment.kernels == {"A": 1, "B": 1, "C": 1}
    assert [one.name for one in segment.blocking_calls] == ["cuMemcpyDtoH"]


def test_unlike_runs_are_segments_of_their_own() -> None:
    program = Program()
    for _ in range(4):
        program.run("ABCD").sync().run("EFG").sync()
    assert sorted((kernels(one), one.repeats) for one in segments(program.timeline())) == [
        ("ABCD", 4),
        ("EFG", 4),
    ]


def test_a_kernel_before_each_blocking_call_is_no_segment() -> None:
    program = Program()
    for _ in range(20):
        program.run("A").sync()
    assert segments(program.timeline()) == ()


def test_a_repeat_that_is_a_unit_back_to_back_tells_the_unit() -> None:
    program = Program()
    for _ in range(3):
        program.run("AB" * 6).sync()
    segment = only(program.timeline())
    assert (segment.operations, segment.unit_operations, segment.repeats) == (12, 2, 3)


def test_runs_of_any_number_of_units_are_told_by_the_unit() -> None:
    program = Program()
    for units in (3, 7, 4, 9, 5, 8):
        program.run("ABCD" * units).sync()
    segment = only(program.timeline())
    assert (segment.operations, kernels(segment)) == (4, "ABCD")
    assert segment.repeats == 36


# --- repetition alone -----------------------------------------------------------------------------
def test_a_pure_repetition_is_told_by_its_unit() -> None:
    segment = only(Program().run("AB" * 50).sync().timeline())
    assert (segment.operations, segment.unit_operations, segment.repeats) == (2, 2, 50)
    assert segment.coverage == pytest.approx(1, abs=0.02)
    assert not isinstance(segment.prediction, NotMeasured)
    assert "any number of units" in " ".join(segment.prediction.assumptions)


def test_one_kernel_over_and_over_is_taken_two_at_a_time() -> None:
    segment = only(Program().run("A" * 40).timeline())
    assert (segment.operations, segment.unit_operations, segment.repeats) == (2, 1, 20)


def test_an_outer_loop_of_equal_layers_wins_over_the_layer() -> None:
    segment = only(Program().run(("E" + "ABCD" * 32 + "H") * 10).timeline())
    assert (segment.operations, segment.repeats) == (130, 10)
    assert segment.kernels == {"A": 32, "B": 32, "C": 32, "D": 32, "E": 1, "H": 1}


def test_the_unit_begins_after_the_longest_pause() -> None:
    program = Program()
    for _ in range(10):
        program.run("CDEAB").wait(2000)
    segment = only(program.timeline())
    assert segment.map.nodes[0].label == "C and 4 others"
    # 30 of each 100 ns are busy, and a pause is no part of a repeat: five launches, the last one's 80 ns.
    assert segment.wall.p50 == 480
    assert segment.busy_ns == 150


def test_warm_up_and_jitter_only_make_variants() -> None:
    program = Program().run("XYZXXWV")
    for number in range(40):
        program.run("ABCDxEFGH" if number in (3, 4, 17, 31) else "ABCDEFGH").wait(7 * (number % 3))
    segment = only(program.timeline())
    assert (segment.operations, segment.repeats) == (8, 40)
    assert [(one.share, one.operations) for one in segment.variants] == [(0.9, 8), (0.1, 9)]
    assert segment.variation.operation_count == 0.1


def test_a_missing_operation_and_another_order_only_make_variants() -> None:
    program = Program()
    for number in range(40):
        program.run({3: "ABCDFGH", 4: "ABDCEFGH", 17: "ABDCEFGH"}.get(number, "ABCDEFGH")).wait(200)
    segment = only(program.timeline())
    assert segment.repeats == 40
    assert (segment.variation.operation_count, segment.variation.order) == (1 / 40, 2 / 40)


def test_a_loop_after_another_loop_is_found_too() -> None:
    program = Program().run("ABCDE" * 30).run("PQRS" * 20)
    found = {kernels(one): one.repeats for one in segments(program.timeline())}
    assert found.keys() == {"ABCDE", "PQRS"}
    assert found["ABCDE"] >= 28
    assert found["PQRS"] >= 18


def test_operations_in_random_order_are_no_segment() -> None:
    assert segments(Program().run("AQDZBXKEMWCLYFTGHVNJIOPRSU").timeline()) == ()


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=12),
    st.integers(4, 9),
    st.lists(st.integers(6, 14), max_size=8, unique=True),
)
def test_a_planted_repetition_is_found(unit: list[int], repeats: int, prefix: list[int]) -> None:
    letters = "".join(chr(ord("a") + one) for one in unit)
    program = Program().run("".join(chr(ord("a") + one) for one in prefix)).run(letters * repeats)
    found = segments(program.timeline())
    assert found
    best = max(found, key=lambda one: one.operation_share)
    assert len(unit) % best.unit_operations == 0
    covered = best.operations * best.repeats
    assert len(unit) * (repeats - 1) - best.operations < covered <= len(unit) * repeats + len(prefix)


# --- lanes ----------------------------------------------------------------------------------------
def test_interleaved_threads_do_not_mix() -> None:
    one, other = Program(), Program(thread=20, now=1005, correlation=1000)
    for number in range(12):
        one.run("ABC")
        other.run("XY").wait(13 * (number % 4))
    found = segments(one.timeline(other))
    assert {(segment.thread, kernels(segment)) for segment in found} == {(10, "ABC"), (20, "XY")}


def test_operations_without_a_call_are_given_to_no_thread() -> None:
    program = Program().run("ABC" * 10)
    orphans = [kernel(5000 + 50 * place, 5030 + 50 * place, name="PQ"[place % 2]) for place in range(12)]
    made = program.timeline()
    found = segments(timeline(program.operations + orphans, program.calls))
    assert {(one.thread, kernels(one)) for one in found} == {(10, "ABC"), (0, "PQ")}
    unknown = next(one for one in found if one.thread == 0)
    assert not isinstance(unknown.prediction, NotMeasured)
    assert isinstance(unknown.prediction.upper_bound_ns, NotMeasured)
    assert only(made).thread == 10


def test_a_light_recording_is_ordered_by_its_stamps() -> None:
    rows = [
        kernel(1000 + 100 * place, 1030 + 100 * place, place + 1, name="ABC"[place % 3])
        | {"queued_ns": 900 + 100 * place, "submitted_ns": 950 + 100 * place}
        for place in range(15)
    ]
    segment = only(timeline(rows, level="light"))
    assert (segment.operations, segment.repeats, segment.thread) == (3, 5, 0)


def test_devices_are_searched_one_by_one() -> None:
    program = Program()
    for _ in range(10):
        program.run("AB", device=0).run("XYZ", device=1)
    assert {(one.device, kernels(one)) for one in segments(program.timeline())} == {(0, "AB"), (1, "XYZ")}


# --- what is told of a segment ---------------------------------------------------------------------
def test_a_graph_launch_counts_its_nodes_together() -> None:
    program = Program()
    for number in range(4):
        nodes = [("n", {"graph": 5, "node": 10 * number + place}) for place in range(34)]
        program.run("A").launch(nodes, "cuGraphLaunch").run("B").sync()
    segment = only(program.timeline())
    assert (segment.operations, segment.graph_launches, segment.repeats) == (36, 1, 4)
    assert segment.kernels == {"A": 1, "B": 1, "n": 34}


def test_nodes_of_a_graph_may_run_in_any_order() -> None:
    program = Program()
    for number in range(4):
        nodes = [("n", {"graph": 5}), ("m", {"graph": 5})]
        program.run("A").launch(nodes[:: (-1) ** number], "cuGraphLaunch").sync()
    assert only(program.timeline()).variant_count == 1


def test_no_operation_is_no_measurement() -> None:
    empty = timeline()
    found = segments_of(empty, operations_with_submission(empty), (0, 0), ())
    assert found == NotMeasured(reason="no GPU operation lies in the window")


def test_the_recorder_s_own_time_is_no_gain() -> None:
    program = Program()
    for _ in range(5):
        program.run("ABC").sync()
    made = program.timeline()
    covered = replace(made, overheads=timeline(overheads=[overhead(0, program.now)]).overheads)
    prediction = only(covered).prediction
    assert not isinstance(prediction, NotMeasured)
    assert prediction.upper_bound_ns == 0


def test_permuting_rows_changes_nothing() -> None:
    program = Program().run("XY")
    for number in range(12):
        program.run("ABC" if number % 3 else "ABDC").sync()
    made = program.timeline()
    mirrored = replace(
        made,
        operations=made.operations.iloc[::-1].reset_index(drop=True),
        calls=made.calls.iloc[::-1].reset_index(drop=True),
    )
    assert segments(mirrored) == segments(made)


# --- any program ----------------------------------------------------------------------------------
steps = st.lists(
    st.tuples(
        st.sampled_from(["run", "graph", "sync", "wait", "cudaMalloc", "cuStreamWaitEvent"]),
        st.sampled_from("ABC"),
        st.integers(7, 8),
    ),
    min_size=1,
    max_size=12,
)


def performed(body: list[tuple[str, str, int]], repeats: int) -> Program:
    program = Program()
    for _ in range(repeats):
        for what, letter, stream in body:
            if what == "run":
                program.run(letter, stream=stream)
            elif what == "graph":
                program.launch([(letter, {"graph": 3}), ("n", {"graph": 3})], "cuGraphLaunch")
            elif what == "sync":
                program.sync()
            elif what == "wait":
                program.wait(stream)
            else:
                program.call(what, stream=stream, event=stream)
    return program.run("Z")


@settings(max_examples=40)
@given(steps, st.integers(1, 8))
def test_what_is_told_of_any_program_fits_together(body: list[tuple[str, str, int]], repeats: int) -> None:
    program = performed(body, repeats)
    found = segments(program.timeline())
    for segment in found:
        assert segment.repeats >= 3
        assert segment.operations >= 2
        assert segment.operations % segment.unit_operations == 0
        assert 0 <= segment.coverage <= 1
        assert sum(one.repeats for one in segment.variants) == segment.repeats
        assert sum(segment.kernels.values()) == segment.operations
        assert sum(node.operations for node in segment.map.nodes) == segment.operations
        assert all(edge.source < edge.target < len(segment.map.nodes) for edge in segment.map.edges)
        assert [node.number for node in segment.map.nodes] == list(range(len(segment.map.nodes)))
        prediction = segment.prediction
        if isinstance(prediction, NotMeasured):
            assert segment.graph_launches, "it is a graph already"
            continue
        assert prediction.replay_low_ns <= prediction.replay_ns <= prediction.replay_high_ns
        assert prediction.critical_path_ns <= 30 * segment.operations
    # Each operation belongs to one segment at most.
    assert sum(one.operation_share for one in found) <= 1 + 1e-9
