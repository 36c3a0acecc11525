"""The order of the stages: profile, pilot, verdict; only this package knows it.

Each stage reads what the ones before it left in the run folder, so that every one can be run on its own.
"""

from __future__ import annotations

from pathlib import Path

from cudagraph_gate.errors import CgateError
from cudagraph_gate.evidence import Run
from cudagraph_gate.gates import Policy
from cudagraph_gate.model import Verdict
from cudagraph_gate.pipeline.attack import scenario_names
from cudagraph_gate.pipeline.examination import Examination, examine
from cudagraph_gate.pipeline.judging import collect_evidence, verdict
from cudagraph_gate.pipeline.options import Options
from cudagraph_gate.pipeline.profiling import Interrupted, diagnose_run, import_trace, profile
from cudagraph_gate.pipeline.trial import pilot, run_for_pilot
from cudagraph_gate.pipeline.views import hta_view, write_map, write_perfetto_view, write_segment_map
from cudagraph_gate.pipeline.workers import require_module

__all__ = [
    "Examination",
    "Interrupted",
    "Options",
    "collect_evidence",
    "diagnose_run",
    "examine",
    "hta_view",
    "import_trace",
    "pilot",
    "profile",
    "run_all",
    "run_for_pilot",
    "scenario_names",
    "verdict",
    "write_map",
    "write_perfetto_view",
    "write_segment_map",
]


def run_all(workload: Path, policy: Policy, options: Options) -> tuple[Run, Verdict]:
    """Profile, pilot, verdict. Raises where the workload fails or no device can be had."""
    require_module(workload)
    run = profile(workload, (), options)
    try:
        pilot(run, options, policy)
    except CgateError:
        options.warn(f"recorded until then: {run.folder}; see: cgate report")
        raise
    judged = verdict(run, policy)
    run.write(judged)
    return run, judged
