"""To be written."""

from __future__ import annotations

from cudagraph_gate.pilot.jobs import RungJob
from cudagraph_gate.pilot.session import Loaded
from cudagraph_gate.pilot.trial_log import TrialLog


def try_instances(loaded: Loaded, log: TrialLog, job: RungJob) -> None:
    """To be written."""
    raise NotImplementedError
