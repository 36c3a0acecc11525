"""The portable sample hazards through the command: each is refused with its reason, and no control is."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parent / "cli"))

from served import cgate

from cudagraph_gate.model import Decision, Reason
from cudagraph_gate.records import Finding, Record

HAZARDS = Path(__file__).parents[1] / "sample_workloads" / "hazards"
PORTABLE = sorted(HAZARDS.glob("portable_*.py"), key=lambda path: path.name)
CONSTANTS = ("HAZARD", "KIND", "EXPECTED", "REASON")
OPEN = {5, 7}
"""Gates that are unknown because the hard scenarios are left out here; the verdict is then INCONCLUSIVE."""


def constants(path: Path) -> dict[str, Any]:
    """What the file says of itself; nothing of it is run."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        name = getattr(node.targets[0], "id", "") if isinstance(node, ast.Assign) else ""
        if name in CONSTANTS:
            found[name] = ast.literal_eval(node.value)  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("path", PORTABLE, ids=lambda path: path.stem.removeprefix("portable_"))
def test_a_hazard_gets_its_verdict_and_its_reason(tmp_path: Path, path: Path) -> None:
    says = constants(path)
    refused = says["EXPECTED"] == ("NO-GO",)
    ended = cgate(
        tmp_path, "run", str(path), "--device", "simulated", "--json", "--skip", "all", "--rungs", "2"
    )
    assert ended.code == 12, ended.err
    verdict = json.loads(ended.out)
    failing = {gate["number"]: gate["code"] for gate in verdict["gates"] if gate["status"] == "fail"}
    if not refused:
        assert failing == {}, verdict["reasons"]
        assert verdict["rehearsal"] == "INCONCLUSIVE"
        return
    assert verdict["rehearsal"] == "NO-GO", (verdict["rehearsal"], verdict["reasons"])
    codes = {*failing.values(), *blocking(tmp_path)}
    assert codes & set(says["REASON"]), (codes, verdict["reasons"])


def blocking(folder: Path) -> set[str]:
    """Reason codes of the findings that refuse."""
    (log,) = folder.glob(".cgate/runs/*/pilot.jsonl")
    records = [msgspec.json.decode(line, type=Record) for line in log.read_bytes().splitlines()]
    return {record.code.value for record in records if isinstance(record, Finding) and record.blocks}


ALL = [path for path in sorted(HAZARDS.glob("*.py")) if constants(path)]
SEEDS = "1 7 10 18 29 32 36 40 46 57 63 72 79 80 86 92 102 113 142"
"""The seeds that are workloads: H132, a recorder's fault, is a matter for the trace readers."""


def test_every_seed_has_its_workload() -> None:
    assert {constants(path)["HAZARD"] for path in ALL} == {f"H{int(n):02}" for n in SEEDS.split()} | {
        "control"
    }


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_a_hazard_says_what_it_is(path: Path) -> None:
    says = constants(path)
    assert set(says) == set(CONSTANTS)
    assert says["KIND"] in {f"K{number}" for number in range(1, 19)}
    assert set(says["EXPECTED"]) <= {decision.value for decision in Decision}
    assert says["REASON"] is None or set(says["REASON"]) <= {reason.value for reason in Reason}
    assert (says["REASON"] is None) == ("NO-GO" not in says["EXPECTED"])
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert "Mechanism:" in text or says["HAZARD"] == "control"
    assert "#" in text or says["HAZARD"] == "control"  # owner/repo#number
