"""The results as text for a terminal: 80 columns are enough, and no colour where there is no terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cudagraph_gate.gates.check import ending
from cudagraph_gate.gates.environment import stale_text
from cudagraph_gate.gates.latency import PathComparison, QuantilePair, compare_paths
from cudagraph_gate.gates.trial_view import Evidence, ShapeTrial, view_trial
from cudagraph_gate.gates.wording import duration, kernel_name, percent, size
from cudagraph_gate.model import (
    Decision,
    DeviceIdle,
    Diagnosis,
    Fingerprint,
    GateStatus,
    NotMeasured,
    Prediction,
    ProfileTimes,
    Verdict,
)
from cudagraph_gate.records import Comparison, Finding, NodeSet

__all__ = [
    "SIMULATED_LINE",
    "duration",
    "print_diagnosis",
    "print_fingerprint",
    "print_trial",
    "print_verdict",
]

SIMULATED_LINE: Final = "SIMULATED DEVICE: virtual times, a rehearsal, never a GO"
TOP_IDLE: Final = 5
"""Idle intervals shown: the longest ones explain most; all are in diagnosis.json."""
NAME_LENGTH: Final = 40
"""Characters of a kernel's name in a table: template arguments would fill the screen."""

_VERDICT_STYLE: Final = {
    Decision.GO: "bold green",
    Decision.CONDITIONAL: "bold yellow",
    Decision.NO_GO: "bold red",
    Decision.INCONCLUSIVE: "bold yellow",
}
_STATUS_STYLE: Final = {GateStatus.PASS: "green", GateStatus.FAIL: "bold red", GateStatus.UNKNOWN: "yellow"}


# --- diagnosis ------------------------------------------------------------------------------------


def print_diagnosis(console: Console, diagnosis: Diagnosis, times: ProfileTimes | None) -> None:
    """Where the time of the normal path goes, and what a graph is predicted to give."""
    _simulated_line(console, diagnosis.simulated)
    for device in diagnosis.devices:
        _print_device(console, device)
    _print_rows(console, "submission", submission_rows(diagnosis))
    if times is not None:
        _print_rows(console, f"normal path, shape {times.shape}", times_rows(times))
    _print_prediction(console, diagnosis.prediction)
    for problem in diagnosis.problems:
        _line(console, f"problem: {problem}", "yellow")
    _line(console, diagnosis.conclusion, "bold")


def idle_shares(device: DeviceIdle) -> list[tuple[str, int, float]]:
    """Busy and each cause of idle with its ns and its share of the window, the largest cause first."""
    causes = sorted(device.causes.items(), key=lambda item: -item[1])
    parts = [("busy", device.busy_ns), *((str(cause), ns) for cause, ns in causes)]
    return [(name, ns, ns / device.window_ns if device.window_ns else 0.0) for name, ns in parts]


def _print_device(console: Console, device: DeviceIdle) -> None:
    title = f"GPU time, device {device.device} of process {device.process}"
    if isinstance(device.idle_ns, NotMeasured):
        _line(console, f"{title}: busy {duration(device.busy_ns)} of {duration(device.window_ns)}")
        _line(console, f"idle is not measurable: {device.idle_ns.reason}", "yellow")
        return
    table = _table(title, ("cause", "ms", "% of window"), right=(1, 2))
    parts = [part for part in idle_shares(device) if part[0] == "busy" or part[1] > 0]
    for name, ns, share in parts:
        _row(table, name, f"{ns / 1e6:.3f}", percent(share))
    table.add_section()
    _row(
        table,
        "total",
        f"{sum(ns for _, ns, _ in parts) / 1e6:.3f}",
        percent(sum(share for *_, share in parts)),
    )
    console.print(table)
    _print_top_idle(console, device)


def _print_top_idle(console: Console, device: DeviceIdle) -> None:
    if not device.top_idle:
        return
    table = _table(
        "longest idle", ("at ms", "idle", "cause", "next operation", "host call", "range"), right=(0, 1)
    )
    for idle in device.top_idle[:TOP_IDLE]:
        at, lasted = f"{idle.start_ns / 1e6:.3f}", duration(idle.duration_ns)
        names = (_shortened(name) for name in (idle.next_operation, idle.host_call, idle.range_name))
        _row(table, at, lasted, idle.cause, *names)
    console.print(table)


