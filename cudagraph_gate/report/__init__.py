"""Results for people: text for a terminal, and one HTML file. Nothing here decides anything."""

from pathlib import Path

from rich.console import Console

from cudagraph_gate.errors import UsageError
from cudagraph_gate.gates import Evidence
from cudagraph_gate.model import NotMeasured, Verdict
from cudagraph_gate.report.console import print_fingerprint, print_trial, print_verdict
from cudagraph_gate.report.console_diagnosis import print_diagnosis, print_hta
from cudagraph_gate.report.console_pieces import line
from cudagraph_gate.report.graph_map import graph_map_dot
from cudagraph_gate.report.html import render_html

__all__ = [
    "graph_map_dot",
    "next_command",
    "print_diagnosis",
    "print_evidence",
    "print_fingerprint",
    "print_hta",
    "print_next_command",
    "print_trial",
    "print_verdict",
    "render_html",
    "write_page",
]


def print_evidence(console: Console, evidence: Evidence, *, details: bool = False) -> None:
    """The diagnosis and the trial, as far as the run has them."""
    if evidence.diagnosis is not None:
        print_diagnosis(console, evidence.diagnosis, evidence.profile, details=details)
    if evidence.records:
        said = evidence.diagnosis is not None and evidence.diagnosis.simulated
        print_trial(console, evidence, said_simulated=said)


def print_next_command(console: Console, evidence: Evidence) -> None:
    """What to do after a profile."""
    line(console, f"next: {next_command(evidence)}")


def next_command(evidence: Evidence) -> str:
    """The command that brings the decision nearer, by what the profile found."""
    from cudagraph_gate.diagnosis.conclusion import worth_trying

    found = evidence.diagnosis
    if found is None or not found.devices:
        return "cgate doctor says what this machine can record"
    if any(isinstance(device.idle_ns, NotMeasured) for device in found.devices):
        return "record again, so that nothing is missing; the problems above say what was"
    if not worth_trying(found):
        return "a graph is no candidate; to look closer: cgate report --perfetto timeline.json"
    if evidence.profile is not None:
        return f"cgate pilot {evidence.workload}"
    return "make segment 1 the step of a workload module (build, inputs), then: cgate run workload.py"


def write_page(path: Path, evidence: Evidence, verdict: Verdict) -> None:
    """Write the HTML report. Raises UsageError where it can't be written."""
    try:
        path.write_text(render_html(evidence, verdict), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't write the report ({error.strerror})", where=str(path)) from error
