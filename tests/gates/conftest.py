"""The gates judged on evidence that passes but for what a test changes."""

from __future__ import annotations

import pytest
from evidence_builder import Gate, passing

from cudagraph_gate.gates import Evidence, Policy, judge
from cudagraph_gate.model import GateResult


@pytest.fixture
def gate() -> Gate:
    """One gate's answer to passing evidence, whose parts the keywords replace."""

    def answer(number: int, *, policy: Policy | None = None, **change: object) -> GateResult:
        evidence: Evidence = passing(**change)
        return judge(evidence, policy or Policy()).gates[number - 1]

    return answer
