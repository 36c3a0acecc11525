"""The trial, the verdict and the environment as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from cudagraph_gate.gates.check import ending
from cudagraph_gate.gates.environment import stale_text
from cudagraph_gate.gates.explicit import explicit_note
from cudagraph_gate.gates.latency import PathComparison, QuantilePair, compare_paths
from cudagraph_gate.gates.trial_view import Evidence, ShapeTrial, view_trial
from cudagraph_gate.gates.wording import duration, percent
from cudagraph_gate.model import Decision, Fingerprint, GateStatus, NotMeasured, Prediction, Verdict
from cudagraph_gate.records import CapturedMap, Comparison, Finding, NodeSet, PathIdle
from cudagraph_gate.report.console_pieces import (
    add_row,
    line,
    or_reason,
    print_rows,
    simulated_line,
    table_of,
)
from cudagraph_gate.report.console_rungs import print_ladder, print_shapes
from cudagraph_gate.report.console_scenarios import print_scenarios
from cudagraph_gate.report.console_whole_request import print_whole_request
from cudagraph_gate.report.graph_map import print_graph_map

_VERDICT_STYLE: Final = {
    Decision.GO: "bold green",
    Decision.CONDITIONAL: "bold yellow",
    Decision.NO_GO: "bold red",
    Decision.INCONCLUSIVE: "bold yellow",
}
_STATUS_STYLE: Final = {GateStatus.PASS: "green", GateStatus.FAIL: "bold red", GateStatus.UNKNOWN: "yellow"}


# --- trial ----------------------------------------------------------------------------------------


def print_trial(console: Console, evidence: Evidence, *, said_simulated: bool = False) -> None:
    """What the trial of each shape cost and gave; ``said_simulated``: the line above said so already."""
    simulated_line(console, evidence.simulated and not said_simulated)
    trial = view_trial(evidence)
    shapes = ([trial.target] if trial.target else []) + list(trial.others)
    if not shapes:
        line(console, "no shape was tried", "yellow")
    for shape in shapes:
        _print_shape(console, shape)
        if shape.shape in trial.explicit:
            _print_explicit(console, trial.explicit[shape.shape])
    print_ladder(console, trial)
    print_scenarios(console, evidence, trial)
    print_shapes(console, evidence)
    if trial.target is not None:
        _print_prediction_error(console, evidence, trial.target)
    for note in trial.noticed:
        line(console, f"noticed: {note}")


def _print_explicit(console: Console, explicit: ShapeTrial) -> None:
    """The graph of ``build_explicit`` beside the captured one, and what is wrong with it."""
    _print_shape(console, explicit)
    if note := explicit_note(explicit):
        line(console, note, "red")


def _print_prediction_error(console: Console, evidence: Evidence, target: ShapeTrial) -> None:
    """How far the prediction from the normal path alone was from what the trial then measured."""
    prediction = evidence.diagnosis.prediction if evidence.diagnosis else None
    paths = compare_paths(target)
    if not isinstance(prediction, Prediction) or isinstance(paths, NotMeasured) or paths.p50.graph_ns <= 0:
        return
    predicted, measured = prediction.request_ns, paths.p50.graph_ns
    line(
        console,
        f"graph request of shape {target.shape}: predicted {duration(predicted)}, measured "
        f"{duration(measured)} (prediction off by {percent(predicted / measured - 1)})",
    )


def _print_shape(console: Console, shape: ShapeTrial) -> None:
    name = shape_title(shape)
    if not shape.records:
        line(console, f"{name}: not tried", "yellow")
        return
    if shape.costs:
        print_rows(console, f"costs, {name}", cost_rows(shape), ("phase", "host time"))
    maps = shape.of(CapturedMap)
    if maps:
        print_graph_map(console, maps[-1].map, f"graph, {name}")
    elif shape.nodes is not None:
        line(console, nodes_text(shape.nodes))
    for text, equal in comparison_lines(shape.comparisons):
        line(console, text, "" if equal else "red")
    if shape.completed:
        _print_latency(console, f"latency, {name}", compare_paths(shape))
        print_whole_request(console, shape)
    for text in path_idle_lines(shape):
        line(console, text)
    for finding in shape.findings:
        line(console, finding_text(finding), "red" if finding.blocks else "yellow")
        if finding.advice:
            line(console, f"  {finding.advice}")
    if not shape.completed:
        line(console, f"not completed: {ending(shape)}", "yellow")


def shape_title(shape: ShapeTrial) -> str:
    """A shape's name, and how its graph was made where that was not by capturing its step."""
    how = {"capture": "", "explicit": ", explicit graph", "own": ", own graph path"}[shape.method]
    return f"shape {shape.shape}{how}"


def path_idle_lines(shape: ShapeTrial) -> Iterator[str]:
    """How busy the GPU was during the requests of each path that were recorded apart."""
    for idle in shape.of(PathIdle):
        if isinstance(idle.busy_ns, int) and idle.window_ns:
            share, count = 1 - idle.busy_ns / idle.window_ns, idle.requests
            yield f"{idle.path} path: GPU idle {percent(share)} of {count} recorded requests"


