"""What the use of a right graph is bound to."""

from __future__ import annotations

from typing import Any

import pytest

from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.gates.uses import use_conditions
from cudagraph_gate.model import Reason
from cudagraph_gate.records import Finding, Phase, Record


def found(**change: Any) -> Finding:
    given: dict[str, Any] = {"phase": Phase.TRAJECTORY, "code": Reason.LIFETIME, "blocks": False}
    return Finding(
        shape="b1", message="the graph path overwrites output y", advice="clone it", **(given | change)
    )


def trial(*records: Record) -> ShapeTrial:
    return ShapeTrial("b1", records)


def test_each_such_finding_is_a_condition_with_its_advice() -> None:
    race = found(code=Reason.REPLAY_RACE)
    assert use_conditions(trial(found())) == ("the graph path overwrites output y: clone it",)
    assert len(use_conditions(trial(found(), race, found(phase=Phase.TIMING)))) == 1
    assert len(use_conditions(trial(found(), Finding(**{**_fields(race), "message": "another"})))) == 2


def _fields(finding: Finding) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in finding.__struct_fields__}


@pytest.mark.parametrize("other", [{"blocks": True}, {"code": Reason.RNG}, {"phase": Phase.CAPTURE}])
def test_other_findings_are_none(other: dict[str, Any]) -> None:
    assert use_conditions(trial(found(**other))) == ()


def test_without_a_trial_there_is_no_condition() -> None:
    assert use_conditions(None) == ()
    assert use_conditions(trial()) == ()
