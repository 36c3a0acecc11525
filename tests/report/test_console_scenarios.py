"""The hard scenarios as a person reads them."""

from __future__ import annotations

from collections.abc import Callable

from attack_evidence import attacked_trial, end, ended
from evidence_builder import passing

from cudagraph_gate.gates import Evidence, view_trial
from cudagraph_gate.gates.scenarios import Attacked, view_attack
from cudagraph_gate.model import SCENARIOS, GateStatus, Reason
from cudagraph_gate.records import Record
from cudagraph_gate.report.console_scenarios import print_scenarios, scenario_notes, scenario_rows
from cudagraph_gate.report.html_scenarios import scenario_parts

Printed = Callable[..., str]
NAME = "noisy-neighbour"
BAD = (
    ended(NAME, status=GateStatus.FAIL, code=Reason.CAPTURE_INTERFERENCE, seen="3 of 20 captures failed"),
    end(NAME),
)


def evidence(records: tuple[Record, ...]) -> Evidence:
    return passing(records=records)


def attacked(records: tuple[Record, ...]) -> Attacked:
    found = view_attack(records, view_trial(evidence(records)))
    assert found is not None
    return found


def test_each_scenario_has_a_row_with_its_answer_time_and_what_came_of_it() -> None:
    rows = scenario_rows(attacked(attacked_trial({NAME: BAD})))
    assert [name for name, *_rest in rows] == [scenario.name for scenario in SCENARIOS]
    assert rows[0] == ("capture-failure", "pass", "2.0", "as expected")
    (bad,) = [row for row in rows if row[0] == NAME]
    assert bad == (NAME, "fail", "2.0", "3 of 20 captures failed [capture-interference]")


def test_the_notes_say_what_was_left_out_and_where_the_time_went() -> None:
    records = attacked_trial({NAME: BAD}, {"hang": "--skip", "drill": "--skip"})
    notes = scenario_notes(attacked(records))
    assert notes[0] == "left out by --skip: hang, drill"
    workers = sum(len(each.ends) for each in SCENARIOS if each.name not in ("hang", "drill"))
    assert notes[1] == f"hard scenarios took {2 * workers}.0 s, the longest device-fault (4.0 s)"


def test_it_fits_eighty_columns(printed: Printed) -> None:
    records = attacked_trial({NAME: BAD})
    text = printed(print_scenarios, evidence(records), view_trial(evidence(records)))
    assert max(map(len, text.splitlines())) <= 80
    assert "noisy-neighbour" in text


def test_nothing_is_said_where_none_was_run(printed: Printed) -> None:
    records = attacked_trial()[:1]
    assert printed(print_scenarios, evidence(records), view_trial(evidence(records))) == ""
    assert [*scenario_parts(evidence(records), view_trial(evidence(records)))] == []


def test_the_page_shows_the_same_rows() -> None:
    records = attacked_trial({NAME: BAD})
    page = "".join(scenario_parts(evidence(records), view_trial(evidence(records))))
    assert "3 of 20 captures failed [capture-interference]" in page
    assert '<span class="fail">fail</span>' in page
