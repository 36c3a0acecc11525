"""Gate 2, segment: the step can be captured whole, and it is the same on every request."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from cudagraph_gate.evidence import DIAGNOSIS_FILE, PILOT_LOG, missing
from cudagraph_gate.gates.check import (
    Check,
    Gate,
    ending,
    fails,
    finding_checks,
    holds,
    undecided,
    worker_end,
)
from cudagraph_gate.gates.own_path import newest_recording, own_path_checks
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.trial_view import Evidence, ShapeTrial, TrialView, before
from cudagraph_gate.gates.wording import listed, percent
from cudagraph_gate.model import GateResult, NotMeasured, Reason
from cudagraph_gate.records import NodeSet, Phase, WorkerEnd
from cudagraph_gate.timeline.kernel_names import kernel_name

GATE = Gate(2, "segment", (DIAGNOSIS_FILE, PILOT_LOG))
PHASES: Final = frozenset(phase for phase in Phase if not before(Phase.CAPTURE, phase)) | {Phase.KERNELS}
"""Phases whose findings speak of the segment: up to the capture, and the comparison of its kernels."""
MIN_REQUESTS: Final = 5
"""Requests of the trajectory: the first replays often still look right when state or lifetime is not."""
RECORDED_KINDS: Final = frozenset({"kernel", "memcpy", "memset"})
"""Nodes that leave one operation each in a recording."""
NAMED_KERNELS: Final = 3
"""Kernels that a reason names: enough to recognise the code, short enough to read."""


def segment_gate(evidence: Evidence, trial: TrialView, policy: Policy) -> GateResult:
    """Judge what was captured of the target shape, and how stable the requests are."""
    target = trial.target
    checks = [_stability_check(evidence, policy)]
    checks += (
        [not_tried(trial, trial.name)] if target is None or not target.records else segment_checks(target)
    )
    measured: dict[str, Any] = {"unstable_share": _unstable_share(evidence)}
    nodes = target.nodes if target else None
    if nodes is not None:
        missing_kernels, extra = _difference(nodes)
        measured |= {"nodes": nodes.nodes, "kinds": nodes.kinds}
        measured |= {"missing_kernels": dict(missing_kernels), "extra_kernels": dict(extra)}
    return GATE.result(checks, measured, {"max_rebuild_share": policy.max_rebuild_share})


def segment_checks(trial: ShapeTrial) -> list[Check]:
    """What the trial of one shape says of its segment."""
    checks = finding_checks(trial, PHASES)
    if trial.probe is not None and not trial.probe.intact:
        broken = f"the normal path is not right after the failed capture: {trial.probe.detail}"
        checks.append(fails(Reason.WRONG_OUTPUT, broken))
    if trial.end is not None and trial.end.outcome in ("crashed", "timed_out"):
        checks.append(_crash_check(trial, trial.end))
    checks += own_path_checks(trial)
    if trial.nodes is not None:
        checks.append(_nodes_check(trial.nodes, agreed=outputs_agreed(trial)))
        checks += _recorder_checks(trial, trial.nodes)
    elif not checks:
        checks.append(_unreached_check(trial))
    return checks


def not_tried(trial: TrialView, shape: str | None) -> Check:
    """The answer where ``shape`` has no records, with what became of its worker if that is known."""
    what = "no shape was tried" if shape is None else f"shape {shape} was not tried"
    if not trial.ends:
        return undecided(Reason.NOT_TRIED, what)
    return undecided(Reason.NOT_TRIED, f"{what}: a worker {worker_end(trial.ends[-1])}")


def _crash_check(trial: ShapeTrial, end: WorkerEnd) -> Check:
    phase = Phase(end.phase) if end.phase in set(Phase) else trial.last_phase
    if phase is None or before(phase, Phase.CAPTURE):
        return undecided(Reason.WORKLOAD, f"{ending(trial)}, before any capture")
    return fails(Reason.CRASH if end.outcome == "crashed" else Reason.HANG, ending(trial))


def _unreached_check(trial: ShapeTrial) -> Check:
    failed = trial.end is not None and trial.end.outcome == "failed" and not trial.reached(Phase.CAPTURE)
    return undecided(Reason.WORKLOAD if failed else Reason.NOT_TRIED, ending(trial))


def _nodes_check(nodes: NodeSet, *, agreed: bool) -> Check:
    if nodes.nodes == 0:
        return fails(Reason.ESCAPED_WORK, "the graph is empty: none of the step's work was captured")
    if isinstance(nodes.normal_kernels, NotMeasured):
        return undecided(
            Reason.UNMEASURABLE, f"the normal path's kernels are unknown: {nodes.normal_kernels.reason}"
        )
    absent, extra = _difference(nodes)
    copies = _missing_copies(nodes)
    absent += copies
    if absent and extra:
        other = (
            f"the graph holds other work than the normal path runs: without {_kernels(absent)}, "
            f"with {_kernels(extra)}"
        )
        # A library that takes another path while capturing; only agreeing outputs tell it from lost work.
        return holds(f"{nodes.nodes} nodes; {other}") if agreed else fails(Reason.ESCAPED_WORK, other)
    if absent:
        what = "work" if copies else "kernels"
        return fails(
            Reason.ESCAPED_WORK, f"the graph misses {what} that the normal path runs: {_kernels(absent)}"
        )
    if extra:
        return holds(
            f"{nodes.nodes} nodes; the graph runs more kernels than the normal path: {_kernels(extra)}"
        )
    return holds(f"{nodes.nodes} nodes, the same kernels as the normal path")


def _recorder_checks(trial: ShapeTrial, nodes: NodeSet) -> list[Check]:
    """Nothing where the recorder saw each node of each replay; else the kernels it saw prove nothing.

    Recorders drop, merge and misattribute events. How many a replay has to leave is known from its graph.
    """
    idle = newest_recording(trial, "graph")
    if idle is None or not set(nodes.kinds) <= RECORDED_KINDS:
        return []
    launches, seen = idle.graph_launches, idle.graph_operations
    if isinstance(launches, NotMeasured) or isinstance(seen, NotMeasured):
        return []
    expected = idle.requests * nodes.nodes
    if (launches, seen) == (idle.requests, expected):
        return []
    why = (
        f"the recorder can't be trusted: of {idle.requests} replays of {nodes.nodes} nodes it saw "
        f"{launches} launches with {seen} operations, not {expected}"
    )
    return [undecided(Reason.UNMEASURABLE, why)]


def outputs_agreed(trial: ShapeTrial) -> bool:
    """Whether the outputs of a whole trajectory were compared and all agree."""
    outputs = [comparison for comparison in trial.comparisons if comparison.subject == "outputs"]
    return len(outputs) >= MIN_REQUESTS and all(comparison.equal for comparison in outputs)


def other_path_condition(trial: ShapeTrial | None) -> str:
    """The condition under which a graph that runs other kernels than the normal path may be used, if so."""
    if trial is None or trial.nodes is None:
        return ""
    absent, extra = _difference(trial.nodes)
    absent += _missing_copies(trial.nodes)
    if not (absent and extra):
        return ""
    return (
        f"while capturing, shape {trial.shape} takes another code path (without {absent.total()} of the "
        f"normal path's operations, with {extra.total()} others): compare outputs again after every change "
        "of a library"
    )


def _difference(nodes: NodeSet) -> tuple[Counter[str], Counter[str]]:
    """Kernels that only the normal path runs, and those that only the graph runs."""
    if isinstance(nodes.normal_kernels, NotMeasured):
        return Counter(), Counter()
    normal, graph = Counter(nodes.normal_kernels.by_name), Counter(nodes.kernels)
    return normal - graph, graph - normal


def _missing_copies(nodes: NodeSet) -> Counter[str]:
    """Copies and memsets that the normal path runs and the graph does not."""
    if isinstance(nodes.normal_copies, NotMeasured):
        return Counter()
    return Counter(nodes.normal_copies.by_name) - Counter(nodes.kinds)


def _kernels(counts: Counter[str]) -> str:
    short: Counter[str] = Counter()
    for name, count in counts.items():
        short[kernel_name(name)] += count
    return listed([f"{name} ({count} x)" for name, count in short.most_common()], NAMED_KERNELS)


def _unstable_share(evidence: Evidence) -> float | NotMeasured:
    if evidence.diagnosis is None:
        return missing("diagnosis")
    requests = evidence.diagnosis.requests
    return requests if isinstance(requests, NotMeasured) else requests.unstable_share


def unstable_condition(evidence: Evidence) -> str:
    """The condition under which a graph may be used where a few requests run another sequence."""
    share = _unstable_share(evidence)
    if isinstance(share, NotMeasured) or share == 0:
        return ""
    return f"requests that run another sequence of operations ({percent(share)}) take the normal path"


def _stability_check(evidence: Evidence, policy: Policy) -> Check:
    share = _unstable_share(evidence)
    if isinstance(share, NotMeasured):
        return undecided(Reason.UNMEASURABLE, f"whether requests repeat is unknown: {share.reason}")
    differing = f"{percent(share)} of the requests ran another sequence of operations"
    if share > policy.max_rebuild_share:
        return fails(Reason.CHURN, f"{differing}, the limit is {percent(policy.max_rebuild_share)}")
    return holds(differing if share else "every request ran the same sequence of operations")
