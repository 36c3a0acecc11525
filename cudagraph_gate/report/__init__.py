"""Results for people: text for a terminal, and one HTML file. Nothing here decides anything."""

from pathlib import Path

from rich.console import Console

from cudagraph_gate.errors import UsageError
from cudagraph_gate.gates import Evidence
from cudagraph_gate.model import Verdict
from cudagraph_gate.report.console import print_diagnosis, print_fingerprint, print_trial, print_verdict
from cudagraph_gate.report.html import render_html

__all__ = [
    "print_diagnosis",
    "print_evidence",
    "print_fingerprint",
    "print_trial",
    "print_verdict",
    "render_html",
    "write_page",
]


def print_evidence(console: Console, evidence: Evidence) -> None:
    """The diagnosis and the trial, as far as the run has them."""
    if evidence.diagnosis is not None:
        print_diagnosis(console, evidence.diagnosis, evidence.profile)
    if evidence.records:
        said = evidence.diagnosis is not None and evidence.diagnosis.simulated
        print_trial(console, evidence, said_simulated=said)


def write_page(path: Path, evidence: Evidence, verdict: Verdict) -> None:
    """Write the HTML report. Raises UsageError where it can't be written."""
    try:
        path.write_text(render_html(evidence, verdict), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't write the report ({error.strerror})", where=str(path)) from error
