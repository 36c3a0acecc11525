"""The graph that ``build_explicit`` makes, tried beside the captured one: where it is wrong, that is said.

It decides nothing of the captured graph, which is judged; but a wrong one must not be shipped instead of it.
"""

from __future__ import annotations

from typing import Final

from cudagraph_gate.gates.check import Check, finding_checks
from cudagraph_gate.gates.comparison import PHASES, correctness_checks
from cudagraph_gate.gates.lifecycle import PHASES as LIFECYCLE_PHASES
from cudagraph_gate.gates.segment import segment_checks
from cudagraph_gate.gates.trial_view import ShapeTrial, TrialView
from cudagraph_gate.gates.wording import one_line
from cudagraph_gate.model import GateStatus, Reason

WRONG: Final = frozenset({Reason.WRONG_OUTPUT, Reason.STATE_MUTATION, Reason.ESCAPED_WORK})
"""Codes of a graph that runs and gives something else."""
HARMFUL: Final = WRONG | {Reason.CRASH, Reason.HANG}
"""With those that end the process: what an application must be kept from using. What is refused before it
runs does no harm, and is only told."""
JUDGED: Final = "the captured graph is judged, not this one"


def explicit_conditions(view: TrialView) -> tuple[str, ...]:
    """A sentence for each shape whose explicit graph would do harm, with what is wrong and where."""
    harmful = (
        trial for trial in view.explicit.values() if {check.code for check in _failures(trial)} & HARMFUL
    )
    return tuple(map(explicit_note, harmful))


def explicit_note(trial: ShapeTrial) -> str:
    """What is wrong with one explicit graph; empty if nothing is known to be."""
    found = _failures(trial)
    if not found:
        return ""
    wrong = [check for check in found if check.code in WRONG]
    what = "is wrong" if wrong else "can't be used"
    said = dict.fromkeys(check.sentence for check in wrong or found)
    return one_line(f"the explicit graph of shape {trial.shape} {what}: {'; '.join(said)}; {JUDGED}")


def _failures(trial: ShapeTrial) -> list[Check]:
    """What speaks against using it at all; that it may be slower is no matter."""
    checks = [
        *segment_checks(trial),
        *finding_checks(trial, PHASES | LIFECYCLE_PHASES),
        *correctness_checks(trial),
    ]
    return [check for check in checks if check.status is GateStatus.FAIL]
