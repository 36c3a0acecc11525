"""The documentation names every hard scenario as the catalogue does, and every one is implemented."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudagraph_gate.model import SCENARIOS, Scenario
from cudagraph_gate.pilot.scenarios.running import ATTACKS

GATES = (Path(__file__).parents[1] / "docs" / "gates.md").read_text()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_each_scenario_is_documented_as_it_is(scenario: Scenario) -> None:
    assert f"| `{scenario.name}` | {scenario.injected} | {scenario.expected} |" in GATES


def test_each_scenario_has_its_fault_and_each_fault_its_scenario() -> None:
    assert set(ATTACKS) == {scenario.name for scenario in SCENARIOS}


def test_the_quick_ones_are_named() -> None:
    quick = ", ".join(f"`{scenario.name}`" for scenario in SCENARIOS if scenario.quick)
    assert f"`--quick` runs {quick}." in GATES
