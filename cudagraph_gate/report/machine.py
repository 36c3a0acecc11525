"""Results for programs: what ``--json`` prints, described in ``docs/json.md``."""

from __future__ import annotations

from typing import Any

from cudagraph_gate.gates import Evidence
from cudagraph_gate.model import SCHEMA_VERSION, HtaView
from cudagraph_gate.pipeline import Examination


def profile(evidence: Evidence, hta: HtaView | None = None) -> dict[str, Any]:
    """``cgate profile --json``; ``hta`` is null unless its definitions were asked for."""
    return {
        "schema_version": SCHEMA_VERSION,
        "workload": evidence.workload,
        "run": evidence.run,
        "diagnosis": evidence.diagnosis,
        "profile": evidence.profile,
        "fingerprint": evidence.fingerprint,
        "hta": hta,
    }


def trial(evidence: Evidence) -> dict[str, Any]:
    """``cgate pilot --json``: the records of the log, oldest first."""
    return {
        "schema_version": SCHEMA_VERSION,
        "workload": evidence.workload,
        "run": evidence.run,
        "simulated": evidence.simulated,
        "records": evidence.records,
    }


def examination(found: Examination) -> dict[str, Any]:
    """``cgate doctor --json``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "device": found.device,
        "simulated": found.simulated,
        "features": found.features,
        "advice": found.advice,
        "fingerprint": found.fingerprint,
    }
