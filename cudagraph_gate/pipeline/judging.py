"""The verdict stage: a run's evidence judged for this machine as it is now."""

from __future__ import annotations

from pathlib import Path

from cudagraph_gate import fingerprint
from cudagraph_gate.evidence import Run
from cudagraph_gate.gates import Evidence, Policy, judge
from cudagraph_gate.model import Fingerprint, Verdict


def verdict(run: Run, policy: Policy) -> Verdict:
    """Judge the run's evidence for this machine as it is now."""
    evidence = collect_evidence(run)
    return judge(evidence, policy, stale=stale_fields(run))


def collect_evidence(run: Run) -> Evidence:
    """Everything that the run folder holds."""
    return Evidence(
        workload=run.info().workload,
        run=run.name,
        fingerprint=run.fingerprint(),
        profile=run.profile(),
        diagnosis=run.diagnosis(),
        records=run.records(),
    )


def stale_fields(run: Run) -> tuple[str, ...]:
    """Fingerprint fields in which this machine, or the workload file, differs from the recording."""
    recorded = run.fingerprint()
    if recorded is None:
        return ()
    return fingerprint.differences(recorded, _here(recorded, Path(run.info().workload)))


def _here(recorded: Fingerprint, workload: Path) -> Fingerprint:
    return fingerprint.collect(
        simulated=recorded.simulated,
        device_name=str(recorded.identity.get("device", "")),
        workload=workload,
    )
