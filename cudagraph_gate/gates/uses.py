"""What a graph whose outputs are right is bound to in use, found while it was compared."""

from __future__ import annotations

from typing import Final

from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.model import Reason
from cudagraph_gate.records import Phase

USE_CODES: Final = frozenset({Reason.LIFETIME, Reason.REPLAY_RACE, Reason.FROZEN_HOST_STATE})
"""Kinds of findings that do not refuse a graph but bind its use: outputs that the next request overwrites,
host memory that must stay, replays that must not overlap, inputs that replays do not take."""


def use_conditions(trial: ShapeTrial | None) -> tuple[str, ...]:
    """One condition for each such finding, with its advice."""
    if trial is None:
        return ()
    found = (
        f"{finding.message}: {finding.advice}"
        for finding in trial.findings
        if finding.code in USE_CODES and finding.phase is Phase.TRAJECTORY and not finding.blocks
    )
    return tuple(dict.fromkeys(found))