def cost_rows(shape: ShapeTrial) -> list[tuple[str, str]]:
    """Each phase that was reached, with its host time."""
    return [(str(phase), or_reason(elapsed)) for phase, elapsed in shape.costs.items()]


def nodes_text(nodes: NodeSet) -> str:
    """What the captured graph is made of."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in nodes.kinds.items())
    return f"graph: {nodes.nodes} nodes ({kinds})"


def finding_text(finding: Finding) -> str:
    """What went wrong, in which phase, call and place."""
    place = " ".join(part for part in (finding.call, finding.where) if part)
    return f"finding {finding.code} in {finding.phase}: {finding.message}" + (f" [{place}]" if place else "")


def comparison_lines(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, bool]]:
    """For each subject how many comparisons agree, and whether all do."""
    for subject in dict.fromkeys(comparison.subject for comparison in comparisons):
        chosen = [comparison for comparison in comparisons if comparison.subject == subject]
        equal = sum(comparison.equal for comparison in chosen)
        exact = sum(comparison.exact for comparison in chosen)
        yield f"{subject}: {equal} of {len(chosen)} equal, {exact} bit by bit", equal == len(chosen)


def latency_rows(paths: PathComparison) -> list[tuple[str, QuantilePair | NotMeasured]]:
    """The quantiles by name."""
    return [("P50", paths.p50), ("P95", paths.p95), ("P99", paths.p99)]


def _print_latency(console: Console, title: str, paths: PathComparison | NotMeasured) -> None:
    if isinstance(paths, NotMeasured):
        line(console, f"{title}: {paths.reason}", "yellow")
        return
    table = table_of(title, ("", "normal", "graph", "ratio", "95 % interval"), right=(1, 2, 3, 4))
    for name, pair in latency_rows(paths):
        if isinstance(pair, NotMeasured):
            add_row(table, name, pair.reason, "", "", "")
            continue
        interval = f"{pair.ratio.low:.3f} to {pair.ratio.high:.3f}"
        add_row(
            table,
            name,
            duration(pair.normal_ns),
            duration(pair.graph_ns),
            f"{pair.ratio.ratio:.3f}",
            interval,
        )
    add_row(table, "CPU", duration(paths.normal_cpu_ns), duration(paths.graph_cpu_ns), "", "")
    add_row(table, "copy", "", or_reason(paths.copy_in_ns), "", "")
    console.print(table)
    noise = f"{percent(paths.noise.value)}, at most {percent(paths.noise.upper)}"
    line(console, f"noise floor (normal against normal): {noise}")


# --- verdict and environment ----------------------------------------------------------------------


def print_verdict(console: Console, verdict: Verdict) -> None:
    """The verdict, what it rests on and what it holds for."""
    fingerprint = verdict.fingerprint
    simulated = isinstance(fingerprint, Fingerprint) and fingerprint.simulated
    simulated_line(console, simulated or verdict.rehearsal is not None)
    line(console, f"{verdict.verdict}  {verdict.workload}", _VERDICT_STYLE[verdict.verdict])
    line(console, judged_shape(verdict))
    if verdict.rehearsal is not None:
        line(console, f"rehearsal: {verdict.rehearsal}")
    if verdict.stale:
        line(console, f"stale: {stale_text(verdict.stale)}", "yellow")
        line(console, f"where it was recorded: {verdict.recorded_verdict}")
    table = table_of("", ("", "gate", "answer", "reason"), right=(0,))
    for gate in verdict.gates:
        code = f" [{gate.code}]" if gate.code else ""
        answer = Text(gate.status, style=_STATUS_STYLE[gate.status])
        table.add_row(str(gate.number), Text(gate.name), answer, Text(gate.reason + code, overflow="fold"))
    console.print(table)
    for condition in verdict.conditions:
        line(console, f"condition: {condition}")
    line(console, f"run {verdict.run}; the verdict holds for the recorded environment only")


def judged_shape(verdict: Verdict) -> str:
    """Which shape the verdict is about, and which declared ones it says nothing of."""
    if not verdict.shape:
        return "no shape was recorded"
    left_out = ", ".join(verdict.shapes_left_out)
    return f"shape {verdict.shape}" + (f"; not asked for (--shapes): {left_out}" if left_out else "")


def print_fingerprint(console: Console, fingerprint: Fingerprint, *, said_simulated: bool = False) -> None:
    """The environment: what must stay equal, what was so at the time, what could not be read.

    ``said_simulated``: a line above said so already.
    """
    simulated_line(console, fingerprint.simulated and not said_simulated)
    table = table_of(f"environment {fingerprint.digest[:12]}", ("field", "value"))
    for name, value in fingerprint.identity.items():
        add_row(table, name, field_text(value))
    table.add_section()
    for name, value in fingerprint.conditions.items():
        add_row(table, f"{name} (now)", field_text(value))
    table.add_section()
    for name, reason in fingerprint.missing.items():
        add_row(table, name, f"unknown: {reason}")
    console.print(table)


def field_text(value: object) -> str:
    """A fingerprint value on one line."""
    return ", ".join(value) if isinstance(value, tuple) else str(value)
