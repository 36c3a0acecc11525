"""What a trial begins with: which shapes, by which method, and what its first record says."""

from __future__ import annotations

import sys
from typing import Final

from cudagraph_gate.errors import UsageError
from cudagraph_gate.evidence import Run
from cudagraph_gate.pilot.jobs import TrialJob
from cudagraph_gate.pilot.session import Loaded
from cudagraph_gate.records import Method, TrialStarted
from cudagraph_gate.workload import Workload, mix_of

OURS: Final = "cudagraph_gate.pilot.scenarios.running"
FRAMEWORKS: Final = ("torch", "transformers", "torchvision", "timm", "triton", "cupy")
"""Of these the next workers of this workload may import beforehand what this one had to import to load it:
that takes seconds and does nothing else."""


def framework_modules() -> list[str]:
    """Modules of :data:`FRAMEWORKS` that are loaded, in the order in which they were.

    Not their packages alone: some load what a program uses of them when it is first named.
    """
    return [name for name in sys.modules if name.partition(".")[0] in FRAMEWORKS]


def target_first(run: Run, loaded: Loaded) -> list[str]:
    """The shapes' names; the profiled one, which the verdict is about, comes first."""
    profile = run.profile()
    target = profile.shape if profile is not None else ""
    return sorted(loaded.shapes, key=lambda name: name != target)


def judged_method(workload: Workload) -> Method:
    """The workload's own graph path is judged instead of ours."""
    return "own" if workload.build_graphed is not None else "capture"


def refuse_other_values(run: Run, loaded: Loaded) -> None:
    """Evidence names a shape by its name alone: in one run a name must not mean two shapes."""
    known: dict[str, str] = {}
    for record in run.records():
        if isinstance(record, TrialStarted):
            known |= record.shape_values
    profile = run.profile()
    if profile is not None:
        known[profile.shape] = profile.shape_value
    for name, shape in loaded.shapes.items():
        if known.get(name, repr(shape)) != repr(shape):
            raise UsageError(
                f"shape {name} is {known[name]} in run {run.name}, not {shape!r}",
                hint="give the new shape another name, or start a new run with cgate run",
            )


def started_trial(loaded: Loaded, job: TrialJob) -> TrialStarted:
    """The first record of a trial."""
    mix = mix_of(loaded.workload, job.shapes)
    left_out = [] if mix is None else sorted(set(mix.weights) - set(loaded.shapes))
    noticed = () if mix is None or not mix.note else (mix.note,)
    if left_out:
        why = f"shapes {', '.join(left_out)} are not tried; --shapes tries every declared one"
        noticed = (*noticed, f"the request mix is not replayed: {why}")
    return TrialStarted(
        workload=job.workload,
        shapes=tuple(loaded.shapes),
        shape_values={name: repr(shape) for name, shape in loaded.shapes.items()},
        left_out=tuple(name for name in loaded.workload.shapes if name not in loaded.shapes),
        simulated=loaded.device.simulated,
        device=loaded.device.name,
        seed=job.seed,
        noticed=noticed,
        traffic=mix is not None and not left_out,
    )