def submission_rows(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """How work was submitted, in total and per request: what and its value."""
    launches, requests = diagnosis.launches, diagnosis.requests
    gap = launches.submission_gap
    rows = [
        ("submission calls", f"{launches.submissions}"),
        ("graph launches", f"{launches.graph_launches}"),
        ("submission gap P50", _or_reason(gap if isinstance(gap, NotMeasured) else gap.p50)),
        ("TKLQT", _or_reason(launches.tklqt_ns)),
    ]
    if isinstance(requests, NotMeasured):
        rows.append(("requests", _or_reason(requests)))
    else:
        rows += [
            ("requests", f"{requests.count}"),
            ("submissions per request", f"{requests.submissions}"),
            ("operations per request", f"{requests.operations}"),
            ("blocking calls per request", f"{requests.blocking_calls}"),
            ("busy per request", duration(requests.busy_ns)),
            ("submission idle per request", _or_reason(requests.submission_idle_ns)),
        ]
    calls = launches.blocking_calls
    return rows + [(f"blocking: {call.name}", f"{call.count} x, {duration(call.total_ns)}") for call in calls]


def times_rows(times: ProfileTimes) -> list[tuple[str, str]]:
    """Requests of the normal path without the recorder: what and its value."""
    quantiles = [
        (f"request {name.upper()}", duration(getattr(times.latency, name))) for name in ("p50", "p95", "p99")
    ]
    copied = f"{duration(times.copy_in_ns)} for {size(sum(times.input_bytes.values()))}"
    return [
        ("first request", duration(times.cold_ns)),
        *quantiles,
        ("CPU time per request", duration(times.cpu_ns)),
        ("recorder's inflation", _inflation(times)),
        ("copy of the inputs", copied),
    ]


def _inflation(times: ProfileTimes) -> str:
    if times.latency.p50 <= 0:
        return "not measured: the request time is zero"
    return f"{times.recorded_latency.p50 / times.latency.p50:.2f} x"


def _print_prediction(console: Console, prediction: Prediction | NotMeasured) -> None:
    if isinstance(prediction, NotMeasured):
        _line(console, f"no prediction: {prediction.reason}", "yellow")
        return
    _print_rows(console, "prediction", prediction_rows(prediction))


def prediction_rows(prediction: Prediction) -> list[tuple[str, str]]:
    """What a graph request would take and give: what and its value."""
    interval = f"{duration(prediction.replay_low_ns)} to {duration(prediction.replay_high_ns)}"
    return [
        ("normal request", duration(prediction.normal_ns)),
        ("replay", f"{duration(prediction.replay_ns)} ({interval})"),
        ("copy of the inputs", duration(prediction.copy_in_ns)),
        ("graph request", duration(prediction.request_ns)),
        ("gain", f"{percent(prediction.gain)} ({_gain_interval(prediction)})"),
        # Of a recorded request, which takes longer: the bound may exceed the normal request above.
        ("upper bound, recorder on", _or_reason(prediction.upper_bound_ns)),
    ]


def _gain_interval(prediction: Prediction) -> str:
    if prediction.normal_ns <= 0:
        return "no interval"
    rest = prediction.request_ns - prediction.replay_ns
    ends = (prediction.replay_high_ns, prediction.replay_low_ns)
    return " to ".join(percent(1 - (rest + replay) / prediction.normal_ns) for replay in ends)


# --- trial ----------------------------------------------------------------------------------------


def print_trial(console: Console, evidence: Evidence, *, said_simulated: bool = False) -> None:
    """What the trial of each shape cost and gave; ``said_simulated``: the line above said so already."""
    _simulated_line(console, evidence.simulated and not said_simulated)
    trial = view_trial(evidence)
    shapes = ([trial.target] if trial.target else []) + list(trial.others)
    if not shapes:
        _line(console, "no shape was tried", "yellow")
    for shape in shapes:
        _print_shape(console, shape)
    if trial.target is not None:
        _print_prediction_error(console, evidence, trial.target)
    for note in trial.noticed:
        _line(console, f"noticed: {note}")


def _print_prediction_error(console: Console, evidence: Evidence, target: ShapeTrial) -> None:
    """How far the prediction from the normal path alone was from what the trial then measured."""
    prediction = evidence.diagnosis.prediction if evidence.diagnosis else None
    paths = compare_paths(target)
    if not isinstance(prediction, Prediction) or isinstance(paths, NotMeasured) or paths.p50.graph_ns <= 0:
        return
    predicted, measured = prediction.request_ns, paths.p50.graph_ns
    _line(
        console,
        f"graph request of shape {target.shape}: predicted {duration(predicted)}, measured "
        f"{duration(measured)} (prediction off by {percent(predicted / measured - 1)})",
    )


def _print_shape(console: Console, shape: ShapeTrial) -> None:
    if not shape.records:
        _line(console, f"shape {shape.shape}: not tried", "yellow")
        return
    if shape.costs:
        _print_rows(console, f"costs, shape {shape.shape}", cost_rows(shape), ("phase", "host time"))
    if shape.nodes is not None:
        _line(console, nodes_text(shape.nodes))
    for text, equal in comparison_lines(shape.comparisons):
        _line(console, text, "" if equal else "red")
    if shape.completed:
        _print_latency(console, f"latency, shape {shape.shape}", compare_paths(shape))
    for finding in shape.findings:
        _line(console, finding_text(finding), "red" if finding.blocks else "yellow")
        if finding.advice:
            _line(console, f"  {finding.advice}")
    if not shape.completed:
        _line(console, f"not completed: {ending(shape)}", "yellow")


def cost_rows(shape: ShapeTrial) -> list[tuple[str, str]]:
    """Each phase that was reached, with its host time."""
    return [(str(phase), _or_reason(elapsed)) for phase, elapsed in shape.costs.items()]


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
        _line(console, f"{title}: {paths.reason}", "yellow")
        return
    table = _table(title, ("", "normal", "graph", "ratio", "95 % interval"), right=(1, 2, 3, 4))
    for name, pair in latency_rows(paths):
        if isinstance(pair, NotMeasured):
            _row(table, name, pair.reason, "", "", "")
            continue
        interval = f"{pair.ratio.low:.3f} to {pair.ratio.high:.3f}"
        _row(
            table,
            name,
            duration(pair.normal_ns),
            duration(pair.graph_ns),
            f"{pair.ratio.ratio:.3f}",
            interval,
        )
    _row(table, "CPU", duration(paths.normal_cpu_ns), duration(paths.graph_cpu_ns), "", "")
    _row(table, "copy", "", _or_reason(paths.copy_in_ns), "", "")
    console.print(table)
    noise = f"{percent(paths.noise.value)}, at most {percent(paths.noise.upper)}"
    _line(console, f"noise floor (normal against normal): {noise}")


# --- verdict and environment ----------------------------------------------------------------------


def print_verdict(console: Console, verdict: Verdict) -> None:
    """The verdict, what it rests on and what it holds for."""
    fingerprint = verdict.fingerprint
    simulated = isinstance(fingerprint, Fingerprint) and fingerprint.simulated
    _simulated_line(console, simulated or verdict.rehearsal is not None)
    _line(console, f"{verdict.verdict}  {verdict.workload}", _VERDICT_STYLE[verdict.verdict])
    if verdict.rehearsal is not None:
        _line(console, f"rehearsal: {verdict.rehearsal}")
    if verdict.stale:
        _line(console, f"stale: {stale_text(verdict.stale)}", "yellow")
        _line(console, f"where it was recorded: {verdict.recorded_verdict}")
    table = _table("", ("", "gate", "answer", "reason"), right=(0,))
    for gate in verdict.gates:
        code = f" [{gate.code}]" if gate.code else ""
        answer = Text(gate.status, style=_STATUS_STYLE[gate.status])
        table.add_row(str(gate.number), Text(gate.name), answer, Text(gate.reason + code, overflow="fold"))
    console.print(table)
    for condition in verdict.conditions:
        _line(console, f"condition: {condition}")
    _line(console, f"run {verdict.run}; the verdict holds for the recorded environment only")


def print_fingerprint(console: Console, fingerprint: Fingerprint, *, said_simulated: bool = False) -> None:
    """The environment: what must stay equal, what was so at the time, what could not be read.

    ``said_simulated``: a line above said so already.
    """
    _simulated_line(console, fingerprint.simulated and not said_simulated)
    table = _table(f"environment {fingerprint.digest[:12]}", ("field", "value"))
    for name, value in fingerprint.identity.items():
        _row(table, name, field_text(value))
    table.add_section()
    for name, value in fingerprint.conditions.items():
        _row(table, f"{name} (now)", field_text(value))
    table.add_section()
    for name, reason in fingerprint.missing.items():
        _row(table, name, f"unknown: {reason}")
    console.print(table)


def field_text(value: object) -> str:
    """A fingerprint value on one line."""
    return ", ".join(value) if isinstance(value, tuple) else str(value)


# --- pieces ---------------------------------------------------------------------------------------


def _simulated_line(console: Console, simulated: bool) -> None:
    if simulated:
        _line(console, SIMULATED_LINE, "bold magenta")


def _line(console: Console, text: str, style: str = "") -> None:
    # As Text: a name with square brackets is no markup, and paths or numbers get no colour of their own.
    console.print(Text(text, style=style, overflow="fold"))


def _table(title: str, columns: Iterable[str], right: tuple[int, ...] = ()) -> Table:
    table = Table(title=Text(title) if title else None, title_justify="left")
    for index, name in enumerate(columns):
        table.add_column(Text(name), justify="right" if index in right else "left", overflow="fold")
    return table


def _print_rows(
    console: Console, title: str, rows: Iterable[tuple[str, str]], head: tuple[str, str] = ("what", "value")
) -> None:
    table = _table(title, head, right=(1,))
    for row in rows:
        _row(table, *row)
    console.print(table)


def _row(table: Table, *cells: str) -> None:
    table.add_row(*(Text(cell, overflow="fold") for cell in cells))


def _shortened(symbol: str) -> str:
    name = kernel_name(symbol).rpartition("::")[2]
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…"


def _or_reason(value: int | NotMeasured) -> str:
    return f"not measured: {value.reason}" if isinstance(value, NotMeasured) else duration(value)
