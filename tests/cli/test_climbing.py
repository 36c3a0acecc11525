"""The whole ladder, climbed once by the command, and how far it goes when it is told to stop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import Ended, Recorded, runs, write
from served import cgate

TRAFFIC = 'TRAFFIC = {"b1": 3, "b8": 1}\n'
STRICT = "min_gain = 0.99\n"


@pytest.fixture(scope="session")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """By ``cgate run model.py --shapes --flush-l2 --json`` with a request mix; nobody writes to it."""
    folder = tmp_path_factory.mktemp("climbed")
    write(folder, more=TRAFFIC)
    return Recorded(folder, cgate(folder, "run", "model.py", "--shapes", "--flush-l2", "--json"))


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "pilot.jsonl").read_text().splitlines()]


def answers(found: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """Number and status of each rung that was judged."""
    return [(record["number"], record["status"]) for record in found if record["record"] == "rung"]


def test_every_rung_is_tried_while_they_hold(climbed: Recorded):
    found = records(climbed.run)
    assert answers(found) == [(number, "pass") for number in range(1, 7)]
    kinds = {record["record"] for record in found}
    assert kinds >= {"captured_map", "update_cost", "memory_series", "instances", "concurrency", "traffic"}
    activities = {record["activity"] for record in found if record["record"] == "memory_series"}
    assert activities == {"replays", "cycles", "aborted"}


def test_a_ladder_that_holds_passes_the_comparison(climbed: Recorded):
    verdict = json.loads(climbed.ended.out)
    assert climbed.ended.code == 12
    assert [gate["status"] for gate in verdict["gates"] if gate["number"] not in (5, 7)] == ["pass"] * 5
    assert "every rung that applies holds" in verdict["gates"][5]["reason"]
    assert verdict["conditions"] == []


def test_the_report_shows_the_ladder(climbed: Recorded, tmp_path: Path):
    text = cgate(climbed.folder, "report").out
    for part in ("ladder;", "4 instances: all ", "4 threads: all outputs right", "memory over time"):
        assert part in text
    assert max(map(len, text.splitlines())) <= 80
    assert cgate(climbed.folder, "report", "--html", str(tmp_path / "page.html")).code == 0
    assert "<h2>Ladder</h2>" in (tmp_path / "page.html").read_text()


def test_the_captured_graph_is_written_as_a_map(climbed: Recorded, tmp_path: Path):
    ended = cgate(climbed.folder, "report", "--dot", str(tmp_path / "graph.dot"))
    assert ended.code == 0
    assert (tmp_path / "graph.dot").read_text().startswith("digraph graph_map")


def rungs_of(ended: Ended) -> list[tuple[int, str]]:
    assert ended.code == 0
    return answers(json.loads(ended.out)["records"])


def test_it_stops_where_it_is_told(tmp_path: Path):
    write(tmp_path)
    ended = cgate(tmp_path, "pilot", "model.py", "--shapes", "--rungs", "1", "--json")
    assert rungs_of(ended) == [(1, "pass")]
    shapes = {record.get("shape", "b1") for record in records(*runs(tmp_path))}
    assert shapes == {"b1"}, "the third rung was not reached"


def test_it_stops_at_the_first_rung_that_does_not_hold_under_the_policy(tmp_path: Path):
    write(tmp_path)
    (tmp_path / "strict.toml").write_text(STRICT)
    ended = cgate(tmp_path, "pilot", "model.py", "--policy", "strict.toml", "--json")
    assert rungs_of(ended) == [(1, "fail")]


def test_the_comparison_is_undecided_when_later_rungs_were_not_tried(original: Recorded):
    gate = json.loads(original.ended.out)["gates"][5]
    assert (gate["status"], gate["code"]) == ("unknown", "not-tried")
    assert "rung 4, several instances: it was not tried" in gate["reason"]
    assert answers(records(original.run)) == [(1, "pass"), (2, "pass")]
