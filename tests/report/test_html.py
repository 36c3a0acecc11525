"""One HTML file that needs nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from artefact_builder import device_idle, diagnosis, fingerprint
from captured_map import CAPTURED_MAP
from evidence_builder import (
    FINISHED,
    MS,
    changed,
    compared,
    not_measured,
    passing,
    rung,
    rung_records,
    shape_records,
    timed,
    trial,
)

from cudagraph_gate.gates import Evidence, Policy, judge, view_trial
from cudagraph_gate.model import Cause, GateStatus, Reason
from cudagraph_gate.records import (
    Finding,
    InstanceRun,
    MemorySeries,
    Phase,
    PhaseStarted,
    Record,
    RungEnded,
    StepShare,
    WholeRequests,
)
from cudagraph_gate.report import render_html
from cudagraph_gate.report.console_pieces import SIMULATED_LINE
from cudagraph_gate.report.html import latency_picture
from cudagraph_gate.report.html_diagnosis import idle_bar
from cudagraph_gate.report.html_pieces import WIDTH

VOID = {"meta", "br", "img", "link"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; fails where an end tag does not match."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def page(evidence: Evidence, stale: tuple[str, ...] = ()) -> Page:
    return Page(render_html(evidence, judge(evidence, Policy(), stale=stale)))


def test_every_tag_is_closed_and_every_gate_is_there():
    found = page(passing())
    assert found.open == []
    for name in ("evidence", "segment", "environment", "lifecycle", "hard scenarios", "comparison", "drill"):
        assert name in found.words
    assert "INCONCLUSIVE model.py" in found.words


def test_nothing_is_loaded_from_elsewhere_and_no_script_runs():
    source = render_html(passing(), judge(passing(), Policy()))
    found = Page(source)
    assert not re.search(r"https?://|@import|url\(", source)
    assert not found.tags & {"script", "link", "img", "iframe", "object"}
    assert not {name for name, _ in found.attributes} & {"src", "href", "onload", "onclick"}


def test_names_are_escaped_everywhere():
    evil = "<script>alert('x')</script>&"
    evidence = passing(
        workload=evil,
        run=evil,
        fingerprint=fingerprint(
            identity=fingerprint().identity | {evil: evil}, conditions={evil: evil}, missing={evil: evil}
        ),
        diagnosis=diagnosis(
            prediction=not_measured(evil), devices=(device_idle(idle_ns=not_measured(evil)),)
        ),
        records=trial(shape_records(), (), shapes=("b1", evil)),
    )
    found = page(evidence, stale=(evil,))
    assert "script" not in found.tags
    assert found.words.count("<script>alert") >= 8


def test_numbers_of_idle_and_latency_are_there():
    words = page(passing()).words
    assert "host_work" in words
    assert "30.0 %" in words
    assert "0.600 to 0.600" in words
    assert "NVIDIA H200" in words


def test_the_page_holds_what_the_console_prints():
    finding = Finding(
        shape="b1", phase=Phase.CAPTURE, code=Reason.CAPTURE_ILLEGAL, message="refused", advice="move it out"
    )
    words = page(passing(records=trial(shape_records(more=[finding])))).words
    for said in (
        diagnosis().conclusion,
        "submission gap P5040.0 µs",
        "request P501.00 ms",
        "gain40.0 % (38.0 % to 42.0 %)",
        "outputs: 6 of 6 equal",
        "finding capture-illegal in capture: refused",
        "move it out",
        "first_replay",
    ):
        assert said in words


# --- the ladder and the graph ---------------------------------------------------------------------

EVIL = "<script>alert('x')</script>"


def ladder() -> tuple[Record, ...]:
    """Two instances with wrong outputs, a leak, and how the rungs were judged."""
    run = InstanceRun(
        shape="b1",
        count=2,
        requests=5,
        wrong=1,
        bytes_per_instance=1 << 20,
        normal_ns=not_measured(EVIL),
        graph_ns=not_measured(EVIL),
    )
    leak = MemorySeries(
        shape="b1",
        activity="replays",
        counts=tuple(range(16)),
        device_used_bytes=tuple(at << 22 for at in range(16)),
        allocator_bytes=not_measured(),
        host_rss_bytes=not_measured(),
    )
    return (
        PhaseStarted(shape="b1", phase=Phase.MEMORY),
        leak,
        FINISHED,
        PhaseStarted(shape="b1", phase=Phase.INSTANCES),
        run,
        FINISHED,
        RungEnded(number=2, name="fresh inputs", status=GateStatus.PASS, reason="held"),
        RungEnded(
            number=4,
            name="several instances",
            status=GateStatus.FAIL,
            reason=EVIL,
            code=Reason.REPLAY_RACE,
        ),
    )


def test_the_ladder_is_a_table_with_what_its_rungs_measured():
    found = page(passing(records=trial(rungs=ladder())))
    assert "script" not in found.tags
    assert "2fresh inputspass40.0 %" in found.words
    assert f"4several instancesfail–{EVIL} [replay-race]" in found.words
    assert "2 instances: 1 of 10 requests wrong; memory of each further one 1.00 MiB" in found.words
    assert f"together not timed ({EVIL})" in found.words
    assert "replays15device4.00 MiB60.0 MiBleak" in found.words
    assert ("class", "fail") in found.attributes


def test_a_trial_without_a_ladder_has_no_table_of_it():
    words = page(passing(records=trial(rungs=()))).words
    assert "Ladder" not in words
    assert "Memory over time" not in words


def test_the_graph_is_a_table_of_its_parts():
    words = page(passing(records=trial(shape_records(more=[CAPTURED_MAP])))).words
    assert "Graph, shape b1" in words
    assert "0–workgemm<float> & 3 otherscuBLAS7–" in words
    assert "10outputDtoH–14.00 KiB" in words
    assert "8 nodes (7 kernel, 1 memcpy), 7 dependencies" in words
    assert "part 1: the <host> array must stay" in words
    assert "graph: 8 nodes" not in words
    assert "graph: 8 nodes (8 kernel)" in page(passing()).words


def test_an_explicit_graph_has_sections_of_its_own():
    explicit = [changed(record, method="explicit") for record in shape_records(graph_ns=500_000)]
    words = page(passing(records=trial(shape_records(), (FINISHED, *explicit)))).words
    captured, beside = words.split("Latency, shape b1, explicit graph")
    assert "P501.00 ms600 µs0.600" in captured
    assert "P501.00 ms500 µs0.500" in beside
    assert "Costs, shape b1, explicit graph" in beside
    assert "the explicit graph" not in words


@pytest.mark.parametrize("blocks", [6, 0])
def test_whole_requests_are_a_table_of_both_paths(blocks: int):
    timed_requests = [
        WholeRequests(
            shape="b1",
            path=path,
            order=order,
            half="ab"[order % 2],
            latencies_ns=(p50_ns,) * 20,
            cpu_ns=MS,
            step_calls=20,
        )
        for path, p50_ns in (("normal", 10 * MS), ("graph", 8 * MS))
        for order in range(blocks)
    ]
    share = StepShare(shape="b1", requests=10, request_ns=100 * MS, step_ns=25 * MS, step_calls=10)
    more = (PhaseStarted(shape="b1", phase=Phase.WHOLE_REQUEST), share, *timed_requests)
    words = page(passing(records=trial(shape_records(more=more)))).words
    _before, after = words.split("Whole request, shape b1")
    assert ("P5010.0 ms8.00 ms0.800" in after) == bool(blocks)
    assert ("the graph can touch 25.0 % of it" in after) == bool(blocks)
    assert "Whole request" not in page(passing()).words


def test_a_wrong_explicit_graph_is_said_to_be():
    wrong = [compared("outputs", at, equal=at != 2, max_abs_error=0.5, detail=EVIL) for at in range(6)]
    explicit = [changed(record, method="explicit") for record in shape_records(comparisons=wrong)]
    found = page(passing(records=trial(shape_records(), (FINISHED, *explicit))))
    note = f"the explicit graph of shape b1 is wrong: request 2: outputs differ from the normal path, {EVIL}"
    assert found.words.count(note) == 2  # as a condition of the verdict, and where the graph is shown
    assert "the captured graph is judged, not this one" in found.words
    assert "script" not in found.tags


def test_the_request_mix_is_a_table_of_load_levels():
    found = page(passing(records=trial(traffic=True)))
    assert "Latency under the request mix, queueing included" in found.words
    assert "62.5 % (recorded)normal1.00 ms1.00 ms1.00 ms62.5 %" in found.words
    assert "graph600 µs600 µs600 µs37.5 %" in found.words
    assert "load 100 % is what the normal path can just serve" in found.words
    assert "request mix, queueing" not in page(passing()).words


def test_a_mix_that_was_not_replayed_says_so():
    rungs = rung_records(traffic=rung(Phase.TRAFFIC))
    words = page(passing(records=trial(rungs=rungs, traffic=True))).words
    assert "queueing included\nthe request mix was not replayed" in words


def test_several_shapes_are_a_table_with_those_to_capture():
    parts = (shape_records(), shape_records("b8", graph_ns=1_100_000))
    words = page(passing(records=trial(*parts, shapes=("b1", "b8")))).words
    assert "Gain by shape, per average request of the mix" in words
    assert "b150.0 %1.00 ms600 µs200 µs64.0 MiByes" in words
    assert "b850.0 %1.00 ms1.10 ms-50.0 µs64.0 MiBno" in words
    assert "capture b1: keeps 100.0 % of the gain" in words
    assert "Gain by shape" not in page(passing()).words


def test_absence_prints_its_reason():
    bare = page(passing(fingerprint=None, diagnosis=None, records=()))
    assert "the run has no fingerprint" in bare.words
    assert "0 timed blocks of the normal path" in bare.words
    unmeasured = diagnosis(devices=(device_idle(idle_ns=not_measured("dropped"), causes={}),))
    assert "idle is not measurable: dropped" in page(passing(diagnosis=unmeasured)).words


def test_simulated_stale_and_conditional_evidence_say_so():
    log = trial(shape_records(), shapes=("b1", "b8"), simulated=True)
    words = page(passing(records=log), stale=("driver_version",)).words
    assert SIMULATED_LINE in words
    assert "rehearsal: INCONCLUSIVE" in words
    assert "stale: driver_version differ here" in words
    assert "condition: shape b8 excluded" in words


def test_the_idle_bar_is_as_wide_as_the_window():
    widths = re.findall(
        r'x="([\d.]+)" y="0" width="([\d.]+)"', idle_bar([("busy", 3, 0.75), (Cause.SYNC, 1, 0.25)])
    )
    assert [(float(x), float(width)) for x, width in widths] == [
        (0, 0.75 * WIDTH),
        (0.75 * WIDTH, 0.25 * WIDTH),
    ]


@pytest.mark.parametrize("blocks", [6, 60])
def test_the_picture_stays_small_and_inside(blocks: int):
    timings = [*timed("normal", MS, blocks=blocks), *timed("graph", 600_000, blocks=blocks)]
    target = view_trial(passing(records=trial(shape_records(blocks=timings)))).target
    assert target is not None
    picture = latency_picture(target)
    centres = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', picture)]
    assert 200 <= len(centres) <= 850
    assert min(centres) >= 60
    assert max(centres) <= WIDTH
    assert "normal: median 1.00 ms" in picture
    assert "graph: median 600 µs" in picture
