"""The drill: graphs are turned off in the middle of traffic."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pilot_workloads import OF_ITS_OWN
from scenes import Seen, seen

from cudagraph_gate.model import GateStatus, Reason
from cudagraph_gate.pilot.scenarios import proofs
from cudagraph_gate.records import DrillRun


def runs(found: Seen) -> list[DrillRun]:
    return [record for record in found.records if isinstance(record, DrillRun)]


def test_all_stretches_are_served_and_nothing_is_lost(tmp_path: Path) -> None:
    found = seen(tmp_path, "drill")
    assert (found.ended.status, found.failed_proofs) == (GateStatus.PASS, [])
    logged = runs(found)
    assert [*Counter(run.stretch for run in logged)] == ["before", "graph", "switch", "after"]
    assert all(run.sent == run.answered and not run.wrong for run in logged)
    served = {run.stretch: run.graph_served for run in logged}
    assert served["before"] == served["after"] == 0 < served["graph"]
    assert sum(run.in_flight for run in logged) == 2
    assert logged[0].threads == 2


def test_a_drill_that_is_repeated_for_its_memory_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proofs, "SLACK_BYTES", -1)  # whatever is read is too much
    found = seen(tmp_path, "drill")
    assert found.failed_proofs == ["memory"]
    assert [run.order for run in runs(found)] == list(range(len(runs(found))))


def test_requests_that_change_state_come_one_by_one(tmp_path: Path) -> None:
    found = seen(
        tmp_path,
        "drill",
        """
        total = array()

        def step(x):
            device.copy(work, x)
            add(total, 1)
            return work

        def state():
            return {"total": total}
        """,
    )
    assert found.ended.status is GateStatus.PASS
    assert {run.threads for run in runs(found)} == {1}
    assert "one thread" in found.ended.seen


def test_an_own_path_is_turned_off_too(tmp_path: Path) -> None:
    text = f"{OF_ITS_OWN}\ndef build_graphed(shape):\n    return build(shape)\n"
    found = seen(tmp_path, "drill", text, method="own")
    assert (found.ended.status, found.failed_proofs) == (GateStatus.PASS, [])


def test_a_normal_path_that_goes_wrong_once_graphs_were_used_is_found(tmp_path: Path) -> None:
    found = seen(
        tmp_path,
        "drill",
        OF_ITS_OWN
        + """
def build_graphed(shape):
    own = build(shape)

    def graphed(x):
        ADDED.append(1)
        return own(x)

    return graphed

ADDED = []
_plain = build

def build(shape):
    step = _plain(shape)

    def spoilt(x):
        out = step(x)
        if len(ADDED) > 2:
            add(out, 1)
        return out

    return spoilt
""",
        method="own",
    )
    assert found.ended.status is GateStatus.FAIL
    assert found.ended.code is Reason.WRONG_OUTPUT
